//! Handles of asynchronous calls, in the test. Who waits here waits there; the end is fetched once, with the buffers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use unisono_communicator::{
    AfterEnd, DoneCallback, Ending, Outcome, OwnedBuffers, Result, WorkSource, call_back,
};

use super::memory::restore_owned;
use super::messages::{FinishedMessage, Id, Request};
use super::remote::Remote;

/// What the test knows of a call that a rank has begun.
pub(super) struct WorkState {
    remote: Arc<Remote>,
    id: Id,
    function: Option<Id>,
    ending: Ending,
    stage: Mutex<Stage>,
    /// Whether the rank tells the end.
    is_told: AtomicBool,
    /// What waits for the rank to tell the end.
    after_end: Mutex<Option<AfterEnd>>,
}

/// How far the handle of the rank is.
enum Stage {
    /// It is there, and these are the buffers.
    Held(OwnedBuffers),
    /// It was dropped before the end.
    Detached,
    /// It has been fetched.
    Fetched,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WorkState {
    pub(super) fn new(
        remote: Arc<Remote>,
        id: Id,
        function: Option<Id>,
        buffers: OwnedBuffers,
    ) -> Arc<WorkState> {
        Arc::new(WorkState {
            remote,
            id,
            function,
            ending: Ending::default(),
            stage: Mutex::new(Stage::Held(buffers)),
            is_told: AtomicBool::new(false),
            after_end: Mutex::new(None),
        })
    }

    fn end(&self, result: Result<Outcome>, buffers: Option<OwnedBuffers>) {
        if let Some(function) = self.function {
            self.remote.drop_function(function);
        }
        *lock(&self.after_end) = self.ending.end(result, buffers);
    }

    /// Fetches the result and the buffers of what has ended.
    fn fetch(&self) {
        let mut stage = lock(&self.stage);
        let Stage::Held(mut buffers) = std::mem::replace(&mut *stage, Stage::Fetched) else { return };
        match self.remote.ask::<FinishedMessage>(&Request::Finish { work: self.id }) {
            Ok(FinishedMessage { result, parts }) => {
                let buffers = parts.map(|parts| {
                    restore_owned(&mut buffers, &parts);
                    buffers
                });
                self.end(result, buffers);
            }
            Err(gone) => self.end(Err(gone), Some(buffers)),
        }
    }

    /// The rank tells the end.
    pub(super) fn has_ended(&self, result: Result<Outcome>) {
        let is_detached = matches!(*lock(&self.stage), Stage::Detached);
        if is_detached {
            self.end(result, None);
        } else {
            self.fetch();
        }
        self.run_after_end();
    }

    /// What is done by a thread that holds nothing, once the end is known.
    fn run_after_end(&self) {
        // Another thread may be about to fetch it.
        drop(lock(&self.stage));
        let after_end = lock(&self.after_end).take();
        if let Some(after_end) = after_end {
            after_end.run();
        }
    }

    /// Asks the rank to tell the end.
    fn be_told(self: &Arc<Self>) {
        if self.is_told.swap(true, Ordering::SeqCst) {
            return;
        }
        self.remote.keep_work(self.id, self.clone());
        let can_come = self.remote.ask(&Request::Notify { work: self.id }).unwrap_or(false);
        if !can_come {
            // It was fetched meanwhile by a thread that waited, and who runs the functions is this one.
            self.remote.drop_work(self.id);
            self.run_after_end();
        }
    }

    fn detach(&self) {
        let mut stage = lock(&self.stage);
        if matches!(*stage, Stage::Held(_)) {
            *stage = Stage::Detached;
            // When the process has ended there is nothing to detach.
            let _ = self.remote.ask::<()>(&Request::Detach { work: self.id });
        }
    }
}

/// The handle.
pub(super) struct ProxyWork(pub(super) Arc<WorkState>);

impl WorkSource for ProxyWork {
    fn is_done(&self) -> bool {
        let state = &self.0;
        if !state.ending.is_done() && state.remote.ask(&Request::IsDone { work: state.id }).unwrap_or(true) {
            state.fetch();
        }
        state.ending.is_done()
    }

    fn wait_until(&self, until: Option<Instant>, _: &dyn Fn() -> bool) {
        let state = &self.0;
        let left = || until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
        let wait = |timeout| Request::Wait { work: state.id, timeout };
        if !state.ending.is_done() && state.remote.ask(&wait(left())).unwrap_or(true) {
            state.fetch();
        }
    }

    fn register(&self, waker: &Waker) {
        self.0.ending.register(waker);
        self.0.be_told();
    }

    fn on_done(&self, callback: DoneCallback) {
        match self.0.ending.on_done(callback) {
            Some((callback, result)) => call_back(callback, result),
            None => self.0.be_told(),
        }
    }

    fn result(&self) -> Option<Result<Outcome>> {
        self.0.ending.result()
    }

    fn take_buffers(&self) -> Option<OwnedBuffers> {
        self.0.ending.take_buffers()
    }

    fn cancel(&self) {
        // When the process has ended the call has ended too.
        let _ = self.0.remote.ask::<()>(&Request::Cancel { work: self.0.id });
    }
}

impl Drop for ProxyWork {
    fn drop(&mut self) {
        self.0.detach();
    }
}
