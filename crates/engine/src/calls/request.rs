//! An asynchronous call: first it is queued, then the thread that holds the links runs it, at last its result can be
//! fetched.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use unisono_communicator::{
    CallInfo, Descriptor, DoneCallback, Ending, Error, Outcome, OwnedBuffers, OwnedCall, RecordedEnd, Result,
    Site,
};

use crate::calls::call::ActiveCall;
use crate::calls::monitor::Monitor;
use crate::lock;
use unisono_backend::{Board, Enclosing, EnteredMessage};

/// An asynchronous call and its state.
pub(crate) struct Request {
    pub(crate) state: Mutex<RequestState>,
    pub(crate) ending: Ending,
    monitor: Arc<Monitor>,
    pub(crate) descriptor: Descriptor,
    pub(crate) site: Site,
    /// The parent call and the deadline of its scope, if it is in one.
    pub(crate) enclosing: Option<Enclosing>,
    /// The board that counts the call until its end, unless the caller waits for it.
    board: Option<Arc<Board>>,
    listeners: Listeners,
    /// A send or receive, as that board has recorded its start.
    message: Option<EnteredMessage>,
}

/// The interest in the end of a request.
#[derive(Default)]
struct Listeners {
    /// A thread waits, or has asked.
    is_awaited: AtomicBool,
    has_callback: AtomicBool,
    has_no_handle: AtomicBool,
}

/// The states of a request.
#[allow(clippy::large_enum_variant, reason = "it lies in its request, which is allocated once for each call")]
pub(crate) enum RequestState {
    /// The call has not begun.
    Queued(OwnedCall),
    /// The call is at the head of the queue.
    Active(Box<ActiveRequest>),
    /// The call has ended, or the thread that moves it has taken it.
    Taken,
}

/// A call in progress and its memory.
pub(crate) struct ActiveRequest {
    pub(crate) active: ActiveCall,
    pub(crate) call: OwnedCall,
}

impl ActiveRequest {
    /// Its memory; `None` while a body uses it.
    pub(crate) fn into_buffers(mut self) -> Option<OwnedBuffers> {
        self.active.move_out(self.call.buffers)
    }
}

impl Request {
    /// The request of a caller that waits for its end.
    pub(crate) fn new(call: OwnedCall, monitor: Arc<Monitor>) -> Arc<Request> {
        let request = Request::with(call, monitor);
        request.note_awaited();
        Arc::new(request)
    }

    /// The request of a collective, which may be in a scope.
    pub(crate) fn collective(
        call: OwnedCall,
        monitor: Arc<Monitor>,
        enclosing: Option<Enclosing>,
        board: &Arc<Board>,
    ) -> Arc<Request> {
        board.unfinished().note_start(true);
        let request = Request::with(call, monitor);
        Arc::new(Request { enclosing, board: Some(board.clone()), ..request })
    }

    /// The request of a send or receive, which `board` records.
    pub(crate) fn message(call: OwnedCall, monitor: Arc<Monitor>, board: &Arc<Board>) -> Arc<Request> {
        board.unfinished().note_start(false);
        let message = Some(board.enter_message(&call.descriptor, &call.options, call.site));
        Arc::new(Request { message, board: Some(board.clone()), ..Request::with(call, monitor) })
    }

    fn with(call: OwnedCall, monitor: Arc<Monitor>) -> Request {
        Request {
            monitor,
            enclosing: None,
            board: None,
            listeners: Listeners::default(),
            message: None,
            ending: Ending::default(),
            descriptor: call.descriptor,
            site: call.site,
            state: Mutex::new(RequestState::Queued(call)),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.ending.is_done()
    }

    /// Ends the call. `buffers` is `None` if a thread panicked with them.
    pub(crate) fn finish(&self, result: Result<Outcome>, buffers: Option<OwnedBuffers>) {
        if let Some(board) = &self.board {
            if let Some(message) = self.message {
                board.leave_message(message, (&self.descriptor, self.site), RecordedEnd::from(&result));
            }
            board.unfinished().note_end(self.message.is_none(), result.is_ok());
        }
        let call = format_args!("{}{}", self.descriptor, self.site.at());
        let result = result.map_err(|error| error.in_call(&call));
        self.monitor.announce(self.ending.end(result, buffers), || self.is_awaited());
    }

    /// Ends the call with an error, unless it has ended.
    pub(crate) fn fail(&self, error: Error) {
        if self.is_done() {
            return;
        }
        let state = std::mem::replace(&mut *lock(&self.state), RequestState::Taken);
        let buffers = match state {
            RequestState::Queued(call) => Some(call.buffers),
            RequestState::Active(request) => request.into_buffers(),
            RequestState::Taken => None,
        };
        self.finish(Err(error), buffers);
    }

    /// Notes that a thread waits for the end, or asks for it. True the first time.
    pub(crate) fn note_awaited(&self) -> bool {
        !self.listeners.is_awaited.swap(true, Ordering::SeqCst)
    }

    /// Notes that the handle is gone.
    pub(crate) fn note_no_handle(&self) {
        self.listeners.has_no_handle.store(true, Ordering::SeqCst);
    }

    /// Whether a thread, or a function of the program, waits for the end.
    pub(crate) fn is_awaited(&self) -> bool {
        let Listeners { is_awaited, has_callback, .. } = &self.listeners;
        is_awaited.load(Ordering::SeqCst) || has_callback.load(Ordering::SeqCst)
    }

    /// Whether the handle is gone, and no function of the program waits for the end.
    pub(crate) fn is_abandoned(&self) -> bool {
        let Listeners { has_no_handle, has_callback, .. } = &self.listeners;
        has_no_handle.load(Ordering::SeqCst) && !has_callback.load(Ordering::SeqCst)
    }

    /// Keeps `callback` for the end. If the call has ended, gives it back with the result.
    pub(crate) fn on_done(&self, callback: DoneCallback) -> Option<(DoneCallback, Result<Outcome>)> {
        self.listeners.has_callback.store(true, Ordering::SeqCst);
        self.monitor.await_callback();
        let given_back = self.ending.on_done(callback);
        if given_back.is_some() {
            self.monitor.forget_callback();
        }
        given_back
    }

    pub(crate) fn info(&self) -> CallInfo {
        let parent = self.enclosing.as_ref().map(|enclosing| enclosing.parent.clone());
        CallInfo { site: self.site.text(), parent, ..CallInfo::new(0, self.descriptor) }
    }
}

#[cfg(test)]
mod tests {
    use unisono_communicator::{Collective, DType};

    use super::*;

    /// The state that a thread leaves if it panics between taking a call and putting it back.
    #[test]
    fn a_request_whose_call_was_lost_in_a_panic_ends_with_the_error() {
        let descriptor = Descriptor::new(Collective::Barrier, DType::U8, 0);
        let request = Request::new(OwnedCall::new(descriptor, OwnedBuffers::None), Arc::default());
        drop(std::mem::replace(&mut *lock(&request.state), RequestState::Taken));
        request.fail(Error::closed());
        assert!(request.is_done());
        assert!(matches!(request.ending.result(), Some(Err(Error::Closed { .. }))));
        assert!(request.ending.take_buffers().is_none());
    }
}
