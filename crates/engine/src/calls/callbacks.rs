//! The thread that runs the program's code after a call: functions given to `on_done`, wakers of tasks, keepers of
//! memory. It holds no lock and no links, so this code may make calls; code that blocks delays only later code on this
//! thread.
//!
//! It starts when a communicator first needs it. It ends with the communicator, after all due functions.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use unisono_communicator::{AfterEnd, Error};

use crate::lock;

/// The due functions, and the state of their thread.
#[derive(Default)]
pub(crate) struct Callbacks {
    state: Mutex<CallbackState>,
    signal: Condvar,
}

#[derive(Default)]
struct CallbackState {
    due: VecDeque<AfterEnd>,
    is_started: bool,
    /// Whether the communicator is gone, so that nothing more becomes due.
    is_ending: bool,
}

impl Callbacks {
    /// Starts the thread, unless it runs already.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no room for another thread.
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

    /// Passes the work after the end of a call to the thread, which must have been started.
    pub(crate) fn push(&self, after_end: AfterEnd) {
        lock(&self.state).due.push_back(after_end);
        self.signal.notify_one();
    }

    /// Ends the thread once it has nothing left to do.
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
