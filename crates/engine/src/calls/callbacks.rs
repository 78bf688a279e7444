//! The threads of a world that run the program's code after calls: functions given to `on_done`, wakers of tasks,
//! keepers of memory. They hold no lock and no links, so this code may make calls, and may block.
//!
//! One thread runs the code in the order in which calls end. While one function runs and another is due, a second
//! thread waits beside it. It goes on with the next function if the first one takes longer than [`BLOCKED_AFTER`]:
//! that function may wait for the next one. So there are as many threads as functions that block at once, and one more.
//!
//! The threads start when they are first needed. They end with the last communicator of the world, after all due
//! functions.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use unisono_communicator::{AfterEnd, Error};

use crate::lock;

/// A function that takes longer than this may wait for a later one.
const BLOCKED_AFTER: Duration = Duration::from_millis(2);

/// The most threads of one world. With this number of functions that block at once, later ones wait.
const THREADS_MAX: usize = 64;

/// The number of threads that stay when nothing is due.
const IDLE_MAX: usize = 2;

/// The due functions, and the state of the threads.
#[derive(Default)]
pub(crate) struct Callbacks {
    state: Mutex<CallbackState>,
    signal: Condvar,
}

#[derive(Default)]
struct CallbackState {
    due: VecDeque<AfterEnd>,
    threads: usize,
    idle: usize,
    /// When a thread has taken the last function.
    taken: Option<Instant>,
    /// Whether all communicators are gone, so that nothing more becomes due.
    is_ending: bool,
}

impl Callbacks {
    /// Starts the first thread, unless it runs already.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no room for another thread.
    pub(crate) fn start(self: &Arc<Self>) -> Result<(), Error> {
        let mut state = lock(&self.state);
        if state.threads > 0 {
            return Ok(());
        }
        self.add_thread(&mut state)
            .map_err(|error| Error::system("cannot start the thread of callbacks", &error))
    }

    /// Passes the work after the end of a call to a thread; the first one must have been started.
    pub(crate) fn push(self: &Arc<Self>, after_end: AfterEnd) {
        let mut state = lock(&self.state);
        state.due.push_back(after_end);
        self.make_ready(&mut state);
        drop(state);
        self.signal.notify_one();
    }

    /// Ends the threads once they have nothing left to do.
    pub(crate) fn end(&self) {
        lock(&self.state).is_ending = true;
        self.signal.notify_all();
    }

    /// Sees to it that a thread waits for the next due function: all others may be in functions that block.
    fn make_ready(self: &Arc<Self>, state: &mut CallbackState) {
        if state.idle == 0 && state.threads < THREADS_MAX {
            // Without it the function waits for a thread that is there.
            let _ = self.add_thread(state);
        }
    }

    fn add_thread(self: &Arc<Self>, state: &mut CallbackState) -> std::io::Result<()> {
        let own = self.clone();
        let thread = std::thread::Builder::new().name("unisono-callbacks".to_owned());
        thread.spawn(move || own.run())?;
        state.threads += 1;
        state.idle += 1;
        Ok(())
    }

    fn run(self: Arc<Self>) {
        while let Some(after_end) = self.next() {
            after_end.run();
            lock(&self.state).idle += 1;
        }
    }

    /// The next function for this thread, which is idle; `None` when it must end.
    fn next(self: &Arc<Self>) -> Option<AfterEnd> {
        let mut state = lock(&self.state);
        loop {
            if state.due.is_empty() {
                if state.is_ending || state.idle > IDLE_MAX {
                    state.threads -= 1;
                    state.idle -= 1;
                    return None;
                }
                state = self.signal.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let is_alone = state.idle == state.threads;
            let since = state.taken.map_or(BLOCKED_AFTER, |taken| taken.elapsed());
            if is_alone || since >= BLOCKED_AFTER {
                state.taken = Some(Instant::now());
                state.idle -= 1;
                let after_end = state.due.pop_front();
                if !state.due.is_empty() {
                    self.make_ready(&mut state);
                }
                return after_end;
            }
            let woken = self.signal.wait_timeout(state, BLOCKED_AFTER - since);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
