//! The handle of an asynchronous call: asks, waits, cancels, and drives the links while it waits.

use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::task;
use std::time::{Duration, Instant};

use unisono_backend::{CollectiveWait, MessageWait};
use unisono_communicator::{
    Descriptor, DoneCallback, Error, Operation, Outcome, OwnedBuffers, Peer, Result, WorkSource, call_back,
};

use crate::calls::request::Request;
use crate::drive::Shared;
use crate::links::Links;

/// A thread's pause between two polls of a call whose communicator another thread is dropping. The drop ends the call.
const DROPPED_PAUSE: Duration = Duration::from_millis(1);

pub(crate) struct RequestHandle<L: Links + 'static> {
    request: Arc<Request>,
    /// Weak, so that the handle of an ended call does not keep the rank in the communicator. While the call runs, the
    /// progress thread keeps the communicator.
    shared: Weak<Shared<L>>,
}

/// The communicator, while a thread looks at one of its calls. If this turns out to be its last handle, a progress
/// thread drops it: that may take seconds, and `is_done` must not wait.
pub(crate) struct Upgraded<L: Links + 'static>(Option<Arc<Shared<L>>>);

impl<L: Links + 'static> Upgraded<L> {
    /// The communicator, if it is still there.
    pub(crate) fn of(shared: &Weak<Shared<L>>) -> Option<Upgraded<L>> {
        shared.upgrade().map(|shared| Upgraded(Some(shared)))
    }
}

impl<L: Links + 'static> Deref for Upgraded<L> {
    type Target = Arc<Shared<L>>;

    fn deref(&self) -> &Arc<Shared<L>> {
        #[expect(clippy::expect_used, reason = "only the drop empties it")]
        self.0.as_ref().expect("not dropped")
    }
}

impl<L: Links + 'static> Drop for Upgraded<L> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take().and_then(Arc::into_inner)
            && shared.gate.is_owner()
        {
            Arc::new(shared).end_last();
        }
    }
}

impl<L: Links + 'static> RequestHandle<L> {
    pub(crate) fn new(request: Arc<Request>, shared: &Arc<Shared<L>>) -> RequestHandle<L> {
        RequestHandle { request, shared: Arc::downgrade(shared) }
    }

    fn shared(&self) -> Option<Upgraded<L>> {
        Upgraded::of(&self.shared)
    }

    /// Wakes the holder of the links if that may end the call: a receive from any rank ends without a message only if
    /// somebody waits for it.
    fn tell_holder(&self, shared: &Shared<L>) {
        let Descriptor { operation, peer, .. } = self.request.descriptor;
        if operation == Operation::Recv && peer == Some(Peer::Any) {
            shared.nudge_holder();
        }
    }

    /// The reason why this thread must not move the links for an unfinished call: it belongs to a forked child, or runs
    /// a user's function inside a call.
    fn refusal(&self, shared: &Shared<L>) -> Option<Error> {
        if self.request.is_done() {
            return None;
        }
        shared.gate.check_caller(&self.request.descriptor).err()
    }

    /// The error that a forked child gets at once, since none of its threads would end the call.
    fn refusal_in_child(&self, shared: &Shared<L>) -> Option<Error> {
        if shared.gate.is_owner() { None } else { self.refusal(shared) }
    }

    /// Waits for the end of a call whose communicator another thread is dropping.
    fn await_drop(&self, until: Option<Instant>, is_enough: &dyn Fn() -> bool) {
        while !self.request.is_done() && !is_enough() && until.is_none_or(|until| Instant::now() < until) {
            std::thread::sleep(DROPPED_PAUSE);
        }
    }
}

impl<L: Links + 'static> WorkSource for RequestHandle<L> {
    fn is_done(&self) -> bool {
        if let Some(shared) = self.shared().filter(|_| !self.request.is_done()) {
            if self.refusal(&shared).is_some() {
                return !shared.gate.is_owner();
            }
            if self.request.note_awaited() {
                self.tell_holder(&shared);
            }
            if let Some(mut guard) = shared.try_lock_links() {
                // An error has ended every request.
                let _ = shared.advance_all(&mut guard);
            }
        }
        self.request.is_done()
    }

    fn wait_until(&self, until: Option<Instant>, is_enough: &dyn Fn() -> bool) {
        if self.request.is_done() {
            return;
        }
        let Some(shared) = self.shared() else { return self.await_drop(until, is_enough) };
        if self.refusal(&shared).is_some() {
            return;
        }
        if self.request.note_awaited() {
            self.tell_holder(&shared);
        }
        let Request { descriptor, site, .. } = &*self.request;
        let board = shared.gate.board().clone();
        let wait = || shared.wait_for(until, || self.request.is_done() || is_enough());
        match descriptor.operation {
            Operation::Send | Operation::Recv => {
                let _shown = MessageWait::new(board, descriptor, *site);
                wait();
            }
            Operation::Collective(_) => {
                let _shown = CollectiveWait::new(board);
                wait();
            }
        }
    }

    fn mover(&self) -> usize {
        self.shared.as_ptr().addr()
    }

    fn register(&self, waker: &task::Waker) {
        if let Some(shared) = self.shared() {
            // This check comes before any lock: in a forked child, a thread that does not exist may hold it.
            if self.refusal(&shared).is_some() {
                return waker.wake_by_ref();
            }
            if let Err(error) = shared.monitor.pool().start() {
                // No thread would wake the task when the call has failed.
                shared.gate.fail(error);
                waker.wake_by_ref();
            }
            if self.request.note_awaited() {
                self.tell_holder(&shared);
                shared.monitor.await_call();
            }
        }
        self.request.ending.register(waker);
    }

    fn on_done(&self, callback: DoneCallback) {
        let shared = self.shared();
        if let Some(shared) = &shared {
            if let Some(error) = self.refusal_in_child(shared) {
                return call_back(callback, Err(error));
            }
            if let Err(error) = shared.monitor.pool().start() {
                return call_back(callback, Err(shared.gate.fail(error)));
            }
        }
        if let Some((callback, result)) = self.request.on_done(callback) {
            call_back(callback, result);
        } else if let Some(shared) = &shared {
            self.tell_holder(shared);
        }
    }

    fn result(&self) -> Option<Result<Outcome>> {
        match self.shared().and_then(|shared| self.refusal(&shared)) {
            Some(error) => Some(Err(error)),
            None => self.request.ending.result(),
        }
    }

    fn take_buffers(&self) -> Option<OwnedBuffers> {
        match self.shared().and_then(|shared| self.refusal(&shared)) {
            Some(_) => None,
            None => self.request.ending.take_buffers(),
        }
    }

    fn cancel(&self) {
        let Some(shared) = self.shared() else { return };
        if self.request.is_done() || self.refusal(&shared).is_some() {
            return;
        }
        let by = shared.gate.group().own_job_rank();
        shared.gate.revoke(Error::Cancelled { by, call: Box::new(self.request.info()) });
        let mut guard = shared.lock_links();
        let _ = shared.advance_all(&mut guard);
    }
}

impl<L: Links + 'static> Drop for RequestHandle<L> {
    fn drop(&mut self) {
        self.request.note_no_handle();
        if !self.request.is_done()
            && let Some(shared) = self.shared()
            && shared.gate.is_owner()
        {
            self.tell_holder(&shared);
        }
    }
}
