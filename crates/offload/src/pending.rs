//! Calls that are under way on streams: the resources that they keep until their work is done, and the search for their
//! ends.

#![expect(unsafe_code, reason = "events and streams of a device, by their handles")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use unisono_backend::{Board, Companion, OpenTicket, Tickets};
use unisono_communicator::{Ending, Error, Outcome, OwnedBuffers, Result, Ticket, deadline_after};

use crate::device::{Device, RawEvent};
use crate::known::{Known, end_messages};
use crate::staged::Allocation;
use crate::vendor::Vendor;

/// A call that was enqueued.
pub(crate) struct Enqueued<V: Vendor> {
    /// Behind its work.
    pub(crate) event: RawEvent,
    /// Memory that its work uses besides its own.
    pub(crate) scratch: Option<Allocation<V>>,
    /// Its outcome when its work is done.
    pub(crate) outcome: Outcome,
}

/// A call whose work is on a stream.
struct PendingCall<V: Vendor> {
    known: Known,
    since: Instant,
    /// The deadline, after which the call is given up.
    until: Instant,
    enqueued: Enqueued<V>,
    /// The handle of an asynchronous call.
    handle: Option<Handle>,
    /// `None` if the call is over, and only waits for an earlier call.
    ticket: Option<OpenTicket>,
}

/// The debts of an asynchronous call at its end: a result, and the buffers.
pub(crate) struct Handle {
    pub(crate) ending: Arc<Ending>,
    pub(crate) buffers: OwnedBuffers,
}

/// A handle whose call is over. A thread that holds no lock passes the result on.
pub(crate) struct Over {
    handle: Handle,
    result: Result<Outcome>,
    /// Whether the work may still use the call's memory. Then the memory is never freed.
    is_in_use: bool,
}

impl Over {
    /// Passes the result to the waiters of the call.
    pub(crate) fn tell(self, companion: &Companion) {
        let Over { handle: Handle { ending, buffers }, result, is_in_use } = self;
        let buffers = if is_in_use {
            // The end of the work, after which the memory could be freed, will not be known.
            std::mem::forget(buffers);
            None
        } else {
            Some(buffers)
        };
        ending.end(result, buffers).into_iter().for_each(|after_end| companion.run_after(after_end));
    }
}

/// The calls of a communicator that are under way on streams.
pub(crate) struct Pending<V: Vendor> {
    vendor: Arc<V>,
    tickets: Arc<Tickets>,
    /// The number of calls that are not over, for readers without the lock.
    open: AtomicUsize,
    /// Whether the library was told to end its work. Work that is done afterwards may have been cut off.
    is_aborted: AtomicBool,
    state: Mutex<Underway<V>>,
}

struct Underway<V: Vendor> {
    /// The calls in the order in which they were enqueued. The first is not over.
    calls: VecDeque<PendingCall<V>>,
    /// Events that no call uses.
    events: Vec<RawEvent>,
    over: Vec<Over>,
}

/// A call that is not over.
#[derive(Clone, Debug)]
pub(crate) struct Oldest {
    pub(crate) known: Known,
    pub(crate) since: Instant,
    pub(crate) until: Instant,
}

impl<V: Vendor> Pending<V> {
    /// No calls.
    pub(crate) fn new(vendor: &Arc<V>) -> Pending<V> {
        let state = Underway { calls: VecDeque::new(), events: Vec::new(), over: Vec::new() };
        let (vendor, tickets) = (vendor.clone(), Tickets::new());
        let (open, is_aborted) = (AtomicUsize::new(0), AtomicBool::new(false));
        Pending { vendor, tickets, open, is_aborted, state: Mutex::new(state) }
    }

    pub(crate) fn tickets(&self) -> &Arc<Tickets> {
        &self.tickets
    }

    fn lock(&self) -> MutexGuard<'_, Underway<V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An event to record behind the work of a call.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn event(&self, device: &dyn Device) -> Result<RawEvent> {
        let kept = self.lock().events.pop();
        kept.map_or_else(|| device.create_event(), Ok)
    }

    /// Takes back an event that no call has recorded.
    pub(crate) fn take_back(&self, event: RawEvent) {
        self.lock().events.push(event);
    }

    /// Adds a call, which is the newest and may take `timeout`.
    pub(crate) fn push(
        &self,
        known: Known,
        timeout: Duration,
        enqueued: Enqueued<V>,
        handle: Option<Handle>,
    ) -> Ticket {
        let (since, open) = (Instant::now(), self.tickets.issue());
        let (ticket, until) = (open.ticket(), deadline_after(since, timeout));
        self.open.fetch_add(1, Ordering::SeqCst);
        let call = PendingCall { known, since, until, enqueued, handle, ticket: Some(open) };
        self.lock().calls.push_back(call);
        ticket
    }

    /// Notes that the library is about to be told to end its work. Work that is not known to be done by now counts as
    /// failed.
    pub(crate) fn note_abort(&self) {
        self.is_aborted.store(true, Ordering::SeqCst);
    }

    /// Whether every call is over.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.load(Ordering::SeqCst) == 0
    }

    /// The oldest call whose deadline has passed by `now`, else the oldest of all, if it was enqueued before `young`.
    pub(crate) fn oldest(&self, now: Instant, young: Duration) -> Option<Oldest> {
        let state = self.lock();
        let late = state.calls.iter().find(|call| call.ticket.is_some() && now >= call.until);
        let old = || state.calls.front().filter(|call| now.saturating_duration_since(call.since) >= young);
        let PendingCall { known, since, until, .. } = late.or_else(old)?;
        Some(Oldest { known: known.clone(), since: *since, until: *until })
    }

    /// Ends the calls whose work is done. If events do not report failures, it asks `late_error`.
    ///
    /// # Errors
    /// The error of the first call whose work has failed. This call has not ended yet.
    pub(crate) fn reap(&self, board: &Board, late_error: &dyn Fn() -> Result<()>) -> Result<()> {
        let Some(device) = self.vendor.device() else { return Ok(()) };
        if self.is_empty() {
            return Ok(());
        }
        let state = &mut *self.lock();
        let mut failed = Ok(());
        for call in state.calls.iter_mut().filter(|call| call.ticket.is_some()) {
            // SAFETY: the event is of this device, was recorded, and is freed only by this value.
            let told = unsafe { device.is_done(call.enqueued.event) };
            let is_done = match told {
                Ok(true) | Err(_) if !V::EVENTS_TELL_ERRORS => late_error().and(told),
                told => told,
            };
            match is_done {
                // The abort is checked after the event: without an abort, the work was done before anything could cut
                // it off.
                Ok(true) if self.is_aborted.load(Ordering::SeqCst) => {}
                Ok(true) => {
                    let outcome = call.enqueued.outcome;
                    self.end(board, call, &mut state.over, (Ok(outcome), false));
                }
                Ok(false) => {}
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        state.remove_ended(board);
        failed
    }

    /// Ends the calls whose work is done, and then all others with `cause`. `abort` returns whether the work of these
    /// others has ended.
    pub(crate) fn fail(
        &self,
        board: &Board,
        cause: &Error,
        late_error: &dyn Fn() -> Result<()>,
        abort: impl FnOnce() -> bool,
    ) {
        if self.is_empty() {
            return;
        }
        // Calls whose work has failed fail with `cause` below.
        let _ = self.reap(board, late_error);
        let state = &mut *self.lock();
        let is_in_use = !state.calls.is_empty() && !abort();
        for call in state.calls.iter_mut().filter(|call| call.ticket.is_some()) {
            self.end(board, call, &mut state.over, (Err(cause.clone()), is_in_use));
        }
        // The board does not get these calls as finished.
        board.fail_running();
        for call in state.calls.drain(..) {
            match call.known {
                Known::Collective { number, recorded } => board.fail_forgotten(number, recorded),
                Known::Messages(_) => {}
            }
            if !is_in_use {
                state.events.push(call.enqueued.event);
            }
        }
    }

    /// The handles of calls that are over, for a thread that passes the results on.
    pub(crate) fn take_over(&self) -> Vec<Over> {
        std::mem::take(&mut self.lock().over)
    }

    /// Ends a call with its result. The flag says whether its work may still use its memory.
    fn end(
        &self,
        board: &Board,
        call: &mut PendingCall<V>,
        over: &mut Vec<Over>,
        (result, is_in_use): (Result<Outcome>, bool),
    ) {
        let Some(ticket) = call.ticket.take() else { return };
        match &call.known {
            Known::Collective { .. } => {}
            Known::Messages(messages) => end_messages(board, messages, result.is_ok()),
        }
        self.open.fetch_sub(1, Ordering::SeqCst);
        let scratch = call.enqueued.scratch.take();
        if is_in_use {
            std::mem::forget(scratch);
        }
        let handle = call.handle.take();
        over.extend(handle.map(|handle| Over { handle, result: result.clone(), is_in_use }));
        ticket.end(result);
    }
}

impl<V: Vendor> Underway<V> {
    /// Forgets the first calls that are over.
    fn remove_ended(&mut self, board: &Board) {
        while self.calls.front().is_some_and(|call| call.ticket.is_none())
            && let Some(call) = self.calls.pop_front()
        {
            match call.known {
                Known::Collective { number, recorded } => board.finish(number, recorded),
                Known::Messages(_) => {}
            }
            self.events.push(call.enqueued.event);
        }
    }
}

impl<V: Vendor> Drop for Pending<V> {
    fn drop(&mut self) {
        let Some(device) = self.vendor.device() else { return };
        for event in self.lock().events.drain(..) {
            // SAFETY: the event is of this device, and no call uses it.
            unsafe { device.destroy_event(event) };
        }
    }
}
