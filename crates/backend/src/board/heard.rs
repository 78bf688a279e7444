//! For each rank, the last call in which something arrived from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use unisono_communicator::GroupRank;

/// For each rank, the last collective in which something arrived from it. The engine writes it; the control plane reads
/// it.
#[derive(Clone, Debug)]
pub struct Heard {
    /// By group rank: the number of the call plus one, or 0 for none.
    calls: Arc<[AtomicU64]>,
}

impl Heard {
    /// The state before anything has arrived.
    pub fn new(ranks: u32) -> Heard {
        Heard { calls: (0..ranks).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Notes that the header of call `number` has arrived from `peer` and equals ours.
    #[inline]
    pub fn note(&self, peer: GroupRank, number: u64) {
        self.calls[peer.index()].store(number + 1, Ordering::Relaxed);
    }

    /// Whether something has arrived in call `number` or a later one. Cost: looks at every rank.
    pub fn has_anything_of(&self, number: u64) -> bool {
        self.calls.iter().any(|call| call.load(Ordering::Relaxed) > number)
    }

    /// The last call in which something arrived from `peer`.
    pub(crate) fn last(&self, peer: GroupRank) -> Option<u64> {
        self.calls.get(peer.index())?.load(Ordering::Relaxed).checked_sub(1)
    }
}
