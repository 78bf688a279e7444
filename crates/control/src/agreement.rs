//! The agreement of the survivors of a communicator: on a flag, on the ranks that are left, on the calls that all of
//! them have finished. Pure: ballots and news in, ballots and decisions out.
//!
//! Every rank publishes a ballot for the set of ranks that it counts as gone, and another one when that set has grown.
//! The second and later ballots wait until the set grows no more for a while: when a host with many ranks goes, the
//! losses come one after the other, and each ballot goes to all ranks. A rank that holds ballots for its own set from
//! every rank outside that set decides. A rank that receives a decision before it has decided adopts it.
//!
//! A rank publishes its decision, decided or adopted, when another rank needs it, and when it leaves. As long as all
//! ranks keep the set of the decision, every rank gets all ballots for it and decides by itself, so no rank needs the
//! decision. A rank cannot decide any more when its set has grown meanwhile: the others have published their last
//! ballots, and not for that set. But then it has published a ballot for that set, and every rank with a decision that
//! takes one of the set for live answers such a ballot with the decision. A rank that leaves a communicator counts as
//! gone from then on, and answers no ballot, so it publishes its decisions before.
//!
//! Why no two survivors decide differently. It holds that sets only grow, and that a rank ignores news whose origin it
//! counts as gone (the plane sees to that). Say B decides for set L by ballots. Then every rank X outside L has
//! published a ballot for L. If X had adopted another decision before, it would not have published that ballot, and B
//! would not have decided. If X adopts a decision afterwards, it is the decision of a rank Y outside X's set, so
//! outside L. Y too has published a ballot for L, so Y has decided for L or for a larger set. For a larger set it
//! needed another ballot of B, but B has decided and publishes no more. So X decides for L. A rank inside L is gone; or
//! it lives, is told that it counts as gone, and takes part no more. When a decision is published makes no difference
//! here: a rank that dies with its decision, before another rank has the same, has told nobody.
//!
//! Why nobody waits for ever for a decision that there is. Say B has decided for L by ballots, and X outside L has not
//! decided. X has published a ballot for L, so its set holds L. If its set stays L, the ballots of all ranks outside L
//! come to X, and it decides. Else it has published a ballot for a larger set, and every rank outside that set answers
//! with its decision. If none of them has one, their sets grow too, since each loss is news, and they decide with X.
//!
//! Source: reduced from T. Herault et al., "Practical scalable consensus for pseudo-synchronous distributed systems"
//! (SC 2015), with floods in place of its tree: fewer rounds, more messages, for jobs of up to some thousand ranks.

use unisono_communicator::GroupRank;

use crate::wire::{Ballot, Fate, Fates};

impl Ballot {
    /// The lost ranks that may live on the other side of a network partition, if that side may go on instead of this
    /// one: they are more than the survivors, or as many, and the lowest rank is among them. A partition separates
    /// hosts, so a lost rank on the host of a survivor has stopped.
    pub(crate) fn rivals(&self, hosts: &[u32]) -> Option<Vec<GroupRank>> {
        let survivors: Vec<GroupRank> = self.fates.live().collect();
        let may_be_cut_off = |lost: &GroupRank| {
            let host = hosts.get(lost.index());
            !survivors.iter().any(|&survivor| hosts.get(survivor.index()) == host)
        };
        let rivals: Vec<GroupRank> = self.fates.with(Fate::Unproven).filter(may_be_cut_off).collect();
        let outnumber = rivals.len() > survivors.len();
        let draw = rivals.len() == survivors.len() && rivals.first() < survivors.first();
        (outnumber || draw).then_some(rivals)
    }
}

/// Something to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Publish {
    /// Our ballot.
    Ballot(Ballot),
    /// The decision.
    Decision(Ballot),
}

/// One agreement between the ranks of one communicator, seen from one of them.
#[derive(Debug)]
pub(crate) struct Agreement {
    /// The flag of this rank and the number of its finished calls, once its caller has asked.
    own: Option<(bool, u64)>,
    /// The last ballot of every rank, ours included.
    ballots: Vec<Option<Ballot>>,
    /// The number of live ranks of our own ballot that have a ballot for the same live ranks.
    in_favour: usize,
    decision: Option<Ballot>,
    /// Another rank cannot decide by itself any more; see the top of this file.
    is_needed: bool,
    is_published: bool,
    rank: GroupRank,
}

impl Agreement {
    /// An agreement without any ballot yet.
    pub(crate) fn new(rank: GroupRank, ranks: u32) -> Agreement {
        Agreement {
            own: None,
            ballots: vec![None; ranks as usize],
            in_favour: 0,
            decision: None,
            is_needed: false,
            is_published: false,
            rank,
        }
    }

    /// This rank takes part from now on. Its first flag and number stay.
    pub(crate) fn join(&mut self, flag: bool, finished_calls: u64) {
        self.own.get_or_insert((flag, finished_calls));
    }

    /// A rank has published its ballot.
    pub(crate) fn on_ballot(&mut self, from: GroupRank, ballot: Ballot) {
        if from == self.rank || from.index() >= self.ballots.len() {
            return;
        }
        let decision = self.decision.as_ref();
        self.is_needed |= decision.is_some_and(|decision| ballot.fates.miss_one_of(&decision.fates));
        self.in_favour -= usize::from(self.is_in_favour(from));
        self.ballots[from.index()] = Some(ballot);
        self.in_favour += usize::from(self.is_in_favour(from));
    }

    /// Whether the ballot of a live rank of our own ballot is for the same live ranks.
    fn is_in_favour(&self, rank: GroupRank) -> bool {
        let ballot = |rank: GroupRank| self.ballots[rank.index()].as_ref().map(|ballot| &ballot.fates);
        let both = ballot(self.rank).zip(ballot(rank));
        both.is_some_and(|(ours, theirs)| ours.is_live(rank) && ours.have_same_live(theirs))
    }

    /// A rank has published a decision.
    pub(crate) fn on_decision(&mut self, decision: Ballot) {
        if decision.fates.ranks() as usize == self.ballots.len() && self.decision.is_none() {
            self.decide(decision);
        }
    }

    fn decide(&mut self, decision: Ballot) {
        let mut ballots = self.ballots.iter().flatten();
        self.is_needed = ballots.any(|ballot| ballot.fates.miss_one_of(&decision.fates));
        self.decision = Some(decision);
    }

    /// The decision, if it is not published yet: this rank leaves.
    pub(crate) fn leave(&mut self) -> Option<Ballot> {
        let decision = self.decision.as_ref().filter(|_| !self.is_published)?;
        self.is_published = true;
        Some(decision.clone())
    }

    /// Whether this rank has published a ballot, and is to publish another one for these `fates`.
    pub(crate) fn votes_again(&self, fates: &Fates) -> bool {
        let last = self.ballots[self.rank.index()].as_ref().filter(|_| self.decision.is_none());
        last.is_some_and(|last| !last.fates.have_same_live(fates))
    }

    /// Returns the ballot and the decision to publish, given these `fates`. Unless they are settled, a second ballot
    /// waits.
    pub(crate) fn step(&mut self, fates: &Fates, are_settled: bool) -> Vec<Publish> {
        let mut published = Vec::new();
        if let Some((flag, finished_calls)) = self.own.filter(|_| self.decision.is_none()) {
            if self.ballots[self.rank.index()].is_none() || are_settled && self.votes_again(fates) {
                let ballot = Ballot { flag, finished_calls, fates: fates.clone() };
                self.ballots[self.rank.index()] = Some(ballot.clone());
                self.in_favour = fates.live().filter(|rank| self.is_in_favour(*rank)).count();
                published.push(Publish::Ballot(ballot));
            }
            self.decided().into_iter().for_each(|decision| self.decide(decision));
        }
        if self.is_needed {
            published.extend(self.leave().map(Publish::Decision));
        }
        published
    }

    /// The decision.
    pub(crate) fn decision(&self) -> Option<&Ballot> {
        self.decision.as_ref()
    }

    /// The live ranks that have published no ballot for the live ranks of `fates`.
    pub(crate) fn awaited(&self, fates: &Fates) -> Vec<GroupRank> {
        let has_voted = |rank: &GroupRank| {
            self.ballots[rank.index()].as_ref().is_some_and(|ballot| ballot.fates.have_same_live(fates))
        };
        fates.live().filter(|rank| !has_voted(rank)).collect()
    }

    /// The combined ballots for our own set, once every rank outside it has published one. Every rank that decides for
    /// this set gets the same: no rank publishes two ballots for one set.
    fn decided(&self) -> Option<Ballot> {
        let ours = self.ballots[self.rank.index()].as_ref()?;
        // Counted, since most ballots come before the last one.
        if self.in_favour < ours.fates.live_count() {
            return None;
        }
        let mut all = ours.clone();
        for rank in ours.fates.live() {
            let ballot = self.ballots[rank.index()].as_ref()?;
            all.flag &= ballot.flag;
            all.finished_calls = all.finished_calls.min(ballot.finished_calls);
            // A rank that has proof that another is gone knows more than a rank that only misses it.
            ballot.fates.with(Fate::Gone).for_each(|rank| all.fates.note(rank, Fate::Gone));
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: GroupRank = GroupRank::new(1);

    fn ballot(ranks: u32, gone: &[u32], finished_calls: u64) -> Ballot {
        let mut fates = Fates::all_live(ranks);
        gone.iter().for_each(|rank| fates.note(GroupRank::new(*rank), Fate::Gone));
        Ballot { flag: true, finished_calls, fates }
    }

    #[test]
    fn a_decision_is_published_once_another_rank_needs_it() {
        let live = Fates::all_live(3);
        let mut agreement = Agreement::new(GroupRank::new(0), 3);
        agreement.join(true, 4);
        agreement.on_ballot(OTHER, ballot(3, &[], 5));
        assert_eq!(agreement.step(&live, true), [Publish::Ballot(ballot(3, &[], 4))]);
        agreement.on_ballot(GroupRank::new(2), ballot(3, &[], 5));
        assert!(agreement.step(&live, true).is_empty() && agreement.decision().is_some());
        agreement.on_ballot(OTHER, ballot(3, &[], 5));
        assert!(agreement.step(&live, true).is_empty(), "it decides by itself");
        agreement.on_ballot(OTHER, ballot(3, &[2], 5));
        assert_eq!(agreement.step(&live, true), [Publish::Decision(ballot(3, &[], 4))]);
        assert!(agreement.step(&live, true).is_empty() && agreement.leave().is_none(), "once");
        assert!(agreement.step(&ballot(3, &[2], 0).fates, true).is_empty(), "who has decided votes no more");
        let mut late = Agreement::new(GroupRank::new(0), 3);
        late.on_ballot(OTHER, ballot(3, &[2], 5));
        late.on_decision(ballot(3, &[], 4));
        assert_eq!(late.step(&live, true), [Publish::Decision(ballot(3, &[], 4))], "needed before it came");
    }

    #[test]
    fn ballots_for_other_survivors_decide_nothing_and_one_proof_is_enough() {
        let mut agreement = Agreement::new(GroupRank::new(0), 3);
        agreement.join(true, 4);
        agreement.on_ballot(OTHER, ballot(3, &[2], 3));
        agreement.on_ballot(GroupRank::new(2), ballot(3, &[], 5));
        let live = Fates::all_live(3);
        agreement.step(&live, true);
        assert!(agreement.decision().is_none(), "rank 1 has voted for others");
        assert_eq!(agreement.awaited(&live), [OTHER], "the error of a deadline names it");
        let mut fates = Fates::all_live(3);
        fates.note(GroupRank::new(2), Fate::Unproven);
        agreement.step(&fates, true);
        assert_eq!(agreement.decision(), Some(&ballot(3, &[2], 3)));
    }

    #[test]
    fn the_first_decision_for_this_group_stays() {
        let mut agreement = Agreement::new(GroupRank::new(0), 2);
        agreement.on_decision(ballot(3, &[], 1));
        assert!(agreement.decision().is_none(), "of another group");
        [2, 3].into_iter().for_each(|calls| agreement.on_decision(ballot(2, &[], calls)));
        assert_eq!(agreement.decision(), Some(&ballot(2, &[], 2)));
    }

    /// The proof at the top of this file counts on that. And every later step would combine all ballots again.
    #[test]
    fn a_rank_with_a_decision_publishes_no_ballot_and_keeps_it() {
        let (live, mut agreement) = (Fates::all_live(2), Agreement::new(GroupRank::new(0), 2));
        agreement.on_decision(ballot(2, &[], 3));
        agreement.join(true, 4);
        agreement.on_ballot(OTHER, ballot(2, &[], 5));
        assert_eq!(agreement.step(&live, true), []);
        assert_eq!(agreement.decision(), Some(&ballot(2, &[], 3)));
    }

    /// It answers no ballots from then on, and a rank whose set grows later would have nobody to learn it from.
    #[test]
    fn a_rank_that_leaves_publishes_a_decision_that_nobody_needs_yet() {
        let (live, mut agreement) = (Fates::all_live(2), Agreement::new(GroupRank::new(0), 2));
        agreement.join(true, 4);
        agreement.step(&live, true);
        assert_eq!(agreement.leave(), None, "there is none");
        agreement.on_ballot(OTHER, ballot(2, &[], 5));
        assert!(agreement.step(&live, true).is_empty() && agreement.decision().is_some());
        assert_eq!(agreement.leave(), Some(ballot(2, &[], 4)));
        assert_eq!(agreement.leave(), None, "once");
    }
}
