//! The right to issue the next call. One holder has it at a time, and waiting threads get it in the order of arrival.
//!
//! A mutex does not suffice: a scope holds its turn across calls and may move to another thread, waiting threads have
//! deadlines and must learn of a revocation, and they are served in order. A pass that nobody waits for costs one
//! atomic operation to take and one to give back.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, Thread};
use std::time::Instant;

use crate::lock;

/// Nobody holds the pass.
const FREE: u8 = 0;
/// The pass is held, and no thread waits for it.
const TAKEN: u8 = 1;
/// The pass is held, and the queue is not empty. The state changes to and from this value only under the queue's lock.
const AWAITED: u8 = 2;

/// One pass, and a queue of threads that wait for it.
pub struct Turnstile {
    state: AtomicU8,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiter>,
    /// The waiter that has the pass but has not noticed yet.
    served: Option<u64>,
    next_number: u64,
}

struct Waiter {
    number: u64,
    thread: Thread,
}

/// The pass, until it is dropped. `H` refers to the turnstile: a reference, or an `Arc` if the pass outlives its call
/// or moves to another thread.
#[must_use]
pub struct Pass<H: Deref<Target = Turnstile>> {
    turnstile: H,
}

impl<H: Deref<Target = Turnstile>> Pass<H> {
    #[inline]
    /// The handle to the turnstile.
    pub fn turnstile(&self) -> &H {
        &self.turnstile
    }
}

impl<H: Deref<Target = Turnstile>> Drop for Pass<H> {
    fn drop(&mut self) {
        self.turnstile.release();
    }
}

impl Turnstile {
    /// A turnstile whose pass is free.
    pub fn new() -> Turnstile {
        Turnstile { state: AtomicU8::new(FREE), queue: Mutex::default() }
    }

    /// The pass, if it is free. Takes no lock.
    #[inline]
    pub fn try_pass<H: Deref<Target = Turnstile>>(this: H) -> Option<Pass<H>> {
        this.take().then(|| Pass { turnstile: this })
    }

    /// Waits for the pass behind earlier threads. Gives `None` at `until`, or when `gave_up` returns true. The thread
    /// asks `gave_up` before it sleeps and after every [`Turnstile::recheck`].
    pub fn wait<H: Deref<Target = Turnstile>>(
        this: H,
        until: Option<Instant>,
        gave_up: impl Fn() -> bool,
    ) -> Option<Pass<H>> {
        let got_it = this.take() || this.wait_in_queue(until, gave_up);
        got_it.then(|| Pass { turnstile: this })
    }

    /// Makes every waiting thread ask its `gave_up` again.
    pub fn recheck(&self) {
        lock(&self.queue).waiting.iter().for_each(|waiter| waiter.thread.unpark());
    }

    #[inline]
    fn take(&self) -> bool {
        self.state.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn wait_in_queue(&self, until: Option<Instant>, gave_up: impl Fn() -> bool) -> bool {
        let Some(number) = self.enqueue() else { return true };
        loop {
            let now = Instant::now();
            if gave_up() || until.is_some_and(|until| now >= until) {
                return self.leave(number);
            }
            match until {
                Some(until) => thread::park_timeout(until - now),
                None => thread::park(),
            }
            let mut queue = lock(&self.queue);
            if queue.served == Some(number) {
                queue.served = None;
                return true;
            }
        }
    }

    /// Joins the queue. `None` if the pass was free; then the caller has it.
    fn enqueue(&self) -> Option<u64> {
        let mut queue = lock(&self.queue);
        loop {
            if self.take() {
                return None;
            }
            // The exchange fails only if the holder has just given the pass back.
            let awaited = self.state.compare_exchange(TAKEN, AWAITED, Ordering::Relaxed, Ordering::Relaxed);
            if matches!(awaited, Ok(_) | Err(AWAITED)) {
                break;
            }
        }
        let number = queue.next_number;
        queue.next_number += 1;
        queue.waiting.push_back(Waiter { number, thread: thread::current() });
        Some(number)
    }

    /// Leaves the queue. True if the pass came at the last moment.
    fn leave(&self, number: u64) -> bool {
        let mut queue = lock(&self.queue);
        if queue.served == Some(number) {
            queue.served = None;
            return true;
        }
        queue.waiting.retain(|waiter| waiter.number != number);
        if queue.waiting.is_empty() {
            self.state.store(TAKEN, Ordering::Relaxed);
        }
        false
    }

    #[inline]
    fn release(&self) {
        if self.state.compare_exchange(TAKEN, FREE, Ordering::Release, Ordering::Relaxed).is_err() {
            self.hand_over();
        }
    }

    /// Gives the pass to the first in the queue.
    #[cold]
    fn hand_over(&self) {
        let mut queue = lock(&self.queue);
        match queue.waiting.pop_front() {
            Some(first) => {
                queue.served = Some(first.number);
                let state = if queue.waiting.is_empty() { TAKEN } else { AWAITED };
                self.state.store(state, Ordering::Release);
                first.thread.unpark();
            }
            // The last waiter has left the queue in the meantime.
            None => self.state.store(FREE, Ordering::Release),
        }
    }
}

impl Default for Turnstile {
    fn default() -> Turnstile {
        Turnstile::new()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn never() -> bool {
        false
    }

    fn waiters(turnstile: &Turnstile) -> usize {
        lock(&turnstile.queue).waiting.len()
    }

    fn await_waiters(turnstile: &Turnstile, count: usize) {
        let until = Instant::now() + LONG;
        while waiters(turnstile) != count {
            assert!(Instant::now() < until, "{} wait, not {count}", waiters(turnstile));
            thread::yield_now();
        }
    }

    #[test]
    fn there_is_one_pass() {
        let turnstile = Turnstile::new();
        let pass = Turnstile::try_pass(&turnstile);
        assert!(pass.is_some() && Turnstile::try_pass(&turnstile).is_none());
        drop(pass);
        assert!(Turnstile::wait(&turnstile, None, never).is_some());
        assert!(Turnstile::try_pass(&turnstile).is_some());
    }

    #[test]
    fn waiters_are_served_in_order_and_nobody_overtakes() {
        let turnstile = Arc::new(Turnstile::new());
        let first = Turnstile::try_pass(turnstile.clone()).unwrap();
        let (sender, served) = mpsc::channel();
        let threads: Vec<_> = (0..8)
            .map(|index| {
                let (own, sender) = (turnstile.clone(), sender.clone());
                let thread = thread::spawn(move || {
                    let _pass = Turnstile::wait(&*own, Some(Instant::now() + LONG), never).unwrap();
                    sender.send(index).unwrap();
                });
                await_waiters(&turnstile, index + 1);
                thread
            })
            .collect();
        assert!(Turnstile::try_pass(&*turnstile).is_none());
        drop(first);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        drop(sender);
        assert_eq!(served.iter().collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
        assert!(Turnstile::try_pass(&*turnstile).is_some());
    }

    #[test]
    fn a_deadline_ends_a_wait_and_leaves_the_others_in_order() {
        let turnstile = Arc::new(Turnstile::new());
        let pass = Turnstile::try_pass(turnstile.clone()).unwrap();
        let soon = Some(Instant::now() + Duration::from_millis(5));
        assert!(Turnstile::wait(&*turnstile, soon, never).is_none());
        assert_eq!(waiters(&turnstile), 0);
        let own = turnstile.clone();
        let patient = thread::spawn(move || Turnstile::wait(&*own, None, never).is_some());
        await_waiters(&turnstile, 1);
        let soon = Some(Instant::now() + Duration::from_millis(5));
        assert!(Turnstile::wait(&*turnstile, soon, never).is_none());
        drop(pass);
        assert!(patient.join().unwrap());
        assert!(Turnstile::try_pass(&*turnstile).is_some());
    }

    #[test]
    fn whoever_waits_can_be_told_to_give_up() {
        let turnstile = Arc::new(Turnstile::new());
        let gave_up = Arc::new(AtomicBool::new(false));
        let pass = Turnstile::try_pass(&*turnstile).unwrap();
        let (own, flag) = (turnstile.clone(), gave_up.clone());
        let waiting =
            thread::spawn(move || Turnstile::wait(&*own, None, || flag.load(Ordering::SeqCst)).is_some());
        await_waiters(&turnstile, 1);
        turnstile.recheck();
        gave_up.store(true, Ordering::SeqCst);
        turnstile.recheck();
        assert!(!waiting.join().unwrap());
        drop(pass);
        assert!(Turnstile::try_pass(&*turnstile).is_some());
    }

    #[test]
    fn an_owned_pass_moves_to_another_thread_and_a_panic_gives_it_back() {
        let turnstile = Arc::new(Turnstile::new());
        let pass = Turnstile::try_pass(turnstile.clone()).unwrap();
        let panicked = thread::spawn(move || {
            let _pass = pass;
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(Turnstile::wait(&*turnstile, Some(Instant::now() + LONG), never).is_some());
        assert!(panicked.join().is_err());
    }

    #[test]
    fn many_threads_never_hold_it_at_once() {
        let turnstile = Turnstile::new();
        let (inside, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let turn = |seed: u64| {
            let short = Some(Instant::now() + Duration::from_micros(seed % 50));
            let until = if seed.is_multiple_of(3) { short } else { None };
            let pass = match seed % 2 {
                0 => Turnstile::try_pass(&turnstile),
                _ => Turnstile::wait(&turnstile, until, never),
            };
            if pass.is_some() {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                if seed.is_multiple_of(5) {
                    thread::yield_now();
                }
                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                done.fetch_add(1, Ordering::SeqCst);
            }
        };
        thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || (0..5000).for_each(|call| turn(thread * 7 + call)));
            }
        });
        assert!(done.load(Ordering::SeqCst) > 5000);
        assert!(Turnstile::try_pass(&turnstile).is_some());
    }
}
