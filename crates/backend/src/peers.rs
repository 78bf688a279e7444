//! The other ranks as errors name them: number, process, and the last call in which something arrived.

use std::sync::Arc;

use unisono_communicator::{CallInfo, Certainty, Culprit, Error, Group, GroupRank, JobRank};

use crate::board::{AnswerPlace, Board, NextPlace};
use crate::status::{Asked, CommunicatorKey};

/// The ranks of one communicator, as errors name them.
#[derive(Clone)]
pub struct Peers {
    group: Group,
    board: Arc<Board>,
}

impl Peers {
    /// The ranks of `group`. This rank's calls are on `board`.
    pub fn new(group: Group, board: Arc<Board>) -> Peers {
        board.set_ranks(group.job_ranks());
        Peers { group, board }
    }

    /// The communicator.
    pub(crate) fn key(&self) -> CommunicatorKey {
        CommunicatorKey { id: self.group.id(), epoch: self.group.epoch() }
    }

    /// The question to a rank of this communicator about a collective. While this rank is not in that collective, it
    /// awaits a message.
    ///
    /// # Panics
    /// If the group has no such rank.
    pub fn asked(&self, rank: GroupRank, number: u64) -> Asked {
        let (calls, progress) = (self.board.calls(), self.board.progress());
        let is_in_it = number < calls.entered() && number >= progress.finished();
        let (rank, communicator) = (self.group.job_rank(rank), self.key());
        Asked { rank, communicator, number, is_message: !is_in_it }
    }

    /// The place of a question.
    pub(crate) fn place(&self, asked: Asked) -> NextPlace {
        let Asked { rank, communicator, number, is_message } = asked;
        let own = self.group.group_rank_of(rank).filter(|_| communicator == self.key());
        let place = own.map_or(AnswerPlace::Elsewhere(rank, communicator), AnswerPlace::Here);
        NextPlace { place, number, is_message }
    }

    /// The group, with this rank's place in it.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The board of this rank's calls.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// A lost rank as errors name it.
    fn culprit(&self, peer: GroupRank) -> Culprit {
        let rank = self.group.job_rank(peer);
        // The lost rank's header equals ours, so it made the same call. Its line and its sizes are not known.
        let last_call = self.board.heard().last(peer).and_then(|number| self.board.calls().info(number));
        let last_call = last_call.map(|call| Box::new(CallInfo { site: None, sizes: None, ..call }));
        Culprit { rank, process: self.group.process(rank).cloned(), last_call }
    }

    /// The loss of `peer`, which `reported_by` noticed first.
    ///
    /// # Panics
    /// If the group has no such rank.
    pub fn lost(
        &self,
        peer: GroupRank,
        reported_by: JobRank,
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

    /// The failure of a call that needs one of these ranks, which have all left in good order.
    ///
    /// # Panics
    /// If the group has no such rank.
    pub fn all_left(&self, peers: &[GroupRank]) -> Error {
        Error::PeerLost {
            culprits: peers.iter().map(|peer| self.culprit(*peer)).collect(),
            call: None,
            reported_by: self.group.own_job_rank(),
            certainty: Certainty::Confirmed,
            evidence: "every other rank has closed the communicator".to_owned(),
        }
    }

    /// As [`Peers::lost`], noticed by this rank at the end of a connection.
    pub fn disconnected(&self, peer: GroupRank, evidence: String, call: Option<CallInfo>) -> Error {
        self.lost(peer, self.group.own_job_rank(), Certainty::Confirmed, evidence, call)
    }

    /// The error for bytes from `peer` that changed on their way to this rank.
    pub fn corrupted(&self, peer: GroupRank, reason: String, call: Option<CallInfo>) -> Error {
        let (from, to) = (self.group.job_rank(peer), self.group.own_job_rank());
        Error::Corrupted { from, to, call: call.map(Box::new), reason }
    }
}

#[cfg(test)]
mod tests {
    use unisono_communicator::{Collective, DType, Descriptor, Process, Site};

    use super::*;

    #[test]
    fn a_culprit_has_a_process_and_a_last_call() {
        let own = GroupRank::new(0);
        let group = Group::new(own, [5, 3].map(JobRank::new).into(), [0; 2].into(), 0);
        let process = |pid| Process { host: "node".into(), pid };
        let group = group.with_processes((100..106).map(process).collect());
        let (peer, board) = (GroupRank::new(1), Arc::new(Board::new(own, 2)));
        let peers = Peers::new(group, board.clone());
        let text = |error: &Error| error.to_string();
        let lost = || peers.lost(peer, JobRank::new(5), Certainty::Confirmed, "it ended".to_owned(), None);
        assert!(text(&lost()).contains("lost rank 3 (pid 103 on node), reported by rank 5"), "{}", lost());
        for count in [7, 8] {
            board.calls().enter(
                &Descriptor::new(Collective::AllGather, DType::U8, count),
                None,
                None,
                Site::caller(),
                None,
            );
        }
        board.heard().note(peer, 0);
        let Error::PeerLost { culprits, .. } = lost() else { panic!("not a loss") };
        let call = culprits[0].last_call.as_ref().unwrap();
        assert_eq!((call.number, call.descriptor.count, &call.site), (0, 7, &None));
        assert!(text(&lost()).contains("last heard of in call 0"), "{}", lost());
    }
}
