//! Blocking sends and receives: on the caller's own memory while its thread holds the links.
//!
//! A thread that finds the links taken posts its operation, copied, to the holder. A holder whose links are wanted
//! makes its operation an owned one before it lets go. So threads never wait for each other's turns, and a program
//! with one thread copies nothing.

use std::panic::Location;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, CallOptions, Collective, Counts, Descriptor, Error, Outcome,
    OwnedBuffer, OwnedBuffers, OwnedCall, Result, Segments, SegmentsMut, deadline_after, zeroed,
};

use crate::drive::progress::Progress;
use crate::drive::request::Request;
use crate::drive::{LinksGuard, Shared};
use crate::links::Links;
use crate::lock;

use super::PointToPoint;
use super::operation::{Borrowed, late};

/// Of so many idle turns, one looks at all streams.
const TURNS_PER_ROUND: u32 = 8;

/// Longest sleep without looking, against a wake-up lost in a transport.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// How a turn on borrowed memory ended.
enum TurnEnd {
    /// The operation is over.
    Over,
    /// Another thread must go on: the operation needs memory of its own.
    Wanted { started: Instant, deadline: Instant },
}

impl<L: Links + 'static> Shared<L> {
    /// A blocking send or receive.
    pub(crate) fn run_point_to_point(self: &Arc<Self>, call: Call<'_>) -> Result<Outcome> {
        let number = self.gate.board().enter_message(&call.descriptor, call.site);
        let outcome = self.exchange(call)?;
        self.gate.board().leave_message(number);
        Ok(outcome)
    }

    fn exchange(self: &Arc<Self>, mut call: Call<'_>) -> Result<Outcome> {
        let timeout = call.options.timeout.unwrap_or(self.gate.timeout());
        let Buffers::Separate { input: Buffer::Host(input), output: BufferMut::Host(output) } =
            &mut call.buffers
        else {
            return Err(Error::invalid("place", "a send has an input and a receive has an output"));
        };
        let (descriptor, site) = (call.descriptor, call.site);
        if let (Segments::One(message), SegmentsMut::One(room)) = (&*input, &mut *output)
            && self.queue.is_empty()
            && let Some(mut guard) = self.try_lock_links()
        {
            let mut borrowed = Borrowed::new(descriptor, site, message, room);
            let (started, deadline) = match self.drive_borrowed(&mut guard, &mut borrowed, timeout) {
                Ok(TurnEnd::Over) => return borrowed.result.unwrap_or(Err(Error::Closed)),
                Ok(TurnEnd::Wanted { started, deadline }) => (started, deadline),
                Err(error) => return Err(self.gate.settle(&mut guard, error)),
            };
            // What has begun cannot go back, and nobody else can go on with it.
            let owned = owned_call(descriptor, site, &Segments::One(message), borrowed.room.len())
                .map_err(|error| self.gate.settle(&mut guard, error))?;
            let request = Request::new(owned, self.completions.clone());
            lock(&self.messages).own(&borrowed, request.clone(), started, deadline);
            self.has_messages.store(true, Ordering::SeqCst);
            drop(guard);
            self.leave_to_progress();
            return self.await_request(&request, output);
        }
        let owned = owned_call(descriptor, site, input, output.bytes())?;
        let request = Request::new(owned, self.completions.clone());
        self.post_message(request.clone(), timeout);
        self.await_request(&request, output)
    }

    /// Turns of the borrowed operation, and of all other messages, until it is over or the links are wanted.
    fn drive_borrowed(
        self: &Arc<Self>,
        guard: &mut LinksGuard<'_, L>,
        borrowed: &mut Borrowed<'_>,
        timeout: Duration,
    ) -> Result<TurnEnd> {
        let mut wait = Wait::default();
        let mut messages = lock(&self.messages);
        messages.lend(&mut guard.links, borrowed);
        loop {
            let is_round = wait.is_round() || self.has_messages.load(Ordering::SeqCst);
            let links = &mut guard.links;
            let moved = if is_round {
                messages.advance(links, borrowed)
            } else {
                messages.advance_borrowed(links, borrowed)
            };
            let moved = moved?;
            if borrowed.is_over() {
                self.leave_messages(messages, links, borrowed);
                return Ok(TurnEnd::Over);
            }
            drop(messages);
            self.completions.notify_if_any();
            self.gate.check_revoked()?;
            if moved {
                wait.moved();
            } else if let Some(wanted) =
                self.wait_borrowed(guard, borrowed, &mut wait, (timeout, is_round))?
            {
                return Ok(wanted);
            }
            messages = lock(&self.messages);
        }
    }

    /// After an idle turn: gives way, spins or sleeps.
    fn wait_borrowed(
        &self,
        guard: &mut LinksGuard<'_, L>,
        borrowed: &Borrowed<'_>,
        wait: &mut Wait,
        (timeout, was_round): (Duration, bool),
    ) -> Result<Option<TurnEnd>> {
        let now = guard.links.now();
        let started = *wait.started.get_or_insert(now);
        let deadline = deadline_after(started, timeout);
        if now >= deadline {
            return Err(late(&borrowed.descriptor, borrowed.site, (self.gate.group().rank(), started, now)));
        }
        if self.is_wanted() || !self.queue.is_empty() {
            return Ok(Some(TurnEnd::Wanted { started, deadline }));
        }
        if wait.spins(now, self.options.spin) {
            std::thread::yield_now();
        } else if was_round {
            self.sleep_borrowed(guard, borrowed, deadline.min(now + SLEEP_MAX));
        } else {
            wait.ask_for_round();
        }
        Ok(None)
    }

    fn sleep_borrowed(&self, guard: &mut LinksGuard<'_, L>, borrowed: &Borrowed<'_>, until: Instant) {
        let mut interest = Vec::new();
        let mut messages = lock(&self.messages);
        std::mem::swap(&mut interest, &mut messages.interest);
        messages.push_interest(&mut guard.links, borrowed, &mut interest);
        let until = messages.owned().map(|owned| owned.deadline).fold(until, Instant::min);
        drop(messages);
        guard.links.wait(&interest, until);
        interest.clear();
        lock(&self.messages).interest = interest;
    }

    /// After a borrowed operation: sees to it that somebody does what is left to do, and that nobody looks for
    /// messages that are not there.
    fn leave_messages(
        self: &Arc<Self>,
        mut messages: MutexGuard<'_, PointToPoint>,
        links: &mut L,
        borrowed: &mut Borrowed<'_>,
    ) {
        if messages.leave(links, borrowed) {
            self.has_messages.store(true, Ordering::SeqCst);
            drop(messages);
            self.leave_to_progress();
        } else if self.has_messages.load(Ordering::SeqCst) && !messages.is_pending() {
            self.has_messages.store(false, Ordering::SeqCst);
        }
    }

    /// Waits for an operation that owns its memory, and fetches what it received.
    fn await_request(&self, request: &Request, output: &mut SegmentsMut<'_>) -> Result<Outcome> {
        self.wait_for(|| request.is_done());
        let finished = request.take().ok_or(Error::Closed)?;
        let outcome = finished.result?;
        if let Some(OwnedBuffers::Separate { output: received, .. }) = finished.buffers
            && request.descriptor.collective == Collective::Recv
        {
            let bytes = (outcome.bytes as usize).min(received.bytes().len());
            output.write_front(&Segments::One(&received.bytes()[..bytes]));
        }
        Ok(outcome)
    }

    /// Adds an operation that owns its memory to the messages, for whoever holds the links.
    pub(crate) fn post_message(self: &Arc<Self>, request: Arc<Request>, timeout: Duration) {
        let mut messages = lock(&self.messages);
        messages.post(request, timeout);
        self.has_messages.store(true, Ordering::SeqCst);
        drop(messages);
        self.nudge_holder();
        self.leave_to_progress();
    }

    /// The progress thread goes on with what is in the messages.
    fn leave_to_progress(self: &Arc<Self>) {
        if let Err(error) = Progress::notify(self) {
            self.gate.fail(error);
        }
    }
}

/// The same call on memory of its own.
fn owned_call(
    descriptor: Descriptor,
    site: &'static Location<'static>,
    message: &Segments<'_>,
    room_bytes: usize,
) -> Result<OwnedCall> {
    let (input, output) = (OwnedBuffer::new(message.copied()?), OwnedBuffer::new(zeroed::<u8>(room_bytes)?));
    Ok(OwnedCall {
        descriptor,
        buffers: OwnedBuffers::Separate { input, output },
        counts: Counts::Even,
        options: CallOptions::default(),
        user_function: None,
        site,
    })
}

/// How long a borrowed operation has waited.
#[derive(Default)]
struct Wait {
    /// Its first idle turn: an operation that never waits reads no clock.
    started: Option<Instant>,
    idle_since: Option<Instant>,
    idle_turns: u32,
}

impl Wait {
    /// Whether the next turn looks at all streams.
    fn is_round(&self) -> bool {
        self.idle_turns % TURNS_PER_ROUND == TURNS_PER_ROUND - 1
    }

    /// Makes it so: nobody sleeps who has not looked everywhere.
    fn ask_for_round(&mut self) {
        self.idle_turns = TURNS_PER_ROUND - 1;
    }

    /// Something has moved.
    fn moved(&mut self) {
        self.idle_since = None;
        self.idle_turns = 0;
    }

    /// Counts an idle turn. Whether the caller goes on spinning.
    fn spins(&mut self, now: Instant, spin: Duration) -> bool {
        self.idle_turns = self.idle_turns.wrapping_add(1);
        let since = *self.idle_since.get_or_insert(now);
        now.saturating_duration_since(since) < spin
    }
}
