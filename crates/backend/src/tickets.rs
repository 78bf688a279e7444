//! The tickets of one communicator: the calls that are on a device's stream, and the results of ended calls.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use unisono_communicator::{Error, Outcome, Result, Ticket, deadline_after};

use crate::board::CALLS_REMEMBERED;
use crate::lock;

/// Tells the communicators of this process apart.
static ISSUERS: AtomicU64 = AtomicU64::new(0);

/// The tickets of one communicator. A vendor's callback, or a thread that polls the vendor's events, ends the
/// [`OpenTicket`] of a completed call. Any number of threads may wait for that end.
pub struct Tickets {
    issuer: u64,
    state: Mutex<Calls>,
    has_ended: Condvar,
}

#[derive(Default)]
struct Calls {
    issued: u64,
    /// The calls by number, from the first unfinished or remembered call on. Both lists keep their memory, so a program
    /// soon stops allocating for them.
    known: VecDeque<KnownCall>,
    /// The last [`CALLS_REMEMBERED`] ended calls, in the order of their ends.
    ended: VecDeque<u64>,
}

#[derive(Default)]
struct KnownCall {
    result: Option<Result<Outcome>>,
    /// The number of threads that wait for the call or have yet to read its result.
    waiting: u32,
    /// Whether enough calls have ended since to forget this one.
    is_old: bool,
}

impl Calls {
    fn first(&self) -> u64 {
        self.issued - self.known.len() as u64
    }

    fn find(&mut self, number: u64) -> Option<&mut KnownCall> {
        let index = number.checked_sub(self.first())?;
        self.known.get_mut(index as usize)
    }

    /// Notes that call `number` has ended, and forgets old calls.
    fn note_end(&mut self, number: u64) {
        self.ended.push_back(number);
        if self.ended.len() > CALLS_REMEMBERED
            && let Some(oldest) = self.ended.pop_front()
            && let Some(call) = self.find(oldest)
        {
            call.is_old = true;
        }
        while self.known.front().is_some_and(|call| call.is_old && call.waiting == 0) {
            self.known.pop_front();
        }
    }
}

impl Tickets {
    /// A communicator's tickets before its first call.
    pub fn new() -> Arc<Tickets> {
        let issuer = ISSUERS.fetch_add(1, Ordering::Relaxed);
        Arc::new(Tickets { issuer, state: Mutex::default(), has_ended: Condvar::new() })
    }

    /// A ticket for a call that is about to be enqueued.
    pub fn issue(self: &Arc<Self>) -> OpenTicket {
        let mut state = lock(&self.state);
        let number = state.issued;
        state.issued += 1;
        state.known.push_back(KnownCall::default());
        OpenTicket { tickets: self.clone(), number, is_over: false }
    }

    /// The result of the call of `ticket`. Waits for it at most for `timeout`.
    ///
    /// # Errors
    /// As [`unisono_communicator::Communicator::resolve_within`].
    pub fn resolve_within(&self, ticket: Ticket, timeout: Duration) -> Result<Option<Outcome>> {
        let until = deadline_after(Instant::now(), timeout);
        let mut state = lock(&self.state);
        self.check(&state, ticket)?;
        let number = ticket.number();
        loop {
            let call = state.find(number).ok_or_else(|| forgotten(ticket))?;
            if let Some(result) = &call.result {
                return result.clone().map(Some);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            // The count keeps the call until this thread has woken.
            call.waiting += 1;
            let woken = self.has_ended.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            if let Some(call) = state.find(number) {
                call.waiting -= 1;
            }
        }
    }

    fn check(&self, state: &Calls, ticket: Ticket) -> Result<()> {
        if ticket.issuer() != self.issuer {
            let problem = format!("{ticket}, but this communicator is issuer {}", self.issuer);
            return Err(Error::invalid("ticket", problem));
        }
        if ticket.number() >= state.issued {
            let problem = format!("{ticket}, which has issued {} so far", state.issued);
            return Err(Error::invalid("ticket", problem));
        }
        Ok(())
    }

    fn end(&self, number: u64, result: Result<Outcome>) {
        let (mut state, mut is_awaited) = (lock(&self.state), false);
        if let Some(call) = state.find(number) {
            is_awaited = call.waiting > 0;
            // Each number has one `OpenTicket`, and an `OpenTicket` ends once.
            assert!(call.result.replace(result).is_none(), "call {number} has ended before");
            state.note_end(number);
        }
        drop(state);
        // To wake nobody is a call of the kernel too.
        if is_awaited {
            self.has_ended.notify_all();
        }
    }
}

fn forgotten(ticket: Ticket) -> Error {
    let problem = format!("{ticket} is forgotten: {CALLS_REMEMBERED} calls have completed since");
    Error::invalid("ticket", problem)
}

/// A call that has been issued and has not completed.
#[must_use]
pub struct OpenTicket {
    tickets: Arc<Tickets>,
    number: u64,
    is_over: bool,
}

impl OpenTicket {
    /// The ticket.
    pub fn ticket(&self) -> Ticket {
        Ticket::new(self.tickets.issuer, self.number)
    }

    /// Notes that the stream has completed the call, or that it has failed. Wakes the threads that wait for it.
    pub fn end(mut self, result: Result<Outcome>) {
        self.is_over = true;
        self.tickets.end(self.number, result);
    }
}

impl Drop for OpenTicket {
    /// Ends the call if nothing has ended it, for instance after a panic: else threads would wait for ever.
    fn drop(&mut self) {
        if !self.is_over {
            let (what, text) = (self.ticket().to_string(), "dropped before its call had ended".to_owned());
            self.tickets.end(self.number, Err(Error::System { what, text }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(result: Result<Option<Outcome>>) -> String {
        match result {
            Err(Error::InvalidArgument { argument: "ticket", problem, .. }) => problem,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn everybody_gets_the_answer_once_there_is_one() {
        let tickets = Tickets::new();
        let (first, second) = (tickets.issue(), tickets.issue());
        let ask = |ticket| tickets.resolve_within(ticket, Duration::ZERO);
        assert_eq!(ask(first.ticket()).unwrap(), None);
        let waited = first.ticket();
        std::thread::scope(|scope| {
            let wait = || scope.spawn(|| tickets.resolve_within(waited, Duration::MAX));
            let waiting = [wait(), wait(), wait()];
            let (ticket, outcome) = (second.ticket(), Outcome::done(8, "test"));
            second.end(Ok(outcome));
            assert_eq!((ask(ticket).unwrap(), ask(ticket).unwrap()), (Some(outcome), Some(outcome)));
            first.end(Err(Error::closed()));
            for thread in waiting {
                assert!(matches!(thread.join().unwrap(), Err(Error::Closed { .. })));
            }
        });
        assert!(matches!(ask(waited), Err(Error::Closed { .. })));
    }

    #[test]
    fn foreign_and_unknown_tickets_are_named() {
        let (own, other) = (Tickets::new(), Tickets::new());
        let (ticket, foreign) = (own.issue(), other.issue());
        let ask = |ticket| problem(own.resolve_within(ticket, Duration::MAX));
        let text = ask(foreign.ticket());
        assert_eq!(text, format!("{}, but this communicator is issuer {}", foreign.ticket(), own.issuer));
        let text = ask(Ticket::new(own.issuer, 5));
        assert_eq!(text, format!("ticket 5 of issuer {}, which has issued 1 so far", own.issuer));
        drop((ticket, foreign));
    }

    #[test]
    fn the_oldest_that_have_ended_are_forgotten_and_those_under_way_are_not() {
        let tickets = Tickets::new();
        let under_way = tickets.issue();
        let ended: Vec<_> = (0..=CALLS_REMEMBERED as u64)
            .map(|bytes| {
                let call = tickets.issue();
                let ticket = call.ticket();
                call.end(Ok(Outcome::done(bytes, "test")));
                ticket
            })
            .collect();
        let ask = |ticket| tickets.resolve_within(ticket, Duration::ZERO);
        assert_eq!(ask(under_way.ticket()).unwrap(), None);
        assert_eq!(ask(ended[0]).unwrap(), Some(Outcome::done(0, "test")));
        let first = under_way.ticket();
        let late = Outcome::done(7, "test");
        under_way.end(Ok(late));
        assert_eq!(ask(first).unwrap(), Some(late));
        (0..CALLS_REMEMBERED).for_each(|_| tickets.issue().end(Ok(late)));
        assert!(problem(ask(first)).contains(" is forgotten"));
        assert!(problem(ask(ended[1])).contains(" is forgotten"));
        assert_eq!(lock(&tickets.state).known.len(), CALLS_REMEMBERED);
    }

    #[test]
    fn a_call_that_nobody_ends_ends_with_its_ticket() {
        let tickets = Tickets::new();
        let call = tickets.issue();
        let ticket = call.ticket();
        drop(call);
        let error = tickets.resolve_within(ticket, Duration::MAX).unwrap_err();
        assert!(error.to_string().ends_with(": dropped before its call had ended"), "{error}");
    }
}
