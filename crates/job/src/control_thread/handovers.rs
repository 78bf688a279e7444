//! Connections for messages on their way to engines, and the ranks that have left meanwhile. An engine has all messages
//! of a rank that has left once it has every connection from that rank.
//!
//! A rank has a connection only after the control thread of the other side has begun to make it too. So when the news
//! of a departure comes, every connection on which the rank may have sent is under way here, or was handed over.

use std::collections::{BTreeMap, BTreeSet};

use unisono_control::slots::Slot;
use unisono_control::wire::{CommunicatorKey, ConnectionRole};

/// The connections for messages that are under way.
#[derive(Default)]
pub(super) struct Handovers {
    under_way: BTreeMap<Slot, usize>,
    /// The slots of ranks that have left, until their connections are complete.
    left: BTreeSet<Slot>,
}

impl Handovers {
    /// A connection is being made, and both sides know each other.
    pub(super) fn begin(&mut self, slot: Slot) {
        if slot.role == ConnectionRole::PointToPoint {
            *self.under_way.entry(slot).or_default() += 1;
        }
    }

    /// It was handed over, or will never come.
    pub(super) fn end(&mut self, slot: Slot) {
        if let Some(count) = self.under_way.get_mut(&slot) {
            *count -= 1;
            if *count == 0 {
                self.under_way.remove(&slot);
            }
        }
    }

    /// The communicator is gone.
    pub(super) fn forget(&mut self, key: CommunicatorKey) {
        self.under_way.retain(|slot, _| slot.key != key);
        self.left.retain(|slot| slot.key != key);
    }

    /// The rank of this slot has left.
    pub(super) fn leave(&mut self, slot: Slot) {
        self.left.insert(slot);
    }

    /// The slots of ranks that have left and from which no connection is under way, each once.
    pub(super) fn take_complete(&mut self) -> Vec<Slot> {
        let is_complete = |slot: &&Slot| !self.under_way.contains_key(slot);
        let complete: Vec<Slot> = self.left.iter().filter(is_complete).copied().collect();
        complete.iter().for_each(|slot| {
            self.left.remove(slot);
        });
        complete
    }
}

#[cfg(test)]
mod tests {
    use unisono_communicator::JobRank;

    use super::*;

    const KEY: CommunicatorKey = CommunicatorKey { id: 3, epoch: 0 };
    const SLOT: Slot = Slot { key: KEY, role: ConnectionRole::PointToPoint, peer: JobRank::new(1) };

    #[test]
    fn a_rank_is_complete_when_its_last_connection_has_come() {
        let mut handovers = Handovers::default();
        let other = Slot { peer: JobRank::new(2), ..SLOT };
        handovers.begin(SLOT);
        // Both sides have dialled.
        handovers.begin(SLOT);
        handovers.leave(SLOT);
        handovers.leave(other);
        assert_eq!(handovers.take_complete(), [other]);
        handovers.end(SLOT);
        assert_eq!(handovers.take_complete(), []);
        handovers.end(SLOT);
        assert_eq!(handovers.take_complete(), [SLOT]);
        assert_eq!(handovers.take_complete(), []);
    }

    #[test]
    fn connections_for_collectives_do_not_count_and_a_dropped_communicator_is_forgotten() {
        let mut handovers = Handovers::default();
        let first = Slot { role: ConnectionRole::First, ..SLOT };
        handovers.begin(first);
        handovers.end(first);
        assert!(handovers.under_way.is_empty());
        handovers.begin(SLOT);
        handovers.leave(SLOT);
        handovers.forget(KEY);
        // The task of a dropped communicator still ends.
        handovers.end(SLOT);
        assert!(handovers.take_complete().is_empty() && handovers.under_way.is_empty());
    }
}
