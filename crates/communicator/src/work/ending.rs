//! The end of an asynchronous call: its result, its buffers, and the tasks and functions to notify.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::call::outcome::Outcome;
use crate::error::Result;
use crate::log::{Severity, log};
use crate::memory::owned::OwnedBuffers;
use crate::memory::raw::Keeper;

/// A function that gets the result of an asynchronous call; see [`crate::Work::on_done`].
pub type DoneCallback = Box<dyn FnOnce(Result<Outcome>) + Send>;

/// Calls `callback`. A panic in it is logged and goes no further.
pub fn call_back(callback: DoneCallback, result: Result<Outcome>) {
    if catch_unwind(AssertUnwindSafe(|| callback(result))).is_err() {
        log(Severity::Warn, None, format_args!("a function given to on_done has panicked"));
    }
}

/// Drops the keeper of a call's memory. A panic in it is logged and goes no further.
fn release(keeper: Keeper) {
    if catch_unwind(AssertUnwindSafe(|| drop(keeper))).is_err() {
        log(Severity::Warn, None, format_args!("the keeper of a call's memory has panicked"));
    }
}

/// Wakes a task. A panic in its executor is logged and goes no further.
fn wake(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        let problem = "the waker of an asynchronous call has panicked; its task may never be polled again";
        log(Severity::Warn, None, format_args!("{problem}"));
    }
}

/// The end of one asynchronous call. Backends keep one in each [`crate::WorkSource`].
///
/// It runs no code of the program itself, because the thread that ends the call may hold locks.
#[derive(Default)]
pub struct Ending {
    is_done: AtomicBool,
    state: Mutex<EndingState>,
}

enum EndingState {
    Open { waker: Option<Waker>, callbacks: Vec<DoneCallback> },
    Ended { result: Result<Outcome>, buffers: Option<OwnedBuffers> },
}

impl Default for EndingState {
    fn default() -> EndingState {
        EndingState::Open { waker: None, callbacks: Vec::new() }
    }
}

/// The work after the end of a call. It is code of the user's program, which may make calls, so the thread that runs it
/// must hold no lock.
#[must_use]
pub struct AfterEnd {
    keepers: Vec<Keeper>,
    /// The task that polled the handle last.
    waker: Option<Waker>,
    result: Result<Outcome>,
    callbacks: Vec<DoneCallback>,
}

impl AfterEnd {
    /// The number of functions that wait for this end.
    pub fn callbacks(&self) -> usize {
        self.callbacks.len()
    }

    /// Drops the keepers of the call's memory, wakes the waiting task, then calls the functions in order of
    /// registration.
    pub fn run(self) {
        let AfterEnd { keepers, waker, result, callbacks } = self;
        keepers.into_iter().for_each(release);
        waker.into_iter().for_each(wake);
        callbacks.into_iter().for_each(|callback| call_back(callback, result.clone()));
    }
}

impl Ending {
    /// The end of a call that ended before its handle was made.
    pub fn ended(result: Result<Outcome>, mut buffers: Option<OwnedBuffers>) -> Ending {
        buffers.iter_mut().for_each(|buffers| drop(buffers.release()));
        let state = Mutex::new(EndingState::Ended { result, buffers });
        Ending { is_done: AtomicBool::new(true), state }
    }

    fn lock(&self) -> MutexGuard<'_, EndingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the call has ended.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    /// Ends the call, unless it has ended. Returns the work after the end, if there is any.
    pub fn end(&self, result: Result<Outcome>, mut buffers: Option<OwnedBuffers>) -> Option<AfterEnd> {
        let keepers: Vec<_> = buffers.iter_mut().flat_map(OwnedBuffers::release).collect();
        let mut state = self.lock();
        let EndingState::Open { waker, callbacks } = &mut *state else { return None };
        let (waker, callbacks) = (waker.take(), std::mem::take(callbacks));
        let has_more = waker.is_some() || !callbacks.is_empty() || !keepers.is_empty();
        let after_end = has_more.then(|| AfterEnd { keepers, waker, result: result.clone(), callbacks });
        *state = EndingState::Ended { result, buffers };
        drop(state);
        self.is_done.store(true, Ordering::Release);
        after_end
    }

    /// The result, for any number of readers; `None` before the end.
    pub fn result(&self) -> Option<Result<Outcome>> {
        match &*self.lock() {
            EndingState::Ended { result, .. } => Some(result.clone()),
            EndingState::Open { .. } => None,
        }
    }

    /// The buffers, for the first caller after the end; else `None`.
    pub fn take_buffers(&self) -> Option<OwnedBuffers> {
        match &mut *self.lock() {
            EndingState::Ended { buffers, .. } => buffers.take(),
            EndingState::Open { .. } => None,
        }
    }

    /// Wakes `new` at the end, instead of the previous waker; at once if the call has ended.
    pub fn register(&self, new: &Waker) {
        // Cloning or dropping a waker runs its executor's code, which must not run under the lock.
        let mut new = Some(new.clone());
        if let EndingState::Open { waker, .. } = &mut *self.lock() {
            std::mem::swap(waker, &mut new);
        } else {
            return new.into_iter().for_each(wake);
        }
        drop(new);
    }

    /// Keeps `callback` for the end. If the call has ended, gives it back with the result.
    #[must_use]
    pub fn on_done(&self, callback: DoneCallback) -> Option<(DoneCallback, Result<Outcome>)> {
        match &mut *self.lock() {
            EndingState::Open { callbacks, .. } => {
                callbacks.push(callback);
                None
            }
            EndingState::Ended { result, .. } => Some((callback, result.clone())),
        }
    }
}
