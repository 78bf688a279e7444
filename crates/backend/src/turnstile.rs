//! The order of threads that issue calls on one communicator: one at a time; those that wait, first come first served.
//!
//! Whoever leaves while others wait hands its place to the first of them, so that a thread that calls again at once
//! cannot pass them. Without waiters, taking and leaving are one atomic operation each.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::lock;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and somebody waits or has waited: whoever leaves looks at the line.
const AWAITED: u32 = 2;

/// Lets one thread at a time through.
#[derive(Default)]
pub(crate) struct Turnstile {
    state: AtomicU32,
    line: Mutex<Line>,
    handed_over: Condvar,
}

#[derive(Default)]
struct Line {
    next: u64,
    waiting: VecDeque<u64>,
    /// Whose place it is now, until it has noticed.
    chosen: Option<u64>,
}

/// The place of one thread, until it is dropped.
#[must_use]
pub(crate) struct Place<'t> {
    turnstile: &'t Turnstile,
}

impl Turnstile {
    /// Takes the place if it is free.
    #[inline]
    pub(crate) fn try_take(&self) -> Option<Place<'_>> {
        let taken = self.state.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| Place { turnstile: self })
    }

    /// Waits for the threads before this one, at most until `until`; `None` when it was not this one's turn by then.
    pub(crate) fn take(&self, until: Instant) -> Option<Place<'_>> {
        let mut line = lock(&self.line);
        // While somebody waits, the state is never free: a place is handed over.
        if self.state.swap(AWAITED, Ordering::Acquire) == FREE {
            return Some(Place { turnstile: self });
        }
        let number = line.next;
        line.next += 1;
        line.waiting.push_back(number);
        loop {
            if line.chosen == Some(number) {
                line.chosen = None;
                return Some(Place { turnstile: self });
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                line.waiting.retain(|waiting| *waiting != number);
                return None;
            }
            line = self.handed_over.wait_timeout(line, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Turnstile { state, line, handed_over } = self.turnstile;
        if state.compare_exchange(TAKEN, FREE, Ordering::Release, Ordering::Relaxed).is_ok() {
            return;
        }
        let mut line = lock(line);
        line.chosen = line.waiting.pop_front();
        match line.chosen {
            Some(_) => handed_over.notify_all(),
            None => state.store(FREE, Ordering::Release),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn threads_pass_in_the_order_in_which_they_came() {
        let (turnstile, passed) = (Turnstile::default(), Mutex::new(Vec::new()));
        let place = turnstile.try_take();
        std::thread::scope(|scope| {
            for number in 0..6 {
                let (turnstile, passed) = (&turnstile, &passed);
                scope.spawn(move || {
                    let _place = turnstile.take(Instant::now() + Duration::from_secs(60));
                    lock(passed).push(number);
                });
                while lock(&turnstile.line).waiting.len() <= number {
                    std::thread::yield_now();
                }
            }
            assert!(turnstile.try_take().is_none());
            drop(place);
        });
        assert_eq!(*lock(&passed), [0, 1, 2, 3, 4, 5]);
        assert!(turnstile.try_take().is_some());
    }

    #[test]
    fn whoever_gives_up_holds_up_nobody() {
        let turnstile = Turnstile::default();
        let place = turnstile.try_take();
        assert!(turnstile.take(Instant::now() + Duration::from_millis(5)).is_none());
        drop(place);
        drop(turnstile.take(Instant::now()));
        assert!(turnstile.try_take().is_some());
    }
}
