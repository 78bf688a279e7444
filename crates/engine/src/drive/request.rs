//! An asynchronous call: queued, then run by whoever holds the links, then waiting for its result to be fetched.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task;

use unisono_communicator::{
    CallInfo, Descriptor, Error, Finished, Outcome, OwnedBuffers, OwnedCall, Result, Site,
};

use crate::drive::call::ActiveCall;
use crate::drive::completion::Completions;
use crate::lock;
use unisono_backend::Board;

/// An asynchronous call and its state.
pub(crate) struct Request {
    pub(crate) state: Mutex<RequestState>,
    is_done: AtomicBool,
    waker: Mutex<Option<task::Waker>>,
    completions: Arc<Completions>,
    pub(crate) descriptor: Descriptor,
    site: Site,
    /// For a send or receive: the board that records its end, and its number there.
    noted: Option<(Arc<Board>, u64)>,
}

/// Where a request is.
#[allow(
    clippy::large_enum_variant,
    reason = "every request begins as the largest, so a box would only add memory"
)]
pub(crate) enum RequestState {
    /// Not begun.
    Queued(OwnedCall),
    /// At the head of the queue.
    Active(Box<ActiveRequest>),
    /// Over; the result is there until it is fetched.
    Finished(Option<Finished>),
}

/// A call in progress with the memory that it owns.
pub(crate) struct ActiveRequest {
    pub(crate) active: ActiveCall,
    pub(crate) call: OwnedCall,
}

impl Request {
    /// A request that has not begun.
    pub(crate) fn new(call: OwnedCall, completions: Arc<Completions>) -> Arc<Request> {
        Arc::new(Request::with(call, completions, None))
    }

    /// The request of a send or receive, which `board` remembers.
    pub(crate) fn message(
        call: OwnedCall,
        completions: Arc<Completions>,
        board: &Arc<Board>,
    ) -> Arc<Request> {
        let number = board.enter_message(&call.descriptor, call.site);
        Arc::new(Request::with(call, completions, Some((board.clone(), number))))
    }

    fn with(call: OwnedCall, completions: Arc<Completions>, noted: Option<(Arc<Board>, u64)>) -> Request {
        Request {
            completions,
            noted,
            is_done: AtomicBool::new(false),
            waker: Mutex::new(None),
            descriptor: call.descriptor,
            site: call.site,
            state: Mutex::new(RequestState::Queued(call)),
        }
    }

    /// Whether the call has ended.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    /// Ends the call. Its buffers are lost when a thread panicked with them.
    pub(crate) fn finish(&self, result: Result<Outcome>, buffers: Option<OwnedBuffers>) {
        if let (Some((board, number)), Ok(_)) = (&self.noted, &result) {
            board.leave_message(*number);
        }
        *lock(&self.state) = RequestState::Finished(Some(Finished { result, buffers }));
        self.is_done.store(true, Ordering::Release);
        let waker = lock(&self.waker).take();
        self.completions.announce(waker);
    }

    /// Ends a request with an error, unless it has ended. If a thread panicked with its call, the buffers are lost.
    pub(crate) fn fail(&self, error: Error) {
        if self.is_done() {
            return;
        }
        let state = std::mem::replace(&mut *lock(&self.state), RequestState::Finished(None));
        let buffers = match state {
            RequestState::Queued(call) => Some(call.buffers),
            RequestState::Active(request) => Some(request.call.buffers),
            RequestState::Finished(_) => None,
        };
        self.finish(Err(error), buffers);
    }

    /// Takes the result, once.
    pub(crate) fn take(&self) -> Option<Finished> {
        match &mut *lock(&self.state) {
            RequestState::Finished(finished) => finished.take(),
            RequestState::Queued(_) | RequestState::Active(_) => None,
        }
    }

    /// Wakes a task at the end.
    pub(crate) fn register(&self, waker: &task::Waker) {
        *lock(&self.waker) = Some(waker.clone());
        // The request may have ended between the caller's last check and this registration.
        if self.is_done() {
            waker.wake_by_ref();
        }
    }

    /// The call as errors name it.
    pub(crate) fn info(&self) -> CallInfo {
        let (site, sizes) = (Some(self.site.into()), None);
        CallInfo { number: 0, descriptor: self.descriptor, algorithm: None, site, sizes }
    }
}

#[cfg(test)]
mod tests {
    use unisono_communicator::{CallOptions, Collective, Counts, DType};

    use super::*;

    /// The state that a thread leaves when it panics between taking a call and putting it back.
    #[test]
    fn a_request_whose_call_was_lost_in_a_panic_ends_with_the_error() {
        let descriptor = Descriptor::new(Collective::Barrier, DType::U8, 0);
        let (counts, options, site) = (Counts::Even, CallOptions::default(), Site::caller());
        let buffers = OwnedBuffers::None;
        let call = OwnedCall { descriptor, buffers, counts, options, user_function: None, site };
        let request = Request::new(call, Arc::default());
        drop(std::mem::replace(&mut *lock(&request.state), RequestState::Finished(None)));
        request.fail(Error::Closed);
        assert!(request.is_done());
        let finished = request.take();
        assert!(matches!(finished, Some(Finished { result: Err(Error::Closed), buffers: None })));
    }
}
