//! The threads that move the asynchronous calls of all communicators of a world, and the threads of their callbacks.
//!
//! There are few of them however many communicators there are. While there are more communicators with work than
//! threads, each thread turns to the next one as soon as nothing moves, so no communicator waits for another to end.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use unisono_backend::Waker;
use unisono_communicator::Error;

use crate::calls::callbacks::Callbacks;
use crate::calls::monitor::Monitor;
use crate::lock;

/// The most threads of one world.
const THREADS_MAX: usize = 8;

/// The number of communicators without a handle that may have unfinished calls; the next drop of a handle finishes its
/// calls itself. Each of them has sockets and memory.
const DROPPED_MAX: usize = 64;

/// The threads of one world. They start when they are needed, and end with the last communicator.
#[derive(Clone, Default)]
pub struct ProgressThreads(Arc<Owner>);

impl fmt::Debug for ProgressThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProgressThreads").field(&self.count()).finish()
    }
}

/// The threads themselves do not own this, so they end with it.
struct Owner {
    pool: Arc<Pool>,
    callbacks: Arc<Callbacks>,
    process: u32,
}

impl Owner {
    /// Whether this is a forked child, in which a thread that does not exist may hold the lock.
    fn is_child(&self) -> bool {
        std::process::id() != self.process
    }
}

impl Default for Owner {
    fn default() -> Owner {
        Owner { pool: Arc::default(), callbacks: Arc::default(), process: std::process::id() }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if !self.is_child() {
            lock(&self.pool.state).is_over = true;
            self.pool.has_work.notify_all();
            self.callbacks.end();
        }
    }
}

/// The communicators with work, and the threads.
#[derive(Default)]
pub(crate) struct Pool {
    state: Mutex<PoolState>,
    has_work: Condvar,
}

#[derive(Default)]
struct PoolState {
    /// The communicators that no thread looks after yet.
    waiting: VecDeque<Arc<Monitor>>,
    threads: usize,
    idle: usize,
    /// Wakes the threads that may sleep in the links of a communicator, by number.
    sleepers: Vec<(u64, Waker)>,
    next_sleeper: u64,
    /// The number of communicators without a handle that have unfinished calls.
    dropped: usize,
    is_over: bool,
}

impl ProgressThreads {
    /// The number of threads that move calls.
    pub fn count(&self) -> usize {
        lock(&self.0.pool.state).threads
    }

    /// The threads of callbacks.
    pub(crate) fn callbacks(&self) -> &Arc<Callbacks> {
        &self.0.callbacks
    }

    /// A communicator has a command for its thread.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no room for the first thread.
    pub(crate) fn add(&self, monitor: Arc<Monitor>) -> Result<(), Error> {
        let pool = &self.0.pool;
        let mut state = lock(&pool.state);
        state.waiting.push_back(monitor);
        if state.idle >= state.waiting.len() {
            drop(state);
            pool.has_work.notify_one();
            return Ok(());
        }
        if state.threads < THREADS_MAX {
            let (own, thread) =
                (pool.clone(), std::thread::Builder::new().name("unisono-progress".to_owned()));
            match thread.spawn(move || {
                unisono_backend::begin_thread_without_callers();
                own.run();
            }) {
                Ok(_) => {
                    state.threads += 1;
                    return Ok(());
                }
                Err(error) if state.threads == 0 => {
                    state.waiting.pop_back();
                    return Err(Error::system("cannot start the progress thread", &error));
                }
                Err(_) => {}
            }
        }
        // The threads that sleep in other communicators must turn to this one too.
        let sleepers: Vec<Waker> = state.sleepers.iter().map(|(_, wake)| wake.clone()).collect();
        drop(state);
        sleepers.iter().for_each(|wake| wake());
        Ok(())
    }
}

/// A communicator without a handle that has unfinished calls, until it is gone.
pub(crate) struct Dropped(ProgressThreads);

impl ProgressThreads {
    /// Notes a communicator whose last handle is gone, with unfinished calls. True if there are too many of these.
    pub(crate) fn note_dropped(&self) -> (Dropped, bool) {
        let mut state = lock(&self.0.pool.state);
        state.dropped += 1;
        (Dropped(self.clone()), state.dropped > DROPPED_MAX)
    }
}

impl Drop for Dropped {
    fn drop(&mut self) {
        let owner = &self.0.0;
        if !owner.is_child() {
            lock(&owner.pool.state).dropped -= 1;
        }
    }
}

/// While it lives, a thread may sleep in the links of a communicator.
pub(crate) struct Sleeper<'p> {
    pool: &'p Pool,
    number: u64,
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        lock(&self.pool.state).sleepers.retain(|(number, _)| *number != self.number);
    }
}

impl Pool {
    /// A thread may sleep from now on; `wake` wakes it.
    pub(crate) fn sleeper(&self, wake: Waker) -> Sleeper<'_> {
        let mut state = lock(&self.state);
        let number = state.next_sleeper;
        state.next_sleeper += 1;
        state.sleepers.push((number, wake));
        Sleeper { pool: self, number }
    }

    /// Whether a communicator waits for a thread.
    pub(crate) fn is_crowded(&self) -> bool {
        let state = lock(&self.state);
        state.waiting.len() > state.idle
    }

    fn run(&self) {
        while let Some(monitor) = self.next() {
            if monitor.carry_out(self) {
                lock(&self.state).waiting.push_back(monitor);
            }
        }
    }

    /// The next communicator that waits; `None` at the end.
    fn next(&self) -> Option<Arc<Monitor>> {
        let mut state = lock(&self.state);
        state.idle += 1;
        let has_nothing = |state: &mut PoolState| state.waiting.is_empty() && !state.is_over;
        state = self.has_work.wait_while(state, has_nothing).unwrap_or_else(PoisonError::into_inner);
        state.idle -= 1;
        state.waiting.pop_front()
    }
}
