//! What one communicator shows to the thread that answers questions about it: the ring of its last calls, the rank it
//! waits for, and whether it is revoked.

mod answers;
mod closings;
mod messages;
mod unfinished;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use unisono_communicator::{
    CallAlgorithm, CallInfo, Descriptor, Error, GroupRank, JobRank, ParentCall, Peer, Site, Sizes,
};

use self::messages::Messages;
use crate::Waker;
use crate::lock;
use crate::peers::Heard;
use crate::status::{CallHistory, CallStatus, Doing, UnreadMessages};
use crate::stream_order::OnStreams;

pub use self::answers::Answers;
pub use self::closings::Closings;
pub use self::messages::MessageWait;
pub use self::unfinished::Unfinished;

/// The number of calls that the ring remembers.
pub const CALLS_REMEMBERED: usize = 1024;

const NOBODY: u32 = u32::MAX;

/// One call in the ring.
#[derive(Clone, Debug)]
struct CallEntry {
    number: u64,
    descriptor: Descriptor,
    /// Its name and the hash of its schedules; see [`CallAlgorithm`].
    algorithm: Option<(&'static str, u32)>,
    site: Site,
    /// What lengths it has besides its count.
    sizes: Option<Arc<Sizes>>,
    /// The call that it is a part of.
    parent: Option<Arc<ParentCall>>,
}

/// The cause of a revocation and the rank that saw it.
#[derive(Clone, Debug)]
pub struct Revocation {
    /// The rank that saw the cause first.
    pub by: JobRank,
    /// The first cause.
    pub cause: Arc<Error>,
}

/// The first cause, and the sleepers to wake when there is one. It belongs to one board, or to all boards of ranks
/// that are threads of one process.
#[derive(Default)]
struct FirstCause {
    revocation: Mutex<Option<Revocation>>,
    /// Whether there is a first cause. A running call reads this again and again.
    is_revoked: AtomicBool,
    /// Whether a caller has got the first cause. From then on it does not change.
    is_told: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

/// The state of one communicator that its callers and the control plane share.
pub struct Board {
    entries: Box<[Mutex<Option<CallEntry>>]>,
    entered: AtomicU64,
    /// The digest of what the calls so far had in common with those of the other ranks.
    digest: AtomicU64,
    /// How many have returned. They return in the order in which they were entered.
    returned: AtomicU64,
    /// How many are finished: a call on a device returns when it is enqueued.
    finished: AtomicU64,
    /// How many have returned and are not finished.
    enqueued: AtomicU64,
    awaited: AtomicU32,
    /// Since when, in milliseconds of Unix time: records of several processes are compared by it. 0 for nobody.
    awaited_since_ms: AtomicU64,
    first_cause: Arc<FirstCause>,
    eviction: OnceLock<Error>,
    closings: Closings,
    heard: Heard,
    on_streams: OnStreams,
    messages: Messages,
    unfinished: Unfinished,
    answers: Answers,
}

impl Board {
    /// The board of `rank` in a communicator of `ranks` ranks.
    pub fn new(rank: GroupRank, ranks: u32) -> Board {
        Board::with_first_cause(rank, ranks, Arc::default())
    }

    /// The boards of ranks that are threads of one process, in rank order. They share their first cause: what revokes
    /// one of them revokes all at once, and every rank sees the same cause first.
    pub fn of_threads(ranks: u32) -> Vec<Board> {
        let first_cause = Arc::<FirstCause>::default();
        GroupRank::all(ranks).map(|rank| Board::with_first_cause(rank, ranks, first_cause.clone())).collect()
    }

    fn with_first_cause(rank: GroupRank, ranks: u32, first_cause: Arc<FirstCause>) -> Board {
        Board {
            entries: (0..CALLS_REMEMBERED).map(|_| Mutex::new(None)).collect(),
            entered: AtomicU64::new(0),
            digest: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            enqueued: AtomicU64::new(0),
            awaited: AtomicU32::new(NOBODY),
            awaited_since_ms: AtomicU64::new(0),
            first_cause,
            eviction: OnceLock::new(),
            closings: Closings::new(rank, ranks),
            heard: Heard::new(ranks),
            on_streams: OnStreams::default(),
            messages: Messages::default(),
            unfinished: Unfinished::default(),
            answers: Answers::new(rank, ranks),
        }
    }

    /// Notes the entry into a collective, the algorithm that runs it if that is known, and what lengths it has besides
    /// its count, the call that it is a part of if there is one, and gives it its number. Calls enter one at a time.
    pub fn enter(
        &self,
        descriptor: &Descriptor,
        algorithm: Option<(&'static str, u32)>,
        sizes: Option<&Arc<Sizes>>,
        site: Site,
        parent: Option<&Arc<ParentCall>>,
    ) -> u64 {
        let number = self.entered.load(Ordering::Relaxed);
        let (sizes, parent) = (sizes.cloned(), parent.cloned());
        let entry = CallEntry { number, descriptor: *descriptor, algorithm, site, sizes, parent };
        *lock(self.slot(number)) = Some(entry);
        self.entered.store(number + 1, Ordering::Release);
        number
    }

    /// Records that a collective has returned, its data moved.
    pub fn leave(&self, number: u64) {
        self.note_return(number);
        if self.enqueued.load(Ordering::SeqCst) == 0 {
            self.finished.fetch_max(number + 1, Ordering::AcqRel);
        }
    }

    /// Records that a collective has returned and is only enqueued on a device: in stream order, the data moves later.
    pub fn leave_enqueued(&self, number: u64) {
        self.enqueued.fetch_add(1, Ordering::SeqCst);
        self.note_return(number);
    }

    fn note_return(&self, number: u64) {
        self.returned.store(number + 1, Ordering::Release);
        self.await_rank(None);
    }

    /// Records that the data of an enqueued collective, and of all before it, has moved. Each is recorded once.
    pub fn finish(&self, number: u64) {
        self.on_streams.finish(number);
        let is_last = self.enqueued.fetch_sub(1, Ordering::SeqCst) == 1;
        let finished = if is_last { self.returned() } else { number + 1 };
        self.finished.fetch_max(finished, Ordering::AcqRel);
    }

    /// The number of collectives that have returned without an error; those on a device may not be finished.
    pub fn returned(&self) -> u64 {
        self.returned.load(Ordering::Acquire)
    }

    /// Records that a send or receive starts, and returns its number. Messages and collectives are numbered apart.
    pub fn enter_message(&self, descriptor: &Descriptor, site: Site) -> u64 {
        self.messages.enter(descriptor, site)
    }

    /// Records that it has ended without an error.
    pub fn leave_message(&self, number: u64) {
        self.messages.leave(number);
    }

    /// The last sends and receives, oldest first, and whether each has ended without an error.
    pub fn messages(&self) -> Vec<(CallInfo, bool)> {
        self.messages.recent()
    }

    /// What is shown of its messages besides.
    pub(crate) fn shown_messages(&self) -> &Messages {
        &self.messages
    }

    /// Shows the messages that have no receive.
    pub fn show_unread(&self, unread: Vec<UnreadMessages>) {
        self.messages.set_unread(unread);
    }

    /// What this rank waits for, and what it has not received.
    pub fn doing(&self) -> Doing {
        let message = self.messages.waiting();
        let peer = message.as_ref().and_then(|message| match message.descriptor.peer {
            Some(Peer::Rank(peer)) => Some(GroupRank::new(peer)),
            Some(Peer::Any) | None => None,
        });
        let awaited = self.awaited().or(peer);
        Doing { awaited, message: message.map(Box::new), unread: self.messages.unread() }
    }

    /// What this rank would leave behind if it left now.
    pub fn unfinished(&self) -> &Unfinished {
        &self.unfinished
    }

    /// How many calls are in progress: those that were started, and a blocking one.
    pub fn calls_in_progress(&self) -> u64 {
        self.unfinished.started().max(self.entered().saturating_sub(self.returned()))
    }

    /// The number of collectives that have been entered.
    pub fn entered(&self) -> u64 {
        self.entered.load(Ordering::Acquire)
    }

    /// Records the digest of all calls so far; see [`crate::mix_digest`].
    pub fn set_digest(&self, digest: u64) {
        self.digest.store(digest, Ordering::Release);
    }

    /// What this rank reports when it closes.
    pub fn history(&self) -> CallHistory {
        CallHistory { calls: self.entered(), digest: self.digest.load(Ordering::Acquire) }
    }

    /// The last call in which something has arrived from each other rank.
    pub fn heard(&self) -> &Heard {
        &self.heard
    }

    /// Its calls that are on streams.
    pub fn on_streams(&self) -> &OnStreams {
        &self.on_streams
    }

    /// The number of collectives that are finished, with no failed one among them: what survivors compare.
    pub fn finished(&self) -> u64 {
        self.finished.load(Ordering::Acquire)
    }

    /// Records the rank that the running call waits for.
    pub fn await_rank(&self, rank: Option<GroupRank>) {
        let awaited = rank.map_or(NOBODY, GroupRank::get);
        // The clock is read only by a call that waits, and once for each rank that it waits for.
        if self.awaited.load(Ordering::Relaxed) != awaited {
            self.awaited_since_ms.store(rank.map_or(0, |_| unix_ms()), Ordering::Relaxed);
            self.awaited.store(awaited, Ordering::Relaxed);
        }
    }

    /// Since when the running call waits for [`Board::awaited`], in milliseconds of Unix time.
    pub fn awaited_since_ms(&self) -> Option<u64> {
        Some(self.awaited_since_ms.load(Ordering::Relaxed)).filter(|&since| since > 0)
    }

    /// What this rank answers about its call `number`.
    pub fn status(&self, number: u64) -> CallStatus {
        let entered = self.entered();
        if number >= entered {
            let last = entered.checked_sub(1).and_then(|last| self.call_info(last));
            return CallStatus::NotYet { last, doing: Box::new(self.doing()) };
        }
        match self.call_info(number) {
            None => CallStatus::Forgotten,
            Some(call) if number < self.finished() => CallStatus::Done { call },
            Some(call) => CallStatus::Running { call, doing: Box::new(self.doing()), ahead: None },
        }
    }

    /// The call of this number, if the ring remembers it.
    pub fn call_info(&self, number: u64) -> Option<CallInfo> {
        let entry = lock(self.slot(number)).clone().filter(|entry| entry.number == number)?;
        let CallEntry { descriptor, sizes, parent, .. } = entry;
        let named = |(name, schedules): (&'static str, u32)| CallAlgorithm { name: name.into(), schedules };
        let (algorithm, site) = (entry.algorithm.map(named), Some(entry.site.into()));
        Some(CallInfo { number, descriptor, algorithm, site, sizes, parent })
    }

    /// The rank that the running call waits for.
    pub fn awaited(&self) -> Option<GroupRank> {
        Some(self.awaited.load(Ordering::Relaxed)).filter(|&rank| rank != NOBODY).map(GroupRank::new)
    }

    /// Makes `cause` the first cause, unless there is one already, and wakes every sleeper. Returns whether it became
    /// the first cause.
    pub fn revoke(&self, by: JobRank, cause: Arc<Error>) -> bool {
        self.set_cause(by, cause, |_| false)
    }

    /// Like [`Board::revoke`], for a cause that `by` reports. It also replaces the loss of that same rank, as long as
    /// no caller here has got that error: a rank that fails, reports why and exits at once is not the culprit.
    pub fn revoke_reported(&self, by: JobRank, cause: Arc<Error>) -> bool {
        self.set_cause(by, cause, |first| first.lost_ranks() == [by])
    }

    fn set_cause(&self, by: JobRank, cause: Arc<Error>, gives_way: impl FnOnce(&Error) -> bool) -> bool {
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

    /// The other ranks go on without this one: from now on every call returns `error`, whatever it would have
    /// returned.
    pub fn evict(&self, reported_by: JobRank, evidence: String) {
        let error = self.eviction.get_or_init(|| Error::Evicted { reported_by, evidence }).clone();
        if !self.revoke(reported_by, Arc::new(error)) {
            // Sleepers that were woken for another cause are woken again for this one.
            self.wake();
        }
    }

    /// The error that says why the other ranks go on without this one, if they do.
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

    /// The error of a call on a revoked communicator: that of an eviction, else the first cause, as the rank that
    /// reports it saw it.
    pub fn revocation_error(&self) -> Option<Error> {
        let revocation = self.revocation()?;
        Some(self.eviction().cloned().unwrap_or_else(|| (*revocation.cause).clone()))
    }

    /// Like [`Board::revocation_error`], for a caller of this rank that gets the error. From then on the first cause
    /// stays.
    pub fn tell_cause(&self) -> Option<Error> {
        if !self.is_revoked() {
            return None;
        }
        // Under the lock, so that nothing replaces the cause before the caller gets it.
        let revocation = lock(&self.first_cause.revocation);
        self.first_cause.is_told.store(true, Ordering::SeqCst);
        let cause = revocation.as_ref().map(|revocation| (*revocation.cause).clone());
        self.eviction().cloned().or(cause)
    }

    /// Adds a waker to be called at revocation and at eviction.
    pub fn on_revoke(&self, waker: Waker) {
        lock(&self.first_cause.wakers).push(waker.clone());
        if self.is_revoked() {
            waker();
        }
    }

    /// Which ranks have closed the communicator.
    pub fn closings(&self) -> &Closings {
        &self.closings
    }

    /// What the other ranks have answered.
    pub fn answers(&self) -> &Answers {
        &self.answers
    }

    fn slot(&self, number: u64) -> &Mutex<Option<CallEntry>> {
        &self.entries[(number % CALLS_REMEMBERED as u64) as usize]
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests;
