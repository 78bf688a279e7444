//! What one communicator shows to the thread that answers questions about it: the ring of its last calls, whom it
//! waits for, and whether it is revoked.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use unisono_communicator::{CallInfo, Descriptor, Error, Site, Sizes};

use crate::Waker;
use crate::lock;
use crate::messages::Messages;
use crate::peers::Heard;

/// How many calls the ring remembers.
pub const CALLS_REMEMBERED: usize = 1024;

const NOBODY: u32 = u32::MAX;

/// One call in the ring.
#[derive(Clone, Debug)]
struct CallEntry {
    number: u64,
    descriptor: Descriptor,
    algorithm: Option<&'static str>,
    sizes: Option<Arc<Sizes>>,
    site: &'static Location<'static>,
}

/// What a rank answers when asked about its call `number`.
#[derive(Clone, Debug, PartialEq)]
pub enum CallStatus {
    /// It has not entered this call; this is the last one it entered.
    NotYet {
        /// The last call it entered, if any.
        last: Option<CallInfo>,
    },
    /// It is inside.
    Running {
        /// The call.
        call: CallInfo,
        /// Whom it waits for, if it waits.
        awaited: Option<u32>,
    },
    /// It has returned.
    Done {
        /// The call.
        call: CallInfo,
    },
    /// Too long ago for the ring.
    Forgotten,
}

/// What a rank says when it closes: equal on all ranks whose calls agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallHistory {
    /// How many collectives it has entered.
    pub calls: u64,
    /// The digest of what all of them had in common.
    pub digest: u64,
}

impl CallHistory {
    /// Of a rank that has called nothing.
    pub const UNUSED: CallHistory = CallHistory { calls: 0, digest: 0 };
}

/// Why and by whom a communicator was revoked.
#[derive(Clone, Debug)]
pub struct Revocation {
    /// The rank that saw the cause first.
    pub by: u32,
    /// The first cause.
    pub cause: Arc<Error>,
}

/// Why a communicator was revoked, and who is to be woken: of one board, or of all boards of ranks that share memory.
#[derive(Default)]
struct FirstCause {
    revocation: Mutex<Option<Revocation>>,
    /// Whether there is one: a call looks here at every turn.
    is_revoked: AtomicBool,
    /// Whether a caller has been given the first cause. From then on it stays.
    is_told: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

/// One communicator's notice board, shared between its callers and the control plane.
pub struct Board {
    rank: u32,
    entries: Box<[Mutex<Option<CallEntry>>]>,
    entered: AtomicU64,
    /// Of what the calls so far had in common with those of the other ranks.
    digest: AtomicU64,
    /// How many have returned. They return in the order in which they were entered.
    left: AtomicU64,
    awaited: AtomicU32,
    first_cause: Arc<FirstCause>,
    eviction: OnceLock<Error>,
    /// Which ranks have closed the communicator, and who wants to know.
    closed: Box<[AtomicBool]>,
    close_wakers: Mutex<Vec<Waker>>,
    /// To which ranks there is a stream for messages.
    message_streams: Box<[AtomicBool]>,
    heard: Heard,
    messages: Messages,
    notes: Mutex<Vec<Option<Note>>>,
    /// How often ranks have been asked about a call that makes no progress.
    rounds: AtomicU64,
    suspicion: Mutex<Option<Suspicion>>,
}

/// What a rank has answered about a call.
#[derive(Clone, Debug)]
struct Note {
    number: u64,
    round: u64,
    status: String,
    awaited: Option<u32>,
}

/// A mismatch that a header has shown, until the rank that sent it has described its call.
struct Suspicion {
    rank: u32,
    number: u64,
    difference: String,
}

impl Board {
    /// The board of rank `rank` of `ranks`.
    pub fn new(rank: u32, ranks: u32) -> Board {
        Board::with_first_cause(rank, ranks, Arc::default())
    }

    /// The boards of ranks that are threads of one process, in rank order. They share their first cause: what revokes
    /// one of them revokes all at once, and nobody sees another cause first.
    pub fn of_threads(ranks: u32) -> Vec<Board> {
        let first_cause = Arc::<FirstCause>::default();
        (0..ranks).map(|rank| Board::with_first_cause(rank, ranks, first_cause.clone())).collect()
    }

    fn with_first_cause(rank: u32, ranks: u32, first_cause: Arc<FirstCause>) -> Board {
        Board {
            rank,
            entries: (0..CALLS_REMEMBERED).map(|_| Mutex::new(None)).collect(),
            entered: AtomicU64::new(0),
            digest: AtomicU64::new(0),
            left: AtomicU64::new(0),
            awaited: AtomicU32::new(NOBODY),
            first_cause,
            eviction: OnceLock::new(),
            closed: (0..ranks).map(|_| AtomicBool::new(false)).collect(),
            close_wakers: Mutex::new(Vec::new()),
            message_streams: (0..ranks).map(|_| AtomicBool::new(false)).collect(),
            heard: Heard::new(ranks),
            messages: Messages::default(),
            notes: Mutex::new(vec![None; ranks as usize]),
            rounds: AtomicU64::new(0),
            suspicion: Mutex::new(None),
        }
    }

    /// Whose board it is.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Notes the entry into a collective, the algorithm that runs it if that is known, and what lengths it has besides
    /// its count, and gives it its number. Calls enter one at a time.
    pub fn enter(
        &self,
        descriptor: &Descriptor,
        algorithm: Option<&'static str>,
        sizes: Option<Arc<Sizes>>,
        site: &'static Location<'static>,
    ) -> u64 {
        let number = self.entered.load(Ordering::Relaxed);
        let entry = CallEntry { number, descriptor: *descriptor, algorithm, sizes, site };
        *lock(self.slot(number)) = Some(entry);
        self.entered.store(number + 1, Ordering::Release);
        number
    }

    /// Notes the end of a collective.
    pub fn leave(&self, number: u64) {
        self.left.store(number + 1, Ordering::Release);
        self.await_rank(None);
    }

    /// Notes the start of a send or receive, and gives it a number of its own kind.
    pub fn enter_message(&self, descriptor: &Descriptor, site: &'static Location<'static>) -> u64 {
        self.messages.enter(descriptor, site)
    }

    /// Notes that it has ended well.
    pub fn leave_message(&self, number: u64) {
        self.messages.leave(number);
    }

    /// The last sends and receives, oldest first, and whether each has ended well.
    pub fn messages(&self) -> Vec<(CallInfo, bool)> {
        self.messages.recent()
    }

    /// How many collectives have been entered.
    pub fn entered(&self) -> u64 {
        self.entered.load(Ordering::Acquire)
    }

    /// Notes the digest of all calls so far; see [`crate::mix_digest`].
    pub fn set_digest(&self, digest: u64) {
        self.digest.store(digest, Ordering::Release);
    }

    /// What this rank says when it closes.
    pub fn history(&self) -> CallHistory {
        CallHistory { calls: self.entered(), digest: self.digest.load(Ordering::Acquire) }
    }

    /// In which calls the other ranks were heard of.
    pub fn heard(&self) -> &Heard {
        &self.heard
    }

    /// How many collectives have returned in good order, without a gap.
    pub fn finished(&self) -> u64 {
        self.left.load(Ordering::Acquire)
    }

    /// Notes whom the running call waits for.
    pub fn await_rank(&self, rank: Option<u32>) {
        self.awaited.store(rank.unwrap_or(NOBODY), Ordering::Relaxed);
    }

    /// What this rank answers about its call `number`.
    pub fn status(&self, number: u64) -> CallStatus {
        let entered = self.entered();
        if number >= entered {
            return CallStatus::NotYet { last: entered.checked_sub(1).and_then(|last| self.call_info(last)) };
        }
        let entry = lock(self.slot(number)).clone();
        match entry.filter(|entry| entry.number == number) {
            None => CallStatus::Forgotten,
            Some(entry) if number < self.left.load(Ordering::Acquire) => {
                CallStatus::Done { call: info(&entry) }
            }
            Some(entry) => CallStatus::Running { call: info(&entry), awaited: self.awaited() },
        }
    }

    /// One remembered call.
    pub fn call_info(&self, number: u64) -> Option<CallInfo> {
        lock(self.slot(number)).as_ref().filter(|entry| entry.number == number).map(info)
    }

    /// Whom the running call waits for.
    pub fn awaited(&self) -> Option<u32> {
        Some(self.awaited.load(Ordering::Relaxed)).filter(|&rank| rank != NOBODY)
    }

    /// Makes `cause` the first cause, unless there is one already, and wakes every sleeper. True when it became it.
    pub fn revoke(&self, by: u32, cause: Arc<Error>) -> bool {
        self.set_cause(by, cause, |_| false)
    }

    /// The same with a cause that the rank `reporter` of the job reports. It also takes the place of that rank's own
    /// loss, as long as no caller here has been told of that: a rank that fails, tells why and goes at once is not
    /// the culprit.
    pub fn revoke_reported(&self, by: u32, reporter: u32, cause: Arc<Error>) -> bool {
        self.set_cause(by, cause, |first| first.lost_ranks() == [reporter])
    }

    fn set_cause(&self, by: u32, cause: Arc<Error>, gives_way: impl FnOnce(&Error) -> bool) -> bool {
        let mut revocation = lock(&self.first_cause.revocation);
        let may_replace =
            |first: &Revocation| !self.first_cause.is_told.load(Ordering::SeqCst) && gives_way(&first.cause);
        if revocation.as_ref().is_some_and(|first| !may_replace(first)) {
            return false;
        }
        *revocation = Some(Revocation { by, cause });
        self.first_cause.is_revoked.store(true, Ordering::SeqCst);
        drop(revocation);
        self.wake();
        true
    }

    fn wake(&self) {
        let wakers = lock(&self.first_cause.wakers).clone();
        wakers.iter().for_each(|wake| wake());
    }

    /// The others go on without this rank: from now on every call says so, whatever it would have said before.
    pub fn evict(&self, error: Error) {
        let error = self.eviction.get_or_init(|| error).clone();
        if !self.revoke(self.rank, Arc::new(error)) {
            // News for those who have heard of another cause before.
            self.wake();
        }
    }

    /// Why the others go on without this rank, if they do.
    pub fn eviction(&self) -> Option<&Error> {
        self.eviction.get()
    }

    /// Whether there is a first cause. One atomic load.
    #[inline]
    pub fn is_revoked(&self) -> bool {
        self.first_cause.is_revoked.load(Ordering::SeqCst)
    }

    /// The first cause, once there is one.
    pub fn revocation(&self) -> Option<Revocation> {
        if self.is_revoked() { lock(&self.first_cause.revocation).clone() } else { None }
    }

    /// The error of a call that meets a revocation: that of an eviction, else the first cause, as the rank saw it that
    /// reports it.
    pub fn revocation_error(&self) -> Option<Error> {
        let revocation = self.revocation()?;
        Some(self.eviction().cloned().unwrap_or_else(|| (*revocation.cause).clone()))
    }

    /// The same for a caller of this rank, who gets it: no other cause takes its place any more.
    pub fn tell_cause(&self) -> Option<Error> {
        if !self.is_revoked() {
            return None;
        }
        // Under the lock, so that nothing replaces the cause between this and the answer.
        let revocation = lock(&self.first_cause.revocation);
        self.first_cause.is_told.store(true, Ordering::SeqCst);
        let cause = revocation.as_ref().map(|revocation| (*revocation.cause).clone());
        self.eviction().cloned().or(cause)
    }

    /// Adds somebody to wake at revocation, and at eviction.
    pub fn on_revoke(&self, waker: Waker) {
        lock(&self.first_cause.wakers).push(waker.clone());
        if self.is_revoked() {
            waker();
        }
    }

    /// Notes that a rank has closed the communicator, or left it. Wakes who wants to know, if it may have sent messages.
    pub fn note_closed(&self, rank: u32) {
        if rank != self.rank {
            self.set_and_wake(&self.closed, rank);
        }
    }

    /// Notes that there is a stream for messages to and from a rank.
    pub fn note_message_stream(&self, rank: u32) {
        self.set_and_wake(&self.message_streams, rank);
    }

    fn set_and_wake(&self, flags: &[AtomicBool], rank: u32) {
        let Some(flag) = flags.get(rank as usize) else { return };
        if !flag.swap(true, Ordering::SeqCst) && self.has_unread_end(rank) {
            let wakers = lock(&self.close_wakers).clone();
            wakers.iter().for_each(|wake| wake());
        }
    }

    /// Whether a rank has closed to which there is a stream for messages.
    fn has_unread_end(&self, rank: u32) -> bool {
        let has_stream = &self.message_streams[rank as usize];
        self.has_closed(rank) && has_stream.load(Ordering::SeqCst)
    }

    /// Whether a rank has closed the communicator, or left it.
    pub fn has_closed(&self, rank: u32) -> bool {
        self.closed.get(rank as usize).is_some_and(|closed| closed.load(Ordering::SeqCst))
    }

    /// Adds somebody to wake when a rank has closed to which there is a stream for messages.
    pub fn on_close(&self, waker: Waker) {
        lock(&self.close_wakers).push(waker.clone());
        if (0..self.closed.len() as u32).any(|rank| self.has_unread_end(rank)) {
            waker();
        }
    }

    /// Ranks are about to be asked again about a call.
    pub fn begin_round(&self) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }

    /// Remembers what a rank has answered about call `number`, in words, and whom it waits for.
    pub(crate) fn note(&self, rank: u32, number: u64, status: String, awaited: Option<u32>) {
        let round = self.rounds.load(Ordering::Relaxed);
        if let Some(note) = lock(&self.notes).get_mut(rank as usize) {
            *note = Some(Note { number, round, status, awaited });
        }
    }

    /// Whether a rank has answered about call `number` since the last round of questions began.
    pub(crate) fn is_asked(&self, rank: u32, number: u64) -> bool {
        let round = self.rounds.load(Ordering::Relaxed);
        let notes = lock(&self.notes);
        let note = notes.get(rank as usize).and_then(Option::as_ref);
        rank == self.rank || note.is_some_and(|note| (note.number, note.round) == (number, round))
    }

    /// What a rank has last answered about call `number`.
    pub fn note_of(&self, rank: u32, number: u64) -> String {
        let notes = lock(&self.notes);
        let note = notes.get(rank as usize).and_then(Option::as_ref);
        let status = note.filter(|note| note.number == number).map(|note| note.status.clone());
        status.unwrap_or_else(|| "has not answered".to_owned())
    }

    /// The ranks that keep call `number` from its end when it waits for `direct`: those, and whom they wait for in
    /// turn, as far as they have answered.
    pub fn awaited_in_turn(&self, direct: Vec<u32>, number: u64) -> Vec<u32> {
        let notes = lock(&self.notes);
        let (mut ranks, mut next) = (direct, 0);
        while let Some(&rank) = ranks.get(next) {
            let note = notes.get(rank as usize).and_then(Option::as_ref);
            let awaited = note.filter(|note| note.number == number).and_then(|note| note.awaited);
            ranks.extend(awaited.filter(|awaited| *awaited != self.rank && !ranks.contains(awaited)));
            next += 1;
        }
        ranks
    }

    /// Remembers in what call `number` of `rank` differs from ours, as its header tells.
    pub(crate) fn suspect(&self, rank: u32, number: u64, difference: &str) {
        *lock(&self.suspicion) = Some(Suspicion { rank, number, difference: difference.to_owned() });
    }

    /// In what call `number` of `rank` is known to differ.
    pub(crate) fn suspicion(&self, rank: u32, number: u64) -> Option<String> {
        let suspicion = lock(&self.suspicion);
        let is_it = |one: &&Suspicion| (one.rank, one.number) == (rank, number);
        suspicion.as_ref().filter(is_it).map(|one| one.difference.clone())
    }

    fn slot(&self, number: u64) -> &Mutex<Option<CallEntry>> {
        &self.entries[(number % CALLS_REMEMBERED as u64) as usize]
    }
}

fn info(entry: &CallEntry) -> CallInfo {
    CallInfo {
        number: entry.number,
        descriptor: entry.descriptor,
        algorithm: entry.algorithm.map(Into::into),
        site: Some(Site::from(entry.site)),
        sizes: entry.sizes.clone(),
    }
}

#[cfg(test)]
mod tests {
    use unisono_communicator::{Certainty, Collective, DType, Group};

    use super::*;
    use crate::peers::Peers;

    #[test]
    fn remembers_the_last_calls_only() {
        let board = Board::new(0, 2);
        for count in 0..1500 {
            let number = board.enter(
                &Descriptor::new(Collective::Barrier, DType::U8, count),
                None,
                None,
                Location::caller(),
            );
            if count != 1499 {
                board.leave(number);
            }
        }
        assert_eq!(board.status(3), CallStatus::Forgotten);
        assert!(matches!(board.status(1400), CallStatus::Done { call } if call.descriptor.count == 1400));
        assert!(matches!(board.status(1499), CallStatus::Running { awaited: None, .. }));
        assert!(matches!(board.status(1500), CallStatus::NotYet { last: Some(call) } if call.number == 1499));
    }

    #[test]
    fn the_boards_of_threads_have_one_first_cause() {
        let boards = Board::of_threads(3);
        let woken = Arc::new(AtomicU32::new(0));
        for board in &boards {
            let woken = woken.clone();
            board.on_revoke(Arc::new(move || {
                woken.fetch_add(1, Ordering::Relaxed);
            }));
        }
        assert!(boards[2].revoke(2, Arc::new(Error::Closed)));
        assert!(!boards[0].revoke(0, Arc::new(Error::invalid("x", "later"))));
        assert_eq!(woken.load(Ordering::Relaxed), 3);
        assert!(boards.iter().all(|board| board.revocation().is_some_and(|first| first.by == 2)));
    }

    #[test]
    fn the_first_cause_stays() {
        let board = Board::new(1, 2);
        assert!(board.revoke(0, Arc::new(Error::Closed)));
        assert!(!board.revoke(1, Arc::new(Error::invalid("x", "later"))));
        assert!(matches!(board.revocation_error(), Some(Error::Closed)));
    }

    #[test]
    fn what_a_lost_rank_has_reported_is_the_cause_until_a_caller_is_told() {
        let lost = |rank| {
            let peers = Peers::new(Group::world(0, 3), Arc::new(Board::new(0, 3)));
            Arc::new(peers.lost(rank, 0, Certainty::Confirmed, "its connection ended".to_owned(), None))
        };
        for is_told in [false, true] {
            let board = Board::new(0, 3);
            assert!(board.revoke(0, lost(2)));
            if is_told {
                assert_eq!(board.tell_cause().map(|cause| cause.lost_ranks()), Some(vec![2]));
            }
            assert!(!board.revoke_reported(1, 1, lost(2)), "nobody has lost rank 1");
            assert_eq!(board.revoke_reported(2, 2, lost(1)), !is_told);
            assert_eq!(board.revocation_error().unwrap().lost_ranks(), [if is_told { 2 } else { 1 }]);
        }
    }
}
