//! The thread that runs the program's own code at the end of a call: functions given to `on_done`, wakers of tasks,
//! keepers of memory. It holds no lock and no links, so that code may make calls, and code that blocks delays
//! nothing but the code behind it.
//!
//! It starts when a communicator needs it for the first time, and ends with the communicator, when all functions
//! that were due have been called.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use unisono_communicator::{AfterEnd, Error};

use crate::lock;

/// The functions that are due, and the thread that calls them.
#[derive(Default)]
pub(crate) struct Callbacks {
    state: Mutex<CallbackState>,
    signal: Condvar,
}

#[derive(Default)]
struct CallbackState {
    due: VecDeque<AfterEnd>,
    is_started: bool,
    /// The communicator is gone: nothing more becomes due.
    is_ending: bool,
}

impl Callbacks {
    /// Starts the thread, if there is none yet.
    ///
    /// # Errors
    /// When the system has no room for another thread.
    pub(crate) fn start(self: &Arc<Self>) -> Result<(), Error> {
        let mut state = lock(&self.state);
        if state.is_started {
            return Ok(());
        }
        let mine = self.clone();
        let thread = std::thread::Builder::new().name("unisono-callbacks".to_owned());
        let started = thread.spawn(move || mine.run());
        state.is_started = started.is_ok();
        started.map(drop).map_err(|error| Error::system("cannot start the thread of callbacks", &error))
    }

    /// Leaves what follows an end to the thread, which has been started.
    pub(crate) fn push(&self, after_end: AfterEnd) {
        lock(&self.state).due.push_back(after_end);
        self.signal.notify_one();
    }

    /// Ends the thread when it has nothing left to call.
    pub(crate) fn end(&self) {
        lock(&self.state).is_ending = true;
        self.signal.notify_one();
    }

    fn run(&self) {
        while let Some(after_end) = self.next() {
            after_end.run();
        }
    }

    fn next(&self) -> Option<AfterEnd> {
        let has_nothing = |state: &mut CallbackState| state.due.is_empty() && !state.is_ending;
        let state = self.signal.wait_while(lock(&self.state), has_nothing);
        state.unwrap_or_else(PoisonError::into_inner).due.pop_front()
    }
}
