//! The caller's handle of an asynchronous call: asks, waits, cancels, and drives the links while it waits.

use std::sync::Arc;
use std::task;
use std::time::Instant;

use unisono_communicator::{DoneCallback, Error, Outcome, OwnedBuffers, Result, WorkSource, call_back};

use crate::drive::Shared;
use crate::drive::request::Request;
use crate::links::Links;

/// The caller's handle of a request.
pub(crate) struct RequestHandle<L: Links + 'static> {
    pub(crate) request: Arc<Request>,
    pub(crate) shared: Arc<Shared<L>>,
}

impl<L: Links + 'static> RequestHandle<L> {
    /// Why this thread must not move the communicator's links on behalf of a call that has not ended: it is a forked
    /// child's, or runs a user's function inside a call.
    fn refusal(&self) -> Option<Error> {
        if self.request.is_done() {
            return None;
        }
        self.shared.gate.check_caller(&self.request.descriptor).err()
    }

    /// Why a forked child is told the end of a call at once: no thread of its own brings it about.
    fn refusal_in_child(&self) -> Option<Error> {
        if self.shared.gate.is_owner() { None } else { self.refusal() }
    }
}

impl<L: Links + 'static> WorkSource for RequestHandle<L> {
    fn is_done(&self) -> bool {
        if self.refusal().is_some() {
            return true;
        }
        if !self.request.is_done()
            && let Some(mut guard) = self.shared.try_lock_links()
        {
            // The error, if there is one, has ended every request.
            let _ = self.shared.advance_all(&mut guard);
        }
        self.request.is_done()
    }

    fn wait_until(&self, until: Option<Instant>) {
        if !self.request.is_done() && self.refusal().is_none() {
            self.shared.wait_for(until, || self.request.is_done());
        }
    }

    fn register(&self, waker: &task::Waker) {
        // Before any lock: in a forked child, a thread that does not exist there may hold it.
        if self.refusal().is_some() {
            return waker.wake_by_ref();
        }
        if let Err(error) = self.shared.completions.callbacks().start() {
            // Nobody else would wake the task when the call has failed.
            self.shared.gate.fail(error);
            waker.wake_by_ref();
        }
        self.request.ending.register(waker);
    }

    fn on_done(&self, callback: DoneCallback) {
        if let Some(error) = self.refusal_in_child() {
            return call_back(callback, Err(error));
        }
        if let Err(error) = self.shared.completions.callbacks().start() {
            return call_back(callback, Err(self.shared.gate.fail(error)));
        }
        match self.request.on_done(callback) {
            Some((callback, result)) => call_back(callback, result),
            None => self.shared.progress.hurry(),
        }
    }

    fn result(&self) -> Option<Result<Outcome>> {
        match self.refusal() {
            Some(error) => Some(Err(error)),
            None => self.request.ending.result(),
        }
    }

    fn take_buffers(&self) -> Option<OwnedBuffers> {
        match self.refusal() {
            Some(_) => None,
            None => self.request.ending.take_buffers(),
        }
    }

    fn cancel(&self) {
        if self.request.is_done() || self.refusal().is_some() {
            return;
        }
        let by = self.shared.gate.group().own_job_rank();
        self.shared.gate.revoke(Error::Cancelled { by, call: Box::new(self.request.info()) });
        let mut guard = self.shared.lock_links();
        let _ = self.shared.advance_all(&mut guard);
    }
}
