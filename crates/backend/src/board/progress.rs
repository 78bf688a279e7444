//! The progress of a rank's calls: the numbers of returned and finished calls, and the rank that the running call waits
//! for.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use unisono_communicator::GroupRank;

const NOBODY: u32 = u32::MAX;

/// The counts of one communicator's collectives, and the rank that the running collective waits for.
pub struct Progress {
    /// The number of returned collectives. They return in the order of their numbers.
    returned: AtomicU64,
    /// The number of finished collectives. It may be smaller, since a call on a device returns when it is enqueued.
    finished: AtomicU64,
    /// The number of collectives that have returned but not finished.
    enqueued: AtomicU64,
    awaited: AtomicU32,
    /// The threads that wait for the end of asynchronous collectives.
    waiting_threads: AtomicU32,
    /// The start of the wait in milliseconds of Unix time, so that records of several processes can be compared. 0
    /// without a wait.
    awaited_since_ms: AtomicU64,
}

impl Progress {
    pub(super) fn new() -> Progress {
        Progress {
            returned: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            enqueued: AtomicU64::new(0),
            awaited: AtomicU32::new(NOBODY),
            waiting_threads: AtomicU32::new(0),
            awaited_since_ms: AtomicU64::new(0),
        }
    }

    /// Records that a collective has returned and has moved its data.
    #[inline]
    pub fn leave(&self, number: u64) {
        self.note_return(number);
        if self.enqueued.load(Ordering::SeqCst) == 0 {
            self.finished.fetch_max(number + 1, Ordering::AcqRel);
        }
    }

    /// Records that a collective has returned after being enqueued on a device. Its data moves later, in the order of
    /// its stream.
    pub fn leave_enqueued(&self, number: u64) {
        self.enqueued.fetch_add(1, Ordering::SeqCst);
        self.note_return(number);
    }

    fn note_return(&self, number: u64) {
        self.returned.store(number + 1, Ordering::Release);
        self.await_rank(None);
    }

    /// Records that an enqueued collective, and every earlier one, has moved its data.
    pub(super) fn finish(&self, number: u64) {
        let is_last = self.enqueued.fetch_sub(1, Ordering::SeqCst) == 1;
        let finished = if is_last { self.returned() } else { number + 1 };
        self.finished.fetch_max(finished, Ordering::AcqRel);
    }

    /// The number of collectives that have returned without an error. Collectives on a device may not have finished.
    pub fn returned(&self) -> u64 {
        self.returned.load(Ordering::Acquire)
    }

    /// The number of collectives that finished before the first failed one. Survivors compare it.
    pub fn finished(&self) -> u64 {
        self.finished.load(Ordering::Acquire)
    }

    /// Records the rank that the running call waits for.
    #[inline]
    pub fn await_rank(&self, rank: Option<GroupRank>) {
        let awaited = rank.map_or(NOBODY, GroupRank::get);
        // Reading the clock takes time, so a call reads it once for each rank that it waits for.
        if self.awaited.load(Ordering::Relaxed) != awaited {
            self.awaited_since_ms.store(rank.map_or(0, |_| unix_ms()), Ordering::Relaxed);
            self.awaited.store(awaited, Ordering::Relaxed);
        }
    }

    /// The rank that the running call waits for.
    pub fn awaited(&self) -> Option<GroupRank> {
        Some(self.awaited.load(Ordering::Relaxed)).filter(|&rank| rank != NOBODY).map(GroupRank::new)
    }

    /// One more thread waits for the end of asynchronous collectives.
    pub(super) fn begin_waiting(&self) {
        self.waiting_threads.fetch_add(1, Ordering::Relaxed);
    }

    /// One thread less does.
    pub(super) fn end_waiting(&self) {
        self.waiting_threads.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether threads wait for the end of asynchronous collectives.
    pub(super) fn has_waiting_threads(&self) -> bool {
        self.waiting_threads.load(Ordering::Relaxed) > 0
    }

    /// When the running call began to wait for [`Progress::awaited`], in milliseconds of Unix time.
    pub fn awaited_since_ms(&self) -> Option<u64> {
        Some(self.awaited_since_ms.load(Ordering::Relaxed)).filter(|&since| since > 0)
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_returns_waits_for_nobody_and_is_finished_once_no_other_is_enqueued() {
        let progress = Progress::new();
        let counts = || (progress.returned(), progress.finished());
        progress.leave(0);
        assert_eq!(counts(), (1, 1));
        progress.leave_enqueued(1);
        progress.await_rank(Some(GroupRank::new(3)));
        assert!(progress.awaited() == Some(GroupRank::new(3)) && progress.awaited_since_ms().is_some());
        progress.leave(2);
        assert_eq!((progress.awaited(), progress.awaited_since_ms()), (None, None));
        assert_eq!(counts(), (3, 1), "a call on a device is before it");
        progress.finish(1);
        assert_eq!(counts(), (3, 3));
    }
}
