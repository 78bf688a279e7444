//! What errors say of the other ranks: who they are, and the last call in which they were heard of.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use unisono_communicator::{CallInfo, Certainty, Culprit, Error, Group};

use crate::board::Board;

/// The last collective in which something of each rank has arrived. The engine writes it, the control plane reads it.
#[derive(Clone, Debug)]
pub struct Heard {
    /// By group rank; a number is kept plus one, 0 stands for none.
    calls: Arc<[AtomicU64]>,
}

impl Heard {
    /// Nobody has been heard of.
    pub fn new(ranks: u32) -> Heard {
        Heard { calls: (0..ranks).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The header of call `number` has come from `peer`, and is ours.
    #[inline]
    pub fn note(&self, peer: u32, number: u64) {
        self.calls[peer as usize].store(number + 1, Ordering::Relaxed);
    }

    fn last(&self, peer: u32) -> Option<u64> {
        self.calls.get(peer as usize)?.load(Ordering::Relaxed).checked_sub(1)
    }
}

/// The ranks of one communicator, as its errors name them.
#[derive(Clone)]
pub struct Peers {
    group: Group,
    board: Arc<Board>,
}

impl Peers {
    /// The ranks of `group`, of whose calls `board` tells.
    pub fn new(group: Group, board: Arc<Board>) -> Peers {
        Peers { group, board }
    }

    /// Who they are, and who we are among them.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The rank in the job of a group rank.
    fn global(&self, rank: u32) -> u32 {
        self.group.global_ranks()[rank as usize]
    }

    /// A group rank that is gone.
    fn culprit(&self, peer: u32) -> Culprit {
        let rank = self.global(peer);
        // Its header was equal to ours, so our memory of that call is one of theirs, but for where it was issued.
        let last_call = self.board.heard().last(peer).and_then(|number| self.board.call_info(number));
        let last_call = last_call.map(|call| Box::new(CallInfo { site: None, sizes: None, ..call }));
        Culprit { rank, process: self.group.process(rank).cloned(), last_call }
    }

    /// The loss of the group rank `peer`, which the rank of the job `reported_by` noticed first.
    ///
    /// # Panics
    /// When there is no such rank in the group.
    pub fn lost(
        &self,
        peer: u32,
        reported_by: u32,
        certainty: Certainty,
        evidence: String,
        call: Option<CallInfo>,
    ) -> Error {
        Error::PeerLost {
            culprits: vec![self.culprit(peer)],
            call: call.map(Box::new),
            reported_by,
            certainty,
            evidence,
        }
    }

    /// The same, noticed here by the end of a connection.
    pub fn disconnected(&self, peer: u32, evidence: String, call: Option<CallInfo>) -> Error {
        self.lost(peer, self.global(self.group.rank()), Certainty::Confirmed, evidence, call)
    }

    /// Bytes from the group rank `peer` were changed on their way here.
    pub fn corrupted(&self, peer: u32, reason: String, call: Option<CallInfo>) -> Error {
        let (from, to) = (self.global(peer), self.global(self.group.rank()));
        Error::Corrupted { from, to, call: call.map(Box::new), reason }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use unisono_communicator::{Collective, DType, Descriptor, Process};

    use super::*;

    #[test]
    fn a_culprit_has_a_process_and_a_last_call() {
        let group = Group::new(0, [5, 3].into(), [0; 2].into(), 0);
        let process = |pid| Process { host: "node".into(), pid };
        let group = group.with_processes((100..106).map(process).collect());
        let board = Arc::new(Board::new(0, 2));
        let peers = Peers::new(group, board.clone());
        let text = |error: &Error| error.to_string();
        let lost = || peers.lost(1, 5, Certainty::Confirmed, "it ended".to_owned(), None);
        assert!(text(&lost()).contains("lost rank 3 (pid 103 on node), reported by rank 5"), "{}", lost());
        for count in [7, 8] {
            board.enter(
                &Descriptor::new(Collective::AllGather, DType::U8, count),
                None,
                None,
                Location::caller(),
            );
        }
        board.heard().note(1, 0);
        let Error::PeerLost { culprits, .. } = lost() else { panic!("not a loss") };
        let call = culprits[0].last_call.as_ref().unwrap();
        assert_eq!((call.number, call.descriptor.count, &call.site), (0, 7, &None));
        assert!(text(&lost()).contains("last heard of in call 0"), "{}", lost());
    }
}
