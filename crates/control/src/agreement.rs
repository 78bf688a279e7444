//! How the survivors of a communicator agree: on a flag, on the ranks that are left, on the calls that all of them have
//! finished. Pure: ballots and news in, ballots and decisions out.
//!
//! Every rank publishes a ballot for the set of ranks that it counts as gone, and another one whenever that set grows.
//! A rank that holds ballots for its own set from every rank outside that set decides, and publishes the decision. A
//! rank that receives a decision before it has decided adopts it, and publishes it too.
//!
//! Why no two survivors decide differently. It holds that sets only grow, and that a rank ignores news whose origin it
//! counts as gone (the plane sees to that). Say B decides for set L by ballots. Then every rank X outside L has
//! published a ballot for L. If X had adopted another decision before, it would not have published that ballot, and B
//! would not have decided. If X adopts a decision afterwards, it is the decision of a rank Y outside X's set, so
//! outside L. Y too has published a ballot for L, so Y has decided for L or for a larger set. For a larger set it
//! needed another ballot of B, but B has decided and publishes no more. So X decides for L. A rank inside L is gone; or
//! it lives, is told that it counts as gone, and takes part no more.
//!
//! Source: reduced from T. Herault et al., "Practical scalable consensus for pseudo-synchronous distributed systems"
//! (SC 2015), with floods in place of its tree: fewer rounds, more messages, for jobs of up to some thousand ranks.

use unisono_communicator::GroupRank;

use crate::wire::{Ballot, Fate};

impl Ballot {
    /// The ranks that take part, ascending.
    pub(crate) fn survivors(&self) -> Vec<GroupRank> {
        self.with(Fate::Live).collect()
    }

    fn with(&self, wanted: Fate) -> impl Iterator<Item = GroupRank> {
        GroupRank::all(self.fates.len() as u32)
            .zip(&self.fates)
            .filter(move |(_, fate)| **fate == wanted)
            .map(|(rank, _)| rank)
    }

    /// Whether two ballots count the same ranks as gone, with or without proof.
    fn has_same_live(&self, other: &Ballot) -> bool {
        self.fates.len() == other.fates.len()
            && self.fates.iter().zip(&other.fates).all(|(a, b)| (*a == Fate::Live) == (*b == Fate::Live))
    }

    /// The lost ranks that may live on the other side of a network partition, if that side may go on instead of this
    /// one: they are more than the survivors, or as many, and the lowest rank is among them. A partition separates
    /// hosts, so a lost rank on the host of a survivor has stopped.
    pub(crate) fn rivals(&self, hosts: &[u32]) -> Option<Vec<GroupRank>> {
        let survivors = self.survivors();
        let may_be_cut_off = |lost: &GroupRank| {
            let host = hosts.get(lost.index());
            !survivors.iter().any(|&survivor| hosts.get(survivor.index()) == host)
        };
        let rivals: Vec<GroupRank> = self.with(Fate::Unproven).filter(may_be_cut_off).collect();
        let outnumber = rivals.len() > survivors.len();
        let draw = rivals.len() == survivors.len() && rivals.first() < survivors.first();
        (outnumber || draw).then_some(rivals)
    }
}

/// What is to be published.
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
    decision: Option<Ballot>,
    is_published: bool,
    rank: GroupRank,
}

impl Agreement {
    /// An agreement without any ballot yet.
    pub(crate) fn new(rank: GroupRank, ranks: u32) -> Agreement {
        Agreement {
            own: None,
            ballots: vec![None; ranks as usize],
            decision: None,
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
        if let Some(last) = self.ballots.get_mut(from.index()).filter(|_| from != self.rank) {
            *last = Some(ballot);
        }
    }

    /// A rank has published a decision.
    pub(crate) fn on_decision(&mut self, decision: Ballot) {
        if decision.fates.len() == self.ballots.len() {
            self.decision.get_or_insert(decision);
        }
    }

    /// What is to be published, given these `fates`.
    pub(crate) fn step(&mut self, fates: &[Fate]) -> Vec<Publish> {
        let mut published = Vec::new();
        if let Some((flag, finished_calls)) = self.own.filter(|_| self.decision.is_none()) {
            let ballot = Ballot { flag, finished_calls, fates: fates.to_vec() };
            let last = &mut self.ballots[self.rank.index()];
            if !last.as_ref().is_some_and(|last| last.has_same_live(&ballot)) {
                *last = Some(ballot.clone());
                published.push(Publish::Ballot(ballot));
            }
            self.decision = self.decided();
        }
        // A decision that was adopted too, and before this rank's caller asks: others may wait for our ballot.
        if let Some(decision) = self.decision.as_ref().filter(|_| !self.is_published) {
            self.is_published = true;
            published.push(Publish::Decision(decision.clone()));
        }
        published
    }

    /// What was decided.
    pub(crate) fn decision(&self) -> Option<&Ballot> {
        self.decision.as_ref()
    }

    /// The live ranks whose ballot is missing.
    pub(crate) fn awaited(&self, fates: &[Fate]) -> Vec<GroupRank> {
        let is_missing = |rank: &GroupRank| self.ballots[rank.index()].is_none();
        let all = GroupRank::all(fates.len() as u32);
        let live = all.zip(fates).filter(|(_, fate)| **fate == Fate::Live).map(|(rank, _)| rank);
        live.filter(is_missing).collect()
    }

    /// The combined ballots for our own set, once every rank outside it has published one. Every rank that decides for
    /// this set gets the same: no rank publishes two ballots for one set.
    fn decided(&self) -> Option<Ballot> {
        let ours = self.ballots[self.rank.index()].as_ref()?;
        let mut all = ours.clone();
        for rank in ours.survivors() {
            let ballot = self.ballots[rank.index()].as_ref().filter(|ballot| ballot.has_same_live(ours))?;
            all.flag &= ballot.flag;
            all.finished_calls = all.finished_calls.min(ballot.finished_calls);
            // A rank that has proof that another is gone knows more than a rank that only misses it.
            for (fate, theirs) in all.fates.iter_mut().zip(&ballot.fates) {
                if *theirs == Fate::Gone {
                    *fate = Fate::Gone;
                }
            }
        }
        Some(all)
    }
}
