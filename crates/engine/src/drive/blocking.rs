//! Blocking sends and receives. They use the caller's own memory while its thread holds the links.
//!
//! A thread that finds the links taken copies its transfer and posts it to the holder. A holder that must give the
//! links up copies its own transfer first. So threads never wait for each other's transfers, and a program with one
//! thread copies nothing.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use unisono_backend::MessageWait;
use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, CallOptions, Counts, Descriptor, Error, Operation, Outcome,
    OwnedBuffers, OwnedCall, OwnedMemory, Result, Segments, SegmentsMut, Site, zeroed,
};

use crate::calls::call::Engine;
use crate::calls::pause::Pause;
use crate::calls::request::Request;
use crate::calls::step::Step;
use crate::calls::wait::{Due, Wait};
use crate::drive::{Shared, Task};
use crate::links::Links;
use crate::lock;
use crate::point_to_point::{Borrowed, PointToPoint, WaitingTransfer, call_asked_about, pay};

/// One in this many idle polls looks at all streams.
const POLLS_PER_ROUND: u32 = 8;

/// A send or receive on the memory of the caller, who holds the links.
struct OneMessage<'c, 'm, L: Links + 'static> {
    shared: &'c Arc<Shared<L>>,
    borrowed: Borrowed<'m>,
    wait: Wait,
    has_begun: bool,
    /// The number of idle polls since something moved.
    idle_polls: u32,
    /// Whether the last poll looked at all streams.
    was_round: bool,
    /// Shows the wait to other ranks once the thread sleeps.
    shown: Option<MessageWait>,
}

impl<L: Links + 'static> OneMessage<'_, '_, L> {
    /// Whether another thread has work for the links, so that the transfer needs memory of its own.
    fn must_give_way(&self) -> bool {
        self.idle_polls > 0 && (self.shared.monitor.is_wanted() || !self.shared.queue.is_empty())
    }
}

impl<L: Links + 'static> Task<L> for OneMessage<'_, '_, L> {
    fn step(&mut self, engine: &mut Engine<L>) -> Result<Step> {
        if self.must_give_way() {
            return Ok(Step::Finished);
        }
        let (shared, links, borrowed) = (self.shared, &mut engine.links, &mut self.borrowed);
        shared.hear_of_closing(links);
        let mut messages = lock(&shared.messages);
        if !std::mem::replace(&mut self.has_begun, true) {
            messages.lend(links, borrowed);
        }
        self.was_round = self.idle_polls % POLLS_PER_ROUND == POLLS_PER_ROUND - 1
            || shared.has_messages.load(Ordering::SeqCst);
        let moved = if self.was_round {
            let moved = messages.advance(links, borrowed)?;
            messages.look_after_waits(links.now(), &shared.gate, &shared.options)?;
            moved
        } else {
            messages.advance_borrowed(links, borrowed)?
        };
        if borrowed.is_over() {
            shared.leave_messages(messages, links, borrowed);
            return Ok(Step::Finished);
        }
        drop(messages);
        if !moved {
            self.idle_polls = self.idle_polls.wrapping_add(1);
            return Ok(Step::Idle);
        }
        self.idle_polls = 0;
        if std::mem::take(&mut borrowed.has_moved) {
            self.wait.moved();
            return Ok(Step::Moved);
        }
        Ok(Step::OthersMoved)
    }

    fn idle(&mut self, _engine: &mut Engine<L>, now: Instant) -> Result<()> {
        let gate = &self.shared.gate;
        match self.wait.look(now, &self.shared.options) {
            Due::Nothing => Ok(()),
            Due::End => Err(self.waiting().late(&self.wait, gate.peers(), now)),
            Due::Attention(due) => {
                let number = call_asked_about(gate);
                self.wait.ask_about(number);
                let waiting = self.waiting();
                pay(due, &mut self.wait, gate, &waiting, number);
                Ok(())
            }
        }
    }

    fn pause(&mut self, engine: &mut Engine<L>, pause: &mut Pause) -> bool {
        if !self.was_round {
            // The next poll must look at all streams, because a sleep follows it.
            self.idle_polls = POLLS_PER_ROUND - 1;
            return false;
        }
        lock(&self.shared.messages).pause(&mut engine.links, &self.borrowed, pause);
        pause.end_by(self.wait.next());
        pause.awaited.extend(self.waiting().awaited());
        let (board, borrowed) = (self.shared.gate.board(), &self.borrowed);
        self.shown
            .get_or_insert_with(|| MessageWait::new(board.clone(), &borrowed.descriptor, borrowed.site));
        true
    }

    fn lends_links(&self) -> bool {
        false
    }
}

impl<L: Links + 'static> OneMessage<'_, '_, L> {
    fn waiting(&self) -> WaitingTransfer {
        let Borrowed { descriptor, site, .. } = self.borrowed;
        WaitingTransfer::new(descriptor, site)
    }
}

impl<L: Links + 'static> Shared<L> {
    /// A blocking send or receive.
    ///
    /// # Errors
    /// As [`unisono_communicator::Executor::execute`].
    pub(crate) fn exchange(self: &Arc<Self>, call: &mut Call<'_>) -> Result<Outcome> {
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
            let mut task = OneMessage {
                shared: self,
                borrowed: Borrowed::new(descriptor, site, message, room),
                wait: Wait::new(timeout),
                has_begun: false,
                idle_polls: 0,
                was_round: false,
                shown: None,
            };
            if let Err(error) = guard.drive(&mut task) {
                return Err(self.gate.settle(&mut guard, error));
            }
            let OneMessage { borrowed, wait, .. } = task;
            if let Some(result) = borrowed.result {
                if wait.has_warned() && result.is_ok() {
                    let waiting = WaitingTransfer::new(descriptor, site);
                    wait.tell_end(self.gate.group(), &waiting, guard.links.now());
                }
                return result;
            }
            // The transfer has begun but not ended. With memory of its own, other threads can continue it.
            let owned = owned_call(descriptor, site, &Segments::One(message), borrowed.room.len())
                .map_err(|error| self.gate.settle(&mut guard, error))?;
            let request = Request::new(owned, self.monitor.clone());
            lock(&self.messages).own(&borrowed, request.clone(), wait, guard.links.now());
            self.has_messages.store(true, Ordering::SeqCst);
            drop(guard);
            self.leave_to_progress();
            return self.await_request(&request, output);
        }
        // The other rank waits for the transfer, so a lack of memory ends the calls of all ranks.
        let owned = owned_call(descriptor, site, input, output.bytes())
            .map_err(|shortage| self.end_everywhere(shortage))?;
        let request = Request::new(owned, self.monitor.clone());
        self.post_message(request.clone(), timeout);
        self.await_request(&request, output)
    }

    /// Ends a borrowed transfer: leaves unfinished frames to the progress thread, and clears `has_messages` if nothing
    /// is left.
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
        } else if self.has_messages.load(Ordering::SeqCst) && !messages.needs_polls() {
            self.has_messages.store(false, Ordering::SeqCst);
        }
    }

    /// Waits for a transfer that owns its memory, and copies a received message to `output`.
    fn await_request(&self, request: &Request, output: &mut SegmentsMut<'_>) -> Result<Outcome> {
        let shown = MessageWait::new(self.gate.board().clone(), &request.descriptor, request.site);
        self.wait_for(None, || request.is_done());
        drop(shown);
        let outcome = request.ending.result().unwrap_or(Err(Error::closed()))?;
        if let Some(OwnedBuffers::Separate { output: OwnedMemory::One(received), .. }) =
            request.ending.take_buffers()
            && request.descriptor.operation == Operation::Recv
        {
            let bytes = (outcome.bytes as usize).min(received.bytes().len());
            output.write_front(&Segments::One(&received.bytes()[..bytes]));
        }
        Ok(outcome)
    }

    /// Posts a transfer that owns its memory. The holder of the links moves it.
    pub(crate) fn post_message(self: &Arc<Self>, request: Arc<Request>, timeout: Duration) {
        let mut messages = lock(&self.messages);
        let is_first = messages.post(request, timeout);
        self.has_messages.store(true, Ordering::SeqCst);
        drop(messages);
        if is_first {
            self.nudge_holder();
            self.leave_to_progress();
        }
    }

    /// Makes the progress thread continue with the messages.
    fn leave_to_progress(self: &Arc<Self>) {
        if let Err(error) = self.ask_for_progress() {
            self.gate.fail(error);
        }
    }
}

/// Copies a call into memory of its own.
fn owned_call(
    descriptor: Descriptor,
    site: Site,
    message: &Segments<'_>,
    room_bytes: usize,
) -> Result<OwnedCall> {
    let (input, output) = (OwnedMemory::of(message.copied()?), OwnedMemory::of(zeroed::<u8>(room_bytes)?));
    Ok(OwnedCall {
        descriptor,
        buffers: OwnedBuffers::Separate { input, output },
        stream: None,
        counts: Counts::Even,
        options: CallOptions::default(),
        user_function: None,
        scope: None,
        body: None,
        site,
    })
}
