//! Messages between two ranks on memory of a device: a group of the library's sends and receives, on the stream of
//! their calls.
//!
//! A library has neither tags nor headers, so messages of a pair match in their order, and nothing compares them: a
//! message that the other rank does not make, or makes with another length, ends by its deadline. Messages get no
//! number, since the ranks beside the pair do not make them. They take turns with the collectives all the same: a
//! library makes the calls of one communicator in one order.

#![expect(unsafe_code, reason = "calls a vendor's library on memory of a device")]

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use unisono_communicator::{
    Awaited, Call, CallInfo, Completion, DeviceBuffer, Error, GroupRank, MemoryKind, Operation, Outcome,
    Peer, Result, deadline_after,
};

use crate::device::RawStream;
use crate::enqueue::{NotEnqueued, Piece, Put, Sides, Target};
use crate::known::{Known, OnStreamMessage, OnStreamMessages, end_messages};
use crate::offloaded::{Dispatch, Offloaded};
use crate::pending::Enqueued;
use crate::program::{Region, Span};
use crate::run::Start;
use crate::staged::Allocation;
use crate::tend::NAMED_MAX;
use crate::thread::VendorShared;
use crate::vendor::{NativeCall, Vendor};
use crate::watch::{Inline, Stall, Stuck};

/// The first message of a group as errors name it.
pub(crate) fn message_info(messages: &[OnStreamMessage]) -> Option<CallInfo> {
    let OnStreamMessage { descriptor, site, .. } = messages.first()?;
    Some(CallInfo { site: Some((*site).into()), ..CallInfo::new(0, *descriptor) })
}

/// One message of a group.
#[derive(Clone, Copy)]
struct Part<'a> {
    list: &'a DeviceBuffer,
    piece: Piece,
    bytes: usize,
    is_send: bool,
    peer: u32,
}

/// A typed send or receive is one part, which needs no allocation.
type Parts<'a> = SmallVec<[Part<'a>; 1]>;

impl<'a> Part<'a> {
    /// The part of a call; `None` if nothing moves. Lists take their place behind `end` of the scratch memory.
    fn of(call: &'a Call<'_>, end: &mut usize) -> Option<Part<'a>> {
        let (sides, peer) = (Sides::of(&call.buffers), peer_of(call)?);
        let is_send = call.descriptor.operation == Operation::Send;
        let list = if is_send { sides.input } else { sides.output }.filter(|list| list.bytes() > 0)?;
        Some(Part { list, piece: Piece::of(Some(list), end), bytes: list.bytes(), is_send, peer })
    }

    fn is_copied(&self) -> bool {
        matches!(self.piece, Piece::Copied { .. })
    }

    /// Copies between the list of the message and its piece.
    fn copy_list(&self, target: &Target<'_>, scratch: Start) -> Result<()> {
        let whole = [Span::whole(Region::Scratch, self.bytes)];
        target.copy_list(self.list, self.piece.start(scratch), &whole, self.is_send)
    }
}

/// The other rank of a message; `None` for a message of nobody.
fn peer_of(call: &Call<'_>) -> Option<u32> {
    call.descriptor.peer.and_then(|peer| match peer {
        Peer::Rank(rank) => Some(rank),
        // `Capabilities::check_message` has refused the first.
        Peer::Any | Peer::None => None,
    })
}

/// Pairs the messages of rank `own` to itself, in their order. No library moves them without both ends in one group.
///
/// # Errors
/// [`Error::InvalidArgument`] for a message without its other end, and for two of different lengths.
fn own_pairs<'p, 'a>(parts: &'p [Part<'a>], own: u32) -> Result<Vec<[&'p Part<'a>; 2]>> {
    let mut pairs = Vec::new();
    let mut sends: VecDeque<&Part<'_>> =
        parts.iter().filter(|part| part.peer == own && part.is_send).collect();
    for receive in parts.iter().filter(|part| part.peer == own && !part.is_send) {
        match sends.pop_front() {
            Some(send) if send.bytes == receive.bytes => pairs.push([send, receive]),
            Some(send) => {
                let problem =
                    format!("rank {own} itself, which sends {} bytes to {}", send.bytes, receive.bytes);
                return Err(Error::invalid("peer", problem));
            }
            None => return Err(Error::invalid("peer", alone(own, "receive"))),
        }
    }
    if sends.is_empty() { Ok(pairs) } else { Err(Error::invalid("peer", alone(own, "send"))) }
}

fn alone(own: u32, operation: &str) -> String {
    format!("rank {own} itself: on memory of a device a {operation} needs its other end in the same batch")
}

/// Refuses calls that cannot be one group.
///
/// # Errors
/// [`Error::InvalidArgument`], [`Error::Unsupported`].
fn check_together(calls: &[&mut Call<'_>], backend: &'static str) -> Result<()> {
    let Some(first) = calls.first() else { return Ok(()) };
    for call in calls {
        if let Operation::Collective(collective) = call.descriptor.operation {
            let what = format!("{collective} in a batch of messages");
            return Err(Error::Unsupported { what, backend, instead: None });
        }
        if call.memory() != MemoryKind::Device {
            let problem = "on the host, but other messages of the batch are on a device";
            return Err(Error::invalid("memory", problem));
        }
        if call.stream != first.stream || call.scope != first.scope {
            return Err(Error::invalid("stream", "another one than the first message of the batch has"));
        }
    }
    Ok(())
}

impl<V: Vendor> VendorShared<V> {
    /// Enqueues messages as one group, and an event behind it.
    ///
    /// # Errors
    /// The errors of the library and of the device.
    fn enqueue_messages(&self, calls: &[&mut Call<'_>], outcome: Outcome) -> Result<Enqueued<V>> {
        let target = self.target(calls.first().and_then(|call| call.stream))?;
        let mut scratch_bytes = 0;
        let parts: Parts<'_> = calls.iter().filter_map(|call| Part::of(call, &mut scratch_bytes)).collect();
        self.before_event(&target, outcome, || self.enqueue_parts(&target, &parts, scratch_bytes))
    }

    fn enqueue_parts(
        &self,
        target: &Target<'_>,
        parts: &[Part<'_>],
        scratch_bytes: usize,
    ) -> Result<Option<Allocation<V>>> {
        let own = self.companion.group().rank();
        let kept = if scratch_bytes > 0 { Some(Allocation::new(&self.vendor, scratch_bytes)?) } else { None };
        // After an error some of the messages may be under way with it, and nobody will know when that is over.
        let kept = ManuallyDrop::new(kept);
        let scratch = kept.as_ref().map_or(Start::NOTHING, Allocation::start);
        let lists = |is_send| parts.iter().filter(move |part| part.is_copied() && part.is_send == is_send);
        lists(true).try_for_each(|part| part.copy_list(target, scratch))?;
        for [send, receive] in own_pairs(parts, own)? {
            let [from, to] = [send, receive].map(|part| part.piece.start(scratch).address);
            // SAFETY: both are the callers' until their calls are done, or the call's own, and of the same length.
            unsafe { target.device.copy(to.cast(), from.cast_const().cast(), send.bytes, target.stream) }?;
        }
        let mut others = parts.iter().filter(|part| part.peer != own).peekable();
        if others.peek().is_some() {
            self.vendor.group_start()?;
            let noted = others.try_for_each(|part| self.note_part(part, scratch, target.stream));
            // It closes the group, also after a call that has failed, whose error says more.
            let ended = self.vendor.group_end();
            noted.and(ended)?;
        }
        lists(false).try_for_each(|part| part.copy_list(target, scratch))?;
        Ok(ManuallyDrop::into_inner(kept))
    }

    /// Adds a message to the group that is open.
    fn note_part(&self, part: &Part<'_>, scratch: Start, stream: RawStream) -> Result<()> {
        let Part { bytes, is_send, peer, .. } = *part;
        let memory = part.piece.start(scratch).address;
        let call = if is_send {
            NativeCall::Send { input: memory.cast_const().cast(), bytes, peer }
        } else {
            NativeCall::Recv { output: memory.cast(), bytes, peer }
        };
        // SAFETY: the caller of the call has lent the memory for reading, or for writing, until its work on the stream
        // is done, or it is memory of the call's own.
        unsafe { self.vendor.call(self.comm()?, &call, stream) }
    }

    /// The ranks for which messages wait.
    fn peers(&self, messages: &[OnStreamMessage]) -> Vec<GroupRank> {
        let own = self.companion.group().own_rank();
        let ranks = messages.iter().filter_map(|message| match message.descriptor.peer {
            Some(Peer::Rank(rank)) => Some(GroupRank::new(rank)),
            Some(Peer::Any | Peer::None) | None => None,
        });
        let mut peers: Vec<GroupRank> = ranks.filter(|&rank| rank != own).collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    /// Looks at messages that make no progress, as [`Stall::look`].
    pub(crate) fn look_at_messages(
        &self,
        stall: &Stall,
        messages: &[OnStreamMessage],
        place: &str,
    ) -> Duration {
        let (gate, info) = (self.companion.gate(), message_info(messages));
        let own = messages.first().map_or(0, |message| message.entered.number());
        let (number, peers) = (gate.board().progress().finished(), self.peers(messages));
        stall.look(gate, &Stuck { own, number, message: info.as_ref(), peers }, place)
    }

    /// The error of messages that have missed their deadline after `waited`.
    pub(crate) fn messages_timed_out(&self, messages: &[OnStreamMessage], waited: Duration) -> Error {
        let gate = self.companion.gate();
        let (board, group) = (gate.board(), gate.group());
        let mut peers = self.peers(messages);
        peers.truncate(NAMED_MAX);
        let lacks = |peer: u32| {
            let is = |message: &&OnStreamMessage| message.descriptor.peer == Some(Peer::Rank(peer));
            let mut of_peer = messages.iter().filter(is).map(|message| message.descriptor.operation);
            if of_peer.any(|operation| operation == Operation::Recv) {
                "has not sent"
            } else {
                "has not received"
            }
        };
        let mut awaited = board.answers().not_arrived(group, peers.clone(), board.progress().finished());
        board.tell_left(group, &mut awaited);
        for peer in peers {
            let rank = group.job_rank(peer);
            for one in awaited.iter_mut().filter(|awaited| awaited.rank == rank) {
                one.status = format!("{} and {}", lacks(peer.get()), one.status);
            }
        }
        let not_arrived: Vec<Awaited> = self.behind().into_iter().chain(awaited).collect();
        let call = message_info(messages).unwrap_or_else(|| CallInfo::without_data(0, "messages"));
        Error::Timeout { call: Box::new(call), reported_by: group.own_job_rank(), waited, not_arrived }
    }
}

impl<V: Vendor> Offloaded<V> {
    /// Enqueues a message; its ticket tells its end.
    ///
    /// # Errors
    /// As [`Offloaded::issue`].
    pub(crate) fn issue_message(&self, call: &mut Call<'_>, timeout: Duration) -> Result<Outcome> {
        let put = self.put_messages(&mut [call], timeout).map_err(|failed| failed.error)?;
        Ok(self.leave(put, timeout, None))
    }

    /// Enqueues the messages of a batch as one group, with one ticket for all. The longest of their deadlines is the
    /// group's.
    ///
    /// # Errors
    /// As [`unisono_communicator::Life::exchange`].
    pub(crate) fn exchange_on_stream(
        &self,
        calls: &mut [Call<'_>],
        results: &mut [Option<Result<Outcome>>],
    ) -> Result<()> {
        let mut open: Vec<(&mut Call<'_>, &mut Option<Result<Outcome>>)> =
            calls.iter_mut().zip(results).filter(|(_, result)| result.is_none()).collect();
        let mut timeout = Duration::ZERO;
        for (call, _) in &mut open {
            self.group().options().complete(&mut call.descriptor, &mut call.options);
            self.companion.gate().admit(&**call)?;
        }
        let mut messages: Vec<&mut Call<'_>> = open.iter_mut().map(|(call, _)| &mut **call).collect();
        check_together(&messages, V::BACKEND)?;
        for call in &messages {
            let Call { scope, descriptor, counts, options, .. } = &**call;
            let Dispatch { timeout: own, .. } =
                self.dispatch(*scope, descriptor, counts, options, MemoryKind::Device)?;
            timeout = timeout.max(own);
        }
        let put = self.put_messages(&mut messages, timeout).map_err(|failed| failed.error)?;
        let all = self.leave(put, timeout, None);
        for (call, result) in open {
            *result = Some(Ok(Outcome { completion: all.completion, ..outcome_of::<V>(call) }));
        }
        Ok(())
    }

    /// Puts messages on their stream as one group.
    pub(crate) fn put_messages(
        &self,
        calls: &mut [&mut Call<'_>],
        timeout: Duration,
    ) -> Result<Put<'_, V>, NotEnqueued> {
        self.hold(|| {
            let mut is_in_use = false;
            let put = self.put_messages_held(calls, timeout, &mut is_in_use);
            put.map_err(|error| self.not_enqueued(error, is_in_use))
        })
    }

    /// [`Offloaded::put_messages`] within [`crate::Device::hold`]. It sets the flag once parts may be on the stream.
    fn put_messages_held(
        &self,
        calls: &mut [&mut Call<'_>],
        timeout: Duration,
        is_in_use: &mut bool,
    ) -> Result<Put<'_, V>> {
        let (thread, board) = (&*self.thread.shared, self.companion.gate().board());
        let mut end = 0;
        let parts: Parts<'_> = calls.iter().filter_map(|call| Part::of(call, &mut end)).collect();
        own_pairs(&parts, self.group().rank())?;
        drop(parts);
        calls.iter().try_for_each(|call| thread.check_device_call(call.stream, &call.buffers))?;
        let Some(first) = calls.first_mut() else { return Err(Error::invalid("batch", "without a message")) };
        let turn = self.companion.enter_message(first)?;
        let descriptor = first.descriptor;
        let enter = |call: &&mut Call<'_>| {
            let Call { descriptor, site, .. } = **call;
            OnStreamMessage {
                descriptor,
                site,
                entered: board.enter_message(&descriptor, &call.options, site),
            }
        };
        let messages: OnStreamMessages = calls.iter().map(enter).collect();
        let outcome = match &*calls {
            [one] => outcome_of::<V>(one),
            all => Outcome::done(all.iter().map(|call| call.buffers.bytes_max()).sum(), V::BACKEND),
        };
        thread.inline.note_messages(Some(messages.clone()));
        let inline = Inline { number: board.calls().entered(), timeout: Some(timeout) };
        let enqueued = self.in_library(inline, |thread| {
            let until = deadline_after(Instant::now(), timeout);
            let pass = thread.take_device(&descriptor, None, Some(until))?;
            *is_in_use = true;
            let enqueued = thread.enqueue_messages(calls, outcome);
            drop(pass);
            enqueued
        });
        thread.inline.note_messages(None);
        let enqueued = enqueued.inspect_err(|_| end_messages(board, &messages, false))?;
        Ok(Put { enqueued, known: Known::Messages(messages), _turn: turn })
    }
}

/// The outcome of a message whose work is done.
fn outcome_of<V: Vendor>(call: &Call<'_>) -> Outcome {
    let source = if call.descriptor.operation == Operation::Recv { peer_of(call) } else { None };
    let completion = Completion::Done;
    Outcome { completion, source, ..Outcome::done(call.buffers.bytes_max(), V::BACKEND) }
}
