//! The communicators that this rank has left without `close`: the reports of ranks that leave are compared, since a
//! broadcast from two roots shares no message and shows in nothing else.

use std::collections::VecDeque;

use unisono_backend::{Board, CallHistory, Peers, RankHistory, history_difference};
use unisono_communicator::{Error, JobRank};

use crate::wire::{CommunicatorKey, Departure, News, Topic};

/// More are not remembered: the oldest is forgotten. A board takes tens of kilobytes.
const REMEMBERED_MAX: usize = 64;

/// One of them.
struct LeftCommunicator {
    key: CommunicatorKey,
    peers: Peers,
    ours: CallHistory,
    /// Per group rank: how it has left, if it has.
    others: Vec<Option<Box<Departure>>>,
}

impl LeftCommunicator {
    /// The first rank that has left after other calls than this one.
    fn difference(&self) -> Option<Error> {
        let said = self.peers.group().job_ranks().iter().zip(&self.others);
        let mut said = said.filter_map(|(rank, said)| Some((*rank, said.as_ref()?)));
        said.find_map(|(rank, said)| self.difference_from(rank, said))
    }

    fn difference_from(&self, rank: JobRank, said: &Departure) -> Option<Error> {
        let other = RankHistory { rank, history: said.history, last: said.last.as_ref() };
        history_difference(&self.peers, self.ours, &other, "leave")
    }

    /// Whether all ranks have left after the same calls.
    fn is_settled(&self) -> bool {
        let own = self.peers.group().own_rank().index();
        let has_left = |(rank, said): (usize, &Option<Box<Departure>>)| rank == own || said.is_some();
        self.others.iter().enumerate().all(has_left) && self.difference().is_none()
    }
}

/// The communicators of one rank that it has left so.
#[derive(Default)]
pub struct LeftCommunicators {
    /// The oldest first; without communicators in which all ranks have made the same calls.
    open: VecDeque<LeftCommunicator>,
    unread: u64,
    calls_failed: u64,
    has_failed: bool,
}

impl LeftCommunicators {
    /// Counts the unread messages and failed calls of a communicator that has been dropped.
    pub(super) fn count(&mut self, board: &Board) {
        self.has_failed |= board.first_cause().is_revoked();
        self.unread += board.unfinished().unread();
        self.calls_failed += board.unfinished().failed();
    }

    /// This rank has left `key` after its calls `ours`; `others` have left before. After a failure ranks may have made
    /// different calls: that is no mismatch.
    pub(super) fn add(
        &mut self,
        key: CommunicatorKey,
        peers: Peers,
        ours: CallHistory,
        others: Vec<Option<Box<Departure>>>,
    ) {
        let left = LeftCommunicator { key, peers, ours, others };
        if left.peers.board().first_cause().is_revoked() || left.is_settled() {
            return;
        }
        if self.open.len() == REMEMBERED_MAX {
            self.open.pop_front();
        }
        self.open.push_back(left);
    }

    /// Notes who has left.
    pub(super) fn happened(&mut self, news: &News) {
        match &news.topic {
            Topic::Closed { key, departure, .. } => {
                let Some(at) = self.open.iter().position(|left| left.key == *key) else { return };
                let left = &mut self.open[at];
                if let Some(rank) = left.peers.group().group_rank_of(news.origin) {
                    left.others[rank.index()] = Some(Box::new(departure.clone()));
                }
                if left.is_settled() {
                    self.open.remove(at);
                }
            }
            Topic::Revoked { key, .. } => self.open.retain(|left| left.key != *key),
            Topic::Lost { rank, .. } => {
                self.open.retain(|left| left.peers.group().group_rank_of(*rank).is_none());
            }
            Topic::Goodbye | Topic::Ballot { .. } | Topic::Decision { .. } => {}
        }
    }

    /// Whether the goodbyes of other ranks may still show a difference.
    pub fn are_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// The communicators in which ranks have left after different calls, with both calls.
    pub fn differences(&self) -> impl Iterator<Item = (CommunicatorKey, Error)> {
        self.open.iter().filter_map(|left| Some((left.key, left.difference()?)))
    }

    /// The number of messages in dropped communicators that nobody has received.
    pub(super) fn unread(&self) -> u64 {
        self.unread
    }

    /// The number of started calls that have failed in dropped communicators.
    pub(super) fn calls_failed(&self) -> u64 {
        self.calls_failed
    }

    /// Whether one was revoked before it was dropped.
    pub(super) fn have_failed(&self) -> bool {
        self.has_failed
    }
}
