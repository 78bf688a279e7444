//! The fates of all ranks of a communicator. Most ranks live, so only the others are listed: each rank keeps a ballot
//! of every rank.

use std::collections::BTreeMap;

use unisono_communicator::GroupRank;

/// Why a rank takes no part any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It has said goodbye, or a rank on its own host has seen that it is gone.
    Gone,
    /// It is lost, and no rank on its own host has seen why: it may live on the other side of a network partition.
    Unproven,
}

/// The fates of all ranks of a communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fates {
    ranks: u32,
    others: BTreeMap<GroupRank, Fate>,
}

impl Fates {
    /// All of so many ranks live.
    pub fn all_live(ranks: u32) -> Fates {
        Fates { ranks, others: BTreeMap::new() }
    }

    /// The number of ranks, live or not.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Why a rank takes no part any more, if that is so. A rank that the communicator does not have lives.
    pub fn get(&self, rank: GroupRank) -> Option<Fate> {
        self.others.get(&rank).copied()
    }

    /// Whether a rank takes part.
    pub fn is_live(&self, rank: GroupRank) -> bool {
        self.get(rank).is_none()
    }

    /// Notes the fate of a rank. A rank whose end is proven stays gone.
    pub fn note(&mut self, rank: GroupRank, fate: Fate) {
        if rank.get() < self.ranks && self.get(rank) != Some(Fate::Gone) {
            self.others.insert(rank, fate);
        }
    }

    /// The number of ranks that live.
    pub fn live_count(&self) -> usize {
        self.ranks as usize - self.others.len()
    }

    /// The ranks that live, ascending.
    pub fn live(&self) -> impl Iterator<Item = GroupRank> {
        GroupRank::all(self.ranks).filter(|rank| self.is_live(*rank))
    }

    /// The ranks with this fate, ascending.
    pub fn with(&self, wanted: Fate) -> impl Iterator<Item = GroupRank> {
        self.others.iter().filter(move |(_, fate)| **fate == wanted).map(|(rank, _)| *rank)
    }

    /// Whether the same ranks live.
    pub fn have_same_live(&self, other: &Fates) -> bool {
        self.others.keys().eq(other.others.keys())
    }

    /// Whether a rank lives in `other` and not in these.
    pub fn miss_one_of(&self, other: &Fates) -> bool {
        self.others.keys().any(|rank| other.is_live(*rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_stays_and_ranks_of_other_groups_are_not_noted() {
        let (one, unknown) = (GroupRank::new(1), GroupRank::new(2));
        let mut fates = Fates::all_live(2);
        [Fate::Unproven, Fate::Gone, Fate::Unproven].into_iter().for_each(|fate| fates.note(one, fate));
        fates.note(unknown, Fate::Gone);
        assert_eq!((fates.get(one), fates.get(unknown), fates.live_count()), (Some(Fate::Gone), None, 1));
    }
}
