//! The board of one communicator: its last calls, the rank that it waits for, and its first cause. The thread that
//! answers questions of other ranks reads it.
//!
//! | file | contents |
//! | --- | --- |
//! | `last` | the last 1,024 calls of any kind, by number |
//! | `ring` | [`CallRing`]: the last collectives, the digest of all |
//! | `progress` | [`Progress`]: numbers of returned and finished calls, and the rank that the running call waits for |
//! | `first_cause` | [`FirstCause`]: why the communicator is revoked, if it is |
//! | `messages` | [`Messages`]: the last sends and receives, and the messages without a receive |
//! | `heard` | [`Heard`]: for each rank, the last call in which something arrived from it |
//! | `on_streams` | [`OnStreams`]: the calls on streams of devices |
//! | `recording` | the calls that the communication log records, with their times |
//! | `answers` | [`Answers`]: the other ranks' answers about their calls |
//! | `closings` | [`Closings`]: the ranks that have closed, and the threads to wake for them |
//! | `unfinished` | [`Unfinished`]: counts of calls and messages that this rank has not finished |

mod answers;
mod closings;
mod first_cause;
mod heard;
mod last;
mod messages;
mod on_streams;
mod progress;
mod recording;
mod ring;
mod unfinished;

use std::sync::{Arc, Mutex, OnceLock, Weak};

use unisono_communicator::{Awaited, CallInfo, Group, GroupRank, JobRank, Peer};

pub use self::answers::Answers;
pub(crate) use self::answers::{AnswerPlace, NextPlace};
pub use self::closings::Closings;
pub use self::first_cause::{FirstCause, Revocation, begin_thread_without_callers, run_code_of_the_program};
pub use self::heard::Heard;
pub use self::last::CALLS_REMEMBERED;
pub use self::messages::{MessageWait, Messages};
pub use self::on_streams::OnStreams;
pub use self::progress::Progress;
use self::recording::CallRecords;
pub use self::recording::{Course, EnteredMessage};
pub use self::ring::CallRing;
pub use self::unfinished::Unfinished;
use crate::lock;
use crate::status::{CallStatus, Doing};

/// The state of one communicator. Its callers and the control plane share it.
pub struct Board {
    calls: CallRing,
    progress: Progress,
    first_cause: FirstCause,
    closings: Closings,
    heard: Heard,
    on_streams: OnStreams,
    messages: Messages,
    unfinished: Unfinished,
    answers: Answers,
    /// The board of the survivors, once they have gone on without the lost ranks.
    survivors: Mutex<Option<Arc<Board>>>,
    /// The board of the communicator from which this one was made, unless this one has all ranks.
    parent: OnceLock<Weak<Board>>,
    /// The ranks of the communicator, once they are known.
    ranks: OnceLock<Box<[JobRank]>>,
    /// Set when the gate is made.
    records: OnceLock<CallRecords>,
}

impl Board {
    /// The board of `rank` in a communicator of `ranks` ranks.
    pub fn new(rank: GroupRank, ranks: u32) -> Board {
        Board::with_first_cause(rank, ranks, FirstCause::default())
    }

    /// The boards of ranks that are threads of one process, in rank order. They share their first cause, so all ranks
    /// see the same cause first.
    pub fn of_threads(ranks: u32) -> Vec<Board> {
        let first = FirstCause::default();
        let board = |rank| Board::with_first_cause(rank, ranks, first.of_another_thread());
        GroupRank::all(ranks).map(board).collect()
    }

    fn with_first_cause(rank: GroupRank, ranks: u32, first_cause: FirstCause) -> Board {
        Board {
            calls: CallRing::new(),
            progress: Progress::new(),
            first_cause,
            closings: Closings::new(rank, ranks),
            heard: Heard::new(ranks),
            on_streams: OnStreams::default(),
            messages: Messages::default(),
            unfinished: Unfinished::default(),
            answers: Answers::new(rank),
            survivors: Mutex::default(),
            parent: OnceLock::new(),
            ranks: OnceLock::new(),
            records: OnceLock::new(),
        }
    }

    /// The ranks of the communicator. They never change.
    pub(crate) fn set_ranks(&self, ranks: &[JobRank]) {
        self.ranks.get_or_init(|| ranks.into());
    }

    fn job_rank(&self, rank: GroupRank) -> Option<JobRank> {
        self.ranks.get()?.get(rank.index()).copied()
    }

    /// The last collectives.
    #[inline]
    pub fn calls(&self) -> &CallRing {
        &self.calls
    }

    /// The progress of the collectives.
    #[inline]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The first cause, which revokes the communicator.
    #[inline]
    pub fn first_cause(&self) -> &FirstCause {
        &self.first_cause
    }

    /// The ranks that have closed the communicator.
    pub fn closings(&self) -> &Closings {
        &self.closings
    }

    /// The last call in which something arrived from each other rank.
    pub fn heard(&self) -> &Heard {
        &self.heard
    }

    /// The calls on streams of devices.
    pub fn on_streams(&self) -> &OnStreams {
        &self.on_streams
    }

    /// The last sends and receives. Messages and collectives have separate numbers.
    #[inline]
    pub fn messages(&self) -> &Messages {
        &self.messages
    }

    /// The calls and messages that this rank has not finished.
    pub fn unfinished(&self) -> &Unfinished {
        &self.unfinished
    }

    /// The answers of the other ranks.
    pub fn answers(&self) -> &Answers {
        &self.answers
    }

    /// This communicator was made from the communicator of `parent`.
    pub(crate) fn set_parent(&self, parent: &Arc<Board>) {
        self.parent.get_or_init(|| Arc::downgrade(parent));
    }

    fn parent(&self) -> Option<Arc<Board>> {
        self.parent.get()?.upgrade()
    }

    /// After a failure, this rank goes on in the communicator of `survivors`. So it has also survived the failures of
    /// the communicators from which this one was made.
    pub(crate) fn set_survivors(&self, survivors: &Arc<Board>) {
        *lock(&self.survivors) = Some(survivors.clone());
        for ancestor in std::iter::successors(self.parent(), |board| board.parent()) {
            if ancestor.first_cause.is_revoked() && !ancestor.is_survived() {
                *lock(&ancestor.survivors) = Some(survivors.clone());
            }
        }
    }

    /// Whether this rank has gone on after the failure of the communicator, and no later failure has ended that: the
    /// newest communicator of survivors was closed in good order, or is not revoked.
    pub fn is_survived(&self) -> bool {
        let goes_on = |board: &Arc<Board>| {
            board.closings.has_closed_here() || !board.first_cause.is_revoked() || board.is_survived()
        };
        lock(&self.survivors).as_ref().is_some_and(goes_on)
    }

    /// Says of the ranks that have left that they have, in place of their last answers.
    pub fn tell_left(&self, group: &Group, list: &mut [Awaited]) {
        let has_left = |rank| group.group_rank_of(rank).is_some_and(|peer| self.closings.has_closed(peer));
        for awaited in list.iter_mut().filter(|awaited| has_left(awaited.rank)) {
            awaited.status = "has left the communicator".to_owned();
        }
    }

    /// The number of calls in progress, asynchronous and blocking.
    pub fn calls_in_progress(&self) -> u64 {
        self.unfinished.started().max(self.calls.entered().saturating_sub(self.progress.returned()))
    }

    /// The rank and the message that this rank waits for, and its unread messages.
    pub fn doing(&self) -> Doing {
        let message = self.messages.waiting();
        let peer = message.as_ref().and_then(peer_of);
        let awaited = self.progress.awaited().or(peer).and_then(|rank| self.job_rank(rank));
        Doing { awaited, message: message.map(Box::new), unread: self.messages.unread(), elsewhere: None }
    }

    /// The call in which a thread of this rank waits, the rank that it waits for, and the collective about which that
    /// rank can be asked. Until the wait has lasted for a while, the awaited rank of a collective is not known.
    pub(crate) fn waits_in(&self) -> Option<(CallInfo, Option<JobRank>, u64)> {
        if self.first_cause.is_revoked() {
            return None;
        }
        if let Some(message) = self.messages.waiting() {
            let peer = peer_of(&message).and_then(|peer| self.job_rank(peer));
            return Some((message, peer, self.progress.finished()));
        }
        let number = self.calls.entered().checked_sub(1)?;
        // An asynchronous collective may be in progress while its rank does something else.
        let is_waited = self.unfinished.collectives() == 0 || self.progress.has_waiting_threads();
        let is_in_it = number >= self.progress.returned() && is_waited;
        let awaited = self.progress.awaited().and_then(|rank| self.job_rank(rank));
        self.calls.info(number).filter(|_| is_in_it).map(|call| (call, awaited, number))
    }

    /// This rank's answer to a question about its call `number`.
    pub fn status(&self, number: u64) -> CallStatus {
        let entered = self.calls.entered();
        if number >= entered {
            let last = entered.checked_sub(1).and_then(|last| self.calls.info(last));
            return CallStatus::NotYet { last, doing: Box::new(self.doing()) };
        }
        match self.calls.info(number) {
            None => CallStatus::Forgotten,
            Some(call) if number < self.progress.finished() => {
                CallStatus::Done { call, doing: Box::new(self.doing()) }
            }
            Some(call) => CallStatus::Running { call, doing: Box::new(self.doing()), ahead: None },
        }
    }
}

/// Shows that a thread waits for the end of asynchronous collectives, until it is dropped.
pub struct CollectiveWait {
    board: Arc<Board>,
}

impl CollectiveWait {
    /// Shows the wait on `board`.
    pub fn new(board: Arc<Board>) -> CollectiveWait {
        board.progress.begin_waiting();
        CollectiveWait { board }
    }
}

impl Drop for CollectiveWait {
    fn drop(&mut self) {
        self.board.progress.end_waiting();
    }
}

/// The other side of a send or receive, if it is one rank.
fn peer_of(message: &CallInfo) -> Option<GroupRank> {
    match message.descriptor.peer {
        Some(Peer::Rank(peer)) => Some(GroupRank::new(peer)),
        Some(Peer::Any | Peer::None) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use unisono_communicator::{Collective, DType, Descriptor, Site};

    use super::*;

    #[test]
    fn remembers_the_last_calls_only() {
        let board = Board::new(GroupRank::new(0), 2);
        for count in 0..1500 {
            let barrier = Descriptor::new(Collective::Barrier, DType::U8, count);
            let number = board.calls.enter(&barrier, None, None, Site::caller(), None);
            if count != 1499 {
                board.progress.leave(number);
            }
        }
        assert_eq!(board.status(3), CallStatus::Forgotten);
        assert!(matches!(board.status(1400), CallStatus::Done { call, .. } if call.descriptor.count == 1400));
        assert!(matches!(board.status(1499), CallStatus::Running { doing, .. } if doing.awaited.is_none()));
        assert!(
            matches!(board.status(1500), CallStatus::NotYet { last: Some(call), .. } if call.number == 1499)
        );
    }

    #[test]
    fn an_enqueued_call_has_returned_and_is_not_finished() {
        let board = Board::new(GroupRank::new(0), 2);
        let barrier = Descriptor::new(Collective::Barrier, DType::U8, 0);
        for number in 0..2 {
            assert_eq!(board.calls.enter(&barrier, None, None, Site::caller(), None), number);
            board.progress.leave_enqueued(number);
        }
        let counts = || (board.calls.entered(), board.progress.returned(), board.progress.finished());
        assert_eq!(counts(), (2, 2, 0));
        assert!(matches!(board.status(0), CallStatus::Running { .. }));
        board.finish(0, None);
        assert_eq!(counts(), (2, 2, 1));
        assert!(matches!(
            (board.status(0), board.status(1)),
            (CallStatus::Done { .. }, CallStatus::Running { .. })
        ));
    }
}
