//! The first cause: the error that revoked a communicator. Also the eviction of this rank, and the sleepers that both
//! wake.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use unisono_communicator::{Error, JobRank};

use crate::Waker;
use crate::lock;

/// A first cause and its rank.
#[derive(Clone, Debug)]
pub struct Revocation {
    /// The rank that saw the cause first.
    pub by: JobRank,
    /// The first cause.
    pub cause: Arc<Error>,
}

/// The first cause and the sleepers that it wakes. If ranks are threads of one process, their boards share it.
#[derive(Default)]
struct SharedCause {
    revocation: Mutex<Option<Revocation>>,
    /// Whether there is a first cause. Running calls poll this flag.
    is_revoked: AtomicBool,
    /// Whether a caller has got the first cause. From then on it does not change.
    is_told: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
    /// Whether the program has got the first cause from a call; threads of our own may have got it before.
    is_returned: AtomicBool,
    /// Called when the program gets it.
    tellers: Mutex<Vec<Waker>>,
}

thread_local! {
    /// Whether this thread is one of our own: no call returns the errors that it gets.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// Says that this thread makes no calls of the program.
pub fn begin_thread_without_callers() {
    IS_OURS.set(true);
}

/// Runs code of the program on a thread of our own: its calls have a caller.
pub fn run_code_of_the_program(code: impl FnOnce()) {
    let was_ours = IS_OURS.replace(false);
    code();
    IS_OURS.set(was_ours);
}

/// The first cause, as one rank sees it.
#[derive(Default)]
pub struct FirstCause {
    shared: Arc<SharedCause>,
    eviction: OnceLock<Error>,
}

impl FirstCause {
    /// The same first cause for another rank that is a thread of this process.
    pub(super) fn of_another_thread(&self) -> FirstCause {
        FirstCause { shared: self.shared.clone(), eviction: OnceLock::new() }
    }

    /// Makes `cause` the first cause, unless there is one, and wakes every sleeper. Returns whether it became the first
    /// cause.
    pub fn revoke(&self, by: JobRank, cause: Arc<Error>) -> bool {
        self.set(by, cause, |_| false)
    }

    /// As [`FirstCause::revoke`], for a cause that `by` itself reports. It also replaces the error that `by` was lost,
    /// as long as no caller here has got that error: a rank that fails, reports why and exits is not the culprit.
    pub fn revoke_reported(&self, by: JobRank, cause: Arc<Error>) -> bool {
        self.set(by, cause, |first| first.lost_ranks() == [by])
    }

    fn set(&self, by: JobRank, cause: Arc<Error>, gives_way: impl FnOnce(&Error) -> bool) -> bool {
        let mut revocation = lock(&self.shared.revocation);
        let may_replace =
            |first: &Revocation| !self.shared.is_told.load(Ordering::SeqCst) && gives_way(&first.cause);
        if revocation.as_ref().is_some_and(|first| !may_replace(first)) {
            return false;
        }
        *revocation = Some(Revocation { by, cause });
        self.shared.is_revoked.store(true, Ordering::SeqCst);
        drop(revocation);
        self.wake();
        true
    }

    fn wake(&self) {
        let wakers = lock(&self.shared.wakers).clone();
        wakers.iter().for_each(|wake| wake());
    }

    /// Notes that the other ranks go on without this rank. From now on every call returns [`Error::Evicted`].
    pub fn evict(&self, reported_by: JobRank, evidence: String) {
        let error = self.eviction.get_or_init(|| Error::Evicted { reported_by, evidence }).clone();
        if !self.revoke(reported_by, Arc::new(error)) {
            // An earlier cause woke the sleepers; the eviction wakes them again.
            self.wake();
        }
    }

    /// The eviction of this rank, if the other ranks go on without it.
    pub fn eviction(&self) -> Option<&Error> {
        self.eviction.get()
    }

    /// Whether there is a first cause. One atomic load.
    #[inline]
    pub fn is_revoked(&self) -> bool {
        self.shared.is_revoked.load(Ordering::SeqCst)
    }

    /// The first cause, once there is one.
    pub fn revocation(&self) -> Option<Revocation> {
        if self.is_revoked() { lock(&self.shared.revocation).clone() } else { None }
    }

    /// The error of a call on a revoked communicator: the eviction if there is one, else the first cause.
    pub fn error(&self) -> Option<Error> {
        let revocation = self.revocation()?;
        Some(self.eviction().cloned().unwrap_or_else(|| (*revocation.cause).clone()))
    }

    /// As [`FirstCause::error`], for a caller of this rank. From now on the first cause does not change.
    #[inline]
    pub fn tell(&self) -> Option<Error> {
        if !self.is_revoked() {
            return None;
        }
        // Under the lock, no report can replace the cause before the caller has it.
        let revocation = lock(&self.shared.revocation);
        self.shared.is_told.store(true, Ordering::SeqCst);
        let cause = revocation.as_ref().map(|revocation| (*revocation.cause).clone());
        drop(revocation);
        if !IS_OURS.get() {
            self.note_returned();
        }
        self.eviction().cloned().or(cause)
    }

    /// Notes that a call of the program returns the first cause.
    pub fn note_returned(&self) {
        if !self.shared.is_returned.swap(true, Ordering::SeqCst) {
            let tellers = lock(&self.shared.tellers).clone();
            tellers.iter().for_each(|told| told());
        }
    }

    /// Whether the program has got the first cause from a call.
    pub fn is_returned(&self) -> bool {
        self.shared.is_returned.load(Ordering::SeqCst)
    }

    /// Adds a function to call when the program gets the first cause; calls it at once if it has.
    pub fn on_return(&self, told: Waker) {
        lock(&self.shared.tellers).push(told.clone());
        if self.is_returned() {
            told();
        }
    }

    /// Adds a waker for revocation and eviction. Calls it at once if the communicator is revoked.
    pub fn on_revoke(&self, waker: Waker) {
        lock(&self.shared.wakers).push(waker.clone());
        if self.is_revoked() {
            waker();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use unisono_communicator::{Certainty, Group, GroupRank};

    use super::*;
    use crate::board::Board;
    use crate::peers::Peers;

    #[test]
    fn the_boards_of_threads_have_one_first_cause() {
        let boards = Board::of_threads(3);
        let causes: Vec<&FirstCause> = boards.iter().map(Board::first_cause).collect();
        let woken = Arc::new(AtomicU32::new(0));
        for cause in &causes {
            let woken = woken.clone();
            cause.on_revoke(Arc::new(move || {
                woken.fetch_add(1, Ordering::Relaxed);
            }));
        }
        assert!(causes[2].revoke(JobRank::new(2), Arc::new(Error::closed())));
        assert!(!causes[0].revoke(JobRank::new(0), Arc::new(Error::invalid("x", "later"))));
        assert_eq!(woken.load(Ordering::Relaxed), 3);
        assert!(causes.iter().all(|cause| cause.revocation().is_some_and(|first| first.by.get() == 2)));
    }

    #[test]
    fn the_first_cause_stays() {
        let first = FirstCause::default();
        assert!(first.revoke(JobRank::new(0), Arc::new(Error::closed())));
        assert!(!first.revoke(JobRank::new(1), Arc::new(Error::invalid("x", "later"))));
        assert!(matches!(first.error(), Some(Error::Closed { .. })));
    }

    #[test]
    fn the_first_caller_that_gets_the_cause_is_noted_once() {
        let (first, told) = (FirstCause::default(), Arc::new(AtomicU32::new(0)));
        let note = || {
            let told = told.clone();
            first.on_return(Arc::new(move || _ = told.fetch_add(1, Ordering::Relaxed)));
            first.is_returned()
        };
        let count = || told.load(Ordering::Relaxed);
        assert!(!note() && first.tell().is_none() && !first.is_returned(), "there is nothing to tell");
        assert!(first.revoke(JobRank::new(0), Arc::new(Error::closed())) && count() == 0);
        assert!(first.error().is_some() && count() == 0, "to look is not to tell");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begin_thread_without_callers();
                assert!(first.tell().is_some() && count() == 0, "no call returns it");
            });
        });
        assert!(first.tell().is_some() && first.tell().is_some() && count() == 1);
        assert!(note() && count() == 2, "who comes late hears of it too");
    }

    #[test]
    fn what_a_lost_rank_has_reported_is_the_cause_until_a_caller_is_told() {
        let ranks: Vec<JobRank> = JobRank::all(3).collect();
        let lost = |rank| {
            let peers = Peers::new(Group::world(0, 3), Arc::new(Board::new(GroupRank::new(0), 3)));
            let evidence = "its connection ended".to_owned();
            Arc::new(peers.lost(GroupRank::new(rank), ranks[0], Certainty::Confirmed, evidence, None))
        };
        for is_told in [false, true] {
            let first = FirstCause::default();
            assert!(first.revoke(ranks[0], lost(2)));
            if is_told {
                assert_eq!(first.tell().map(|cause| cause.lost_ranks()), Some(vec![ranks[2]]));
            }
            assert!(!first.revoke_reported(ranks[1], lost(2)), "nobody has lost rank 1");
            assert_eq!(first.revoke_reported(ranks[2], lost(1)), !is_told);
            assert_eq!(first.error().unwrap().lost_ranks(), [ranks[if is_told { 2 } else { 1 }]]);
        }
    }
}
