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
    OwnedBuffers, OwnedCall, OwnedMemory, Result, Segments, Site, zeroed,
};

use crate::calls::call::Engine;
use crate::calls::pause::Pause;
use crate::calls::request::Request;
use crate::calls::step::Step;
use crate::calls::wait::{Due, Wait};
use crate::drive::{Shared, Task};
use crate::links::Links;
use crate::lock;
use crate::point_to_point::{
    Borrowed, PointToPoint, Posted, WaitingTransfer, are_over, call_asked_about, memory_in_one_piece, pay,
};

/// One in this many idle polls looks at all streams.
const POLLS_PER_ROUND: u32 = 8;

/// Sends and receives on the memory of the caller, who holds the links.
struct LentMessages<'c, 'm, L: Links + 'static> {
    shared: &'c Arc<Shared<L>>,
    lent: &'c mut [Borrowed<'m>],
    wait: Wait,
    has_begun: bool,
    /// The number of idle polls since something moved.
    idle_polls: u32,
    /// Whether the last poll looked at all streams.
    was_round: bool,
    /// Shows the wait to other ranks once the thread sleeps, and the index of the transfer that it shows.
    shown: Option<(usize, MessageWait)>,
}

impl<L: Links + 'static> LentMessages<'_, '_, L> {
    /// Whether another thread has work for the links, so that the transfers need memory of their own.
    fn must_give_way(&self) -> bool {
        self.idle_polls > 0 && (self.shared.monitor.is_wanted() || !self.shared.queue.is_empty())
    }

    /// The first transfer that has not ended.
    fn first(&self) -> usize {
        self.lent.iter().position(|message| !message.is_over()).unwrap_or_default()
    }

    fn waiting(&self) -> WaitingTransfer {
        waiting(self.lent)
    }
}

impl<L: Links + 'static> Task<L> for LentMessages<'_, '_, L> {
    fn step(&mut self, engine: &mut Engine<L>) -> Result<Step> {
        if self.must_give_way() {
            return Ok(Step::Finished);
        }
        let (shared, links) = (self.shared, &mut engine.links);
        shared.hear_of_closing(links);
        let mut messages = lock(&shared.messages);
        if !std::mem::replace(&mut self.has_begun, true) {
            messages.lend(links, self.lent);
        }
        self.was_round = self.idle_polls % POLLS_PER_ROUND == POLLS_PER_ROUND - 1
            || shared.has_messages.load(Ordering::SeqCst);
        let moved = if self.was_round {
            let moved = messages.advance(links, self.lent)?;
            messages.look_after_waits(links.now(), &shared.gate, &shared.options)?;
            moved
        } else {
            messages.advance_lent(links, self.lent)?
        };
        if are_over(self.lent) {
            shared.leave_messages(messages, links, self.lent);
            return Ok(Step::Finished);
        }
        drop(messages);
        if !moved {
            self.idle_polls = self.idle_polls.wrapping_add(1);
            return Ok(Step::Idle);
        }
        self.idle_polls = 0;
        let mut has_moved = false;
        self.lent.iter_mut().for_each(|message| has_moved |= std::mem::take(&mut message.has_moved));
        if has_moved {
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
        lock(&self.shared.messages).pause(&mut engine.links, self.lent, pause);
        pause.end_by(self.wait.next());
        let unfinished = self.lent.iter().filter(|message| !message.is_over());
        pause.awaited.extend(unfinished.filter_map(Borrowed::peer));
        let first = self.first();
        if self.shown.as_ref().is_none_or(|(shown, _)| *shown != first) {
            let (board, Borrowed { descriptor, site, .. }) = (self.shared.gate.board(), &self.lent[first]);
            self.shown = Some((first, MessageWait::new(board.clone(), descriptor, *site)));
        }
        true
    }

    fn lends_links(&self) -> bool {
        false
    }
}

/// The first of these transfers that has not ended, or else the first, for a warning or an error.
fn waiting(lent: &[Borrowed<'_>]) -> WaitingTransfer {
    let unfinished = lent.iter().filter(|message| !message.is_over());
    let others = unfinished.clone().count().saturating_sub(1);
    let shown = unfinished.chain(lent).next();
    #[expect(clippy::expect_used, reason = "a call lends the memory of one transfer at least")]
    let Borrowed { descriptor, site, .. } = shown.expect("a transfer");
    WaitingTransfer::new(*descriptor, *site).beside(others)
}

/// The transfer of a call on its own memory, if this memory is in one piece. A call with a result is over.
#[inline]
fn on_own_memory<'c>(call: &'c mut Call<'_>, result: &Option<Result<Outcome>>) -> Option<Borrowed<'c>> {
    let (descriptor, site) = (call.descriptor, call.site);
    let (message, room) = memory_in_one_piece(call)?;
    Some(Borrowed { result: result.clone(), ..Borrowed::new(descriptor, site, message, room) })
}

impl<L: Links + 'static> Shared<L> {
    /// Blocking sends and receives, which all begin before the first is awaited: gives the result of each, in place of
    /// the `None`s.
    ///
    /// # Errors
    /// An error that ends all calls; see [`unisono_communicator::Life::exchange`].
    pub(crate) fn exchange(
        self: &Arc<Self>,
        calls: &mut [Call<'_>],
        timeout: Duration,
        results: &mut [Option<Result<Outcome>>],
    ) -> Result<()> {
        // Neither a message nor a pair of messages allocates.
        let mut copies = Vec::new();
        let is_lent = match (&mut *calls, &*results) {
            ([one], [result]) => match on_own_memory(one, result) {
                Some(one) => self.lend(&mut [one], timeout, results, &mut copies)?,
                None => false,
            },
            ([one, other], [first, second]) => {
                match (on_own_memory(one, first), on_own_memory(other, second)) {
                    (Some(one), Some(other)) => {
                        self.lend(&mut [one, other], timeout, results, &mut copies)?
                    }
                    (None, _) | (_, None) => false,
                }
            }
            (calls, _) => {
                let all = calls.iter_mut().zip(&*results).map(|(call, result)| on_own_memory(call, result));
                match all.collect::<Option<Vec<_>>>() {
                    Some(mut all) => self.lend(&mut all, timeout, results, &mut copies)?,
                    None => false,
                }
            }
        };
        if !is_lent {
            for (index, call) in calls.iter_mut().enumerate() {
                if results[index].is_none() {
                    copies.push((index, self.post_copy(call, timeout)?));
                }
            }
        }
        for (index, request) in copies {
            results[index] = Some(self.await_copy(&request, &mut calls[index]));
        }
        Ok(())
    }

    /// Moves the messages on the memory of their caller, if the links are free. Messages that have not ended when
    /// another thread needs the links become `copies`. False if the links are taken.
    fn lend(
        self: &Arc<Self>,
        lent: &mut [Borrowed<'_>],
        timeout: Duration,
        results: &mut [Option<Result<Outcome>>],
        copies: &mut Vec<(usize, Arc<Request>)>,
    ) -> Result<bool> {
        if lent.is_empty() {
            return Ok(true);
        }
        let Some(mut guard) = self.try_lock_links().filter(|_| self.queue.is_empty()) else {
            return Ok(false);
        };
        let mut task = LentMessages {
            shared: self,
            lent,
            wait: Wait::new(timeout),
            has_begun: false,
            idle_polls: 0,
            was_round: false,
            shown: None,
        };
        if let Err(error) = guard.drive(&mut task) {
            return Err(self.gate.settle(&mut guard, error));
        }
        let LentMessages { lent, wait, .. } = task;
        if wait.has_warned() && lent.iter().all(|message| matches!(message.result, Some(Ok(_)))) {
            wait.tell_end(self.gate.group(), &waiting(lent), guard.links.now());
        }
        for index in 0..lent.len() {
            let message = &mut lent[index];
            results[index] = message.result.take();
            if results[index].is_none() {
                // The transfer has begun but not ended. With memory of its own, other threads can continue it.
                let copy = owned_call(
                    message.descriptor,
                    message.site,
                    &Segments::One(message.message),
                    message.room.len(),
                )
                .map_err(|error| self.gate.settle(&mut guard, error))?;
                let request = Request::new(copy, self.monitor.clone());
                lock(&self.messages).own(index, lent, request.clone(), wait, guard.links.now());
                copies.push((index, request));
            }
        }
        if !copies.is_empty() {
            self.has_messages.store(true, Ordering::SeqCst);
            drop(guard);
            self.leave_to_progress();
        }
        Ok(true)
    }

    /// Posts a copy of a message.
    fn post_copy(self: &Arc<Self>, call: &Call<'_>, timeout: Duration) -> Result<Arc<Request>> {
        let Buffers::Separate { input: Buffer::Host(input), output: BufferMut::Host(output) } = &call.buffers
        else {
            return Err(Error::invalid("place", "a send has an input and a receive has an output"));
        };
        // The other rank waits for the transfer, so a lack of memory ends the calls of all ranks.
        let owned = owned_call(call.descriptor, call.site, input, output.bytes())
            .map_err(|shortage| self.end_everywhere(shortage))?;
        let request = Request::new(owned, self.monitor.clone());
        self.post_message(Posted::Transfer { request: request.clone(), timeout });
        Ok(request)
    }

    /// Ends lent transfers: leaves unfinished frames to the progress thread, and clears `has_messages` if nothing
    /// is left.
    fn leave_messages(
        self: &Arc<Self>,
        mut messages: MutexGuard<'_, PointToPoint>,
        links: &mut L,
        lent: &mut [Borrowed<'_>],
    ) {
        if messages.leave(links, lent) {
            self.has_messages.store(true, Ordering::SeqCst);
            drop(messages);
            self.leave_to_progress();
        } else if self.has_messages.load(Ordering::SeqCst) && !messages.needs_polls() {
            self.has_messages.store(false, Ordering::SeqCst);
        }
    }

    /// Waits for a message that owns its memory, and copies a received message to the memory of the call.
    fn await_copy(&self, request: &Request, call: &mut Call<'_>) -> Result<Outcome> {
        let outcome = self.await_request(request)?;
        if let Some(OwnedBuffers::Separate { output: OwnedMemory::One(received), .. }) =
            request.ending.take_buffers()
            && request.descriptor.operation == Operation::Recv
            && let Buffers::Separate { output: BufferMut::Host(output), .. } = &mut call.buffers
        {
            let bytes = (outcome.bytes as usize).min(received.bytes().len());
            output.write_front(&Segments::One(&received.bytes()[..bytes]));
        }
        Ok(outcome)
    }

    /// Waits for the end of a request.
    pub(crate) fn await_request(&self, request: &Request) -> Result<Outcome> {
        let shown = MessageWait::new(self.gate.board().clone(), &request.descriptor, request.site);
        self.wait_for(None, || request.is_done());
        drop(shown);
        request.ending.result().unwrap_or(Err(Error::closed()))
    }

    /// Leaves work for messages to the holder of the links.
    pub(crate) fn post_message(self: &Arc<Self>, posted: Posted) {
        let is_first = lock(&self.messages).post(posted);
        self.tell_of_messages(is_first);
    }

    /// Tells the holder of the links that there is work for messages, if it does not know.
    pub(crate) fn tell_of_messages(self: &Arc<Self>, is_news: bool) {
        self.has_messages.store(true, Ordering::SeqCst);
        if is_news {
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
        prepared: None,
        site,
    })
}
