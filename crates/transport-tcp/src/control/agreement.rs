//! How the survivors of a communicator agree: on a flag, on who is left, on the calls that all of them have finished.
//! Pure: ballots and news in, ballots and decisions out.
//!
//! Every rank publishes a ballot for the set of ranks that it takes for gone, and another one whenever that set
//! grows. A rank that holds ballots for its own set from everybody outside that set decides, and publishes the
//! decision; whoever hears a decision before it has decided takes it over, and publishes it too.
//!
//! Why no two survivors decide differently, if news of an origin that a rank takes for gone is not heard by it (the
//! plane sees to that), and sets only grow: say B decides for set L by ballots. Every rank X outside L has then
//! published a ballot for L. If X had taken over another decision before, it would not have voted, and B not decided.
//! If X takes over a decision afterwards, it is of a rank Y outside X's set, so outside L; Y too had voted for L, and
//! can only have decided for a larger set by the ballot of B, who votes no more. So X decides for L. Ranks inside L
//! are gone, and who is not but is taken for it is told so, and has no say any more.
//!
//! Source: reduced from T. Herault et al., "Practical scalable consensus for pseudo-synchronous distributed systems"
//! (SC 2015), with floods in place of its tree: fewer rounds, more messages, for jobs of up to some thousand ranks.

use crate::wire::{Ballot, Fate};

impl Ballot {
    /// The ranks that take part, ascending.
    pub(crate) fn survivors(&self) -> Vec<u32> {
        self.with(Fate::Live).collect()
    }

    fn with(&self, wanted: Fate) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.fates).filter(move |(_, fate)| **fate == wanted).map(|(rank, _)| rank)
    }

    /// Whether two ballots take the same ranks for gone, however surely.
    fn has_same_live(&self, other: &Ballot) -> bool {
        self.fates.len() == other.fates.len()
            && self.fates.iter().zip(&other.fates).all(|(a, b)| (*a == Fate::Live) == (*b == Fate::Live))
    }

    /// The ranks that may be cut off, if there are so many that they may be the ones who go on: as many as the
    /// survivors, of whom those with the lowest rank of all stay. A cut separates hosts, so a lost rank on the host of
    /// a survivor is stopped, not cut off.
    pub(crate) fn rivals(&self, hosts: &[u32]) -> Option<Vec<u32>> {
        let survivors = self.survivors();
        let may_be_cut_off = |lost: &u32| {
            let host = hosts.get(*lost as usize);
            !survivors.iter().any(|&survivor| hosts.get(survivor as usize) == host)
        };
        let rivals: Vec<u32> = self.with(Fate::Unproven).filter(may_be_cut_off).collect();
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
    /// What we say, once this rank has been asked.
    own: Option<(bool, u64)>,
    /// The last ballot of every rank, ours included.
    ballots: Vec<Option<Ballot>>,
    decision: Option<Ballot>,
    is_published: bool,
    rank: u32,
}

impl Agreement {
    /// Nobody has said anything yet.
    pub(crate) fn new(rank: u32, ranks: u32) -> Agreement {
        Agreement {
            own: None,
            ballots: vec![None; ranks as usize],
            decision: None,
            is_published: false,
            rank,
        }
    }

    /// This rank takes part from now on. What it has said once stays.
    pub(crate) fn join(&mut self, flag: bool, finished_calls: u64) {
        self.own.get_or_insert((flag, finished_calls));
    }

    /// A rank has published its ballot.
    pub(crate) fn on_ballot(&mut self, from: u32, ballot: Ballot) {
        if let Some(last) = self.ballots.get_mut(from as usize).filter(|_| from != self.rank) {
            *last = Some(ballot);
        }
    }

    /// A rank has published a decision.
    pub(crate) fn on_decision(&mut self, decision: Ballot) {
        if decision.fates.len() == self.ballots.len() {
            self.decision.get_or_insert(decision);
        }
    }

    /// What is to be published now that `fates` are what we know.
    pub(crate) fn step(&mut self, fates: &[Fate]) -> Vec<Publish> {
        let mut published = Vec::new();
        if let Some((flag, finished_calls)) = self.own.filter(|_| self.decision.is_none()) {
            let ballot = Ballot { flag, finished_calls, fates: fates.to_vec() };
            let last = &mut self.ballots[self.rank as usize];
            if !last.as_ref().is_some_and(|last| last.has_same_live(&ballot)) {
                *last = Some(ballot.clone());
                published.push(Publish::Ballot(ballot));
            }
            self.decision = self.decided();
        }
        // Also one that was taken over, and before this rank is asked: others may wait for our ballot.
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
    pub(crate) fn awaited(&self, fates: &[Fate]) -> Vec<u32> {
        let is_missing = |rank: &u32| self.ballots[*rank as usize].is_none();
        let live = (0u32..).zip(fates).filter(|(_, fate)| **fate == Fate::Live).map(|(rank, _)| rank);
        live.filter(is_missing).collect()
    }

    /// All ballots for our own set together, once everybody outside it has cast one. The same on every rank that
    /// decides for this set: nobody casts two ballots for one set.
    fn decided(&self) -> Option<Ballot> {
        let ours = self.ballots[self.rank as usize].as_ref()?;
        let mut all = ours.clone();
        for rank in ours.survivors() {
            let ballot = self.ballots[rank as usize].as_ref().filter(|ballot| ballot.has_same_live(ours))?;
            all.flag &= ballot.flag;
            all.finished_calls = all.finished_calls.min(ballot.finished_calls);
            // Somebody who knows that a rank is gone knows more than one who misses it.
            for (fate, theirs) in all.fates.iter_mut().zip(&ballot.fates) {
                if *theirs == Fate::Gone {
                    *fate = Fate::Gone;
                }
            }
        }
        Some(all)
    }
}
