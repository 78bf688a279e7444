//! One pair's stream of frames: what is on its way out, what is arriving, and the credits of both sides.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, IoSliceMut};

use crate::links::Link;

use super::frame::{FRAME_BYTES, Frame, Message};
use super::matching::Arrived;
use super::{EAGER_BYTES_MAX, Operation, Sink};

/// Bytes of short messages that one sender may have in one receiver's queue.
const QUEUE_BYTES_MAX: u64 = 1024 * 1024;

/// What even an empty message costs in the queue, so that the queue is bounded.
const QUEUED_BYTES_MIN: u64 = 256;

/// Bytes of a refused message that are dropped at once.
const DRAIN_BYTES: usize = 4096;

/// A frame on its way out.
struct Outgoing {
    header: [u8; FRAME_BYTES],
    sent: usize,
    /// The message that follows; finished when its last byte is out.
    payload: Option<Operation>,
}

/// A message whose bytes are arriving.
struct Incoming {
    message: Message,
    received: u64,
    into: Into,
}

enum Into {
    Sink(Sink),
    /// A short message without a receive.
    Queue(Vec<u8>),
}

/// What one look at the stream gave.
pub(super) enum Event {
    /// Nothing has arrived.
    Nothing,
    /// Something has been taken; look again.
    Moved,
    /// A message for which no receive was there when it began.
    Arrived(Arrived),
}

impl Incoming {
    /// Where its next bytes go; those of a refused message go to `drain`.
    fn room<'r>(&'r mut self, drain: &'r mut [u8; DRAIN_BYTES]) -> &'r mut [u8] {
        let (from, end) = (self.received as usize, self.message.bytes as usize);
        match &mut self.into {
            Into::Sink(Sink::Receive(receive)) => &mut receive.room()[from..end],
            Into::Sink(Sink::Drain) => &mut drain[..DRAIN_BYTES.min(end - from)],
            Into::Queue(bytes) => &mut bytes[from..],
        }
    }
}

/// One side of one pair's stream.
pub(super) struct Lane {
    peer: u32,
    outgoing: VecDeque<Outgoing>,
    /// Long sends that wait for their grant.
    asking: Vec<(u64, Operation)>,
    next_number: u64,
    /// Bytes of ours in the peer's queue.
    queued_there: u64,
    header: [u8; FRAME_BYTES],
    header_bytes: usize,
    incoming: Option<Incoming>,
    /// Long receives that have been granted.
    granted: Vec<(Message, Sink)>,
    broken: Option<String>,
}

/// The part of the receiver's queue that a message takes.
fn queued_bytes(bytes: u64) -> u64 {
    bytes.max(QUEUED_BYTES_MIN)
}

impl Lane {
    /// Our side of the stream to `peer`.
    pub(super) fn new(peer: u32) -> Lane {
        Lane {
            peer,
            outgoing: VecDeque::new(),
            asking: Vec::new(),
            next_number: 0,
            queued_there: 0,
            header: [0; FRAME_BYTES],
            header_bytes: 0,
            incoming: None,
            granted: Vec::new(),
            broken: None,
        }
    }

    /// Why the stream has ended, if it has.
    pub(super) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// The stream has ended. What only the peer would have wanted is forgotten; operations stay, to be failed.
    pub(super) fn set_broken(&mut self, reason: String) {
        self.broken = Some(reason);
        self.outgoing.retain(|outgoing| outgoing.payload.is_some());
        self.granted.retain(|(_, sink)| receive_of(sink).is_some());
        self.incoming.take_if(|incoming| matches!(incoming.into, Into::Queue(_) | Into::Sink(Sink::Drain)));
    }

    /// Queues a message: at once if it is short and there is room for it, else by asking.
    pub(super) fn send(&mut self, operation: Operation) {
        let descriptor = operation.call.descriptor;
        let bytes = operation.message().len() as u64;
        let message =
            Message { dtype: descriptor.dtype, tag: descriptor.tag, number: self.next_number, bytes };
        self.next_number += 1;
        let is_eager = bytes <= EAGER_BYTES_MAX && self.queued_there + queued_bytes(bytes) <= QUEUE_BYTES_MAX;
        if is_eager {
            self.queued_there += queued_bytes(bytes);
            self.push(Frame::Eager(message), Some(operation));
        } else {
            self.push(Frame::Request(message), None);
            self.asking.push((message.number, operation));
        }
    }

    /// Tells the sender that its request's receive is there.
    pub(super) fn grant(&mut self, message: Message, sink: Sink) {
        self.push(Frame::Grant { number: message.number }, None);
        self.granted.push((message, sink));
    }

    /// Tells the sender that a message has left the queue.
    pub(super) fn give_credit(&mut self, bytes: u64) {
        self.push(Frame::Credit { bytes: queued_bytes(bytes) }, None);
    }

    fn push(&mut self, frame: Frame, payload: Option<Operation>) {
        if self.broken.is_some() && payload.is_none() {
            return;
        }
        self.outgoing.push_back(Outgoing { header: frame.encode(), sent: 0, payload });
    }

    /// Whether frames wait to be written.
    pub(super) fn wants_to_write(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Whether a send, a grant or a credit is not finished.
    pub(super) fn is_sending(&self) -> bool {
        !self.outgoing.is_empty() || !self.asking.is_empty()
    }

    /// Whether a message has begun to arrive, or has been granted.
    pub(super) fn is_receiving(&self) -> bool {
        self.incoming.is_some() || !self.granted.is_empty()
    }

    /// The operations in this lane.
    pub(super) fn operations(&self) -> impl Iterator<Item = &Operation> {
        let sends = self.outgoing.iter().filter_map(|outgoing| outgoing.payload.as_ref());
        let granted = self.granted.iter().filter_map(|(_, sink)| receive_of(sink));
        let incoming = self.incoming.as_ref().and_then(|incoming| match &incoming.into {
            Into::Sink(sink) => receive_of(sink),
            Into::Queue(_) => None,
        });
        sends.chain(self.asking.iter().map(|(_, operation)| operation)).chain(granted).chain(incoming)
    }

    /// Gives every operation up.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Operation> {
        let sends = self.outgoing.drain(..).filter_map(|outgoing| outgoing.payload);
        let asking = self.asking.drain(..).map(|(_, operation)| operation);
        let incoming = self.incoming.take().and_then(|incoming| match incoming.into {
            Into::Sink(sink) => Some(sink),
            Into::Queue(_) => None,
        });
        let sinks = self.granted.drain(..).map(|(_, sink)| sink).chain(incoming);
        let receives = sinks.filter_map(|sink| match sink {
            Sink::Receive(receive) => Some(*receive),
            Sink::Drain => None,
        });
        sends.chain(asking).chain(receives)
    }

    /// Writes what fits; true when something was written.
    pub(super) fn flush<L: Link>(&mut self, link: &mut L) -> Result<bool, String> {
        let mut moved = false;
        while let Some(front) = self.outgoing.front_mut() {
            let payload = front.payload.as_ref().map_or(&[][..], Operation::message);
            let total = FRAME_BYTES + payload.len();
            let header = &front.header[front.sent.min(FRAME_BYTES)..];
            let rest = &payload[front.sent.saturating_sub(FRAME_BYTES)..];
            let slices = [IoSlice::new(header), IoSlice::new(rest)];
            let skip = usize::from(header.is_empty());
            let keep = if rest.is_empty() { 1 } else { 2 };
            match link.try_send(&slices[skip..keep]) {
                Ok(sent) => front.sent += sent,
                Err(error) if is_pause(&error) => return Ok(moved),
                Err(error) => return Err(error.to_string()),
            }
            moved = true;
            if front.sent == total
                && let Some(done) = self.outgoing.pop_front().and_then(|outgoing| outgoing.payload)
            {
                let (tag, bytes) = (done.call.descriptor.tag, done.message().len() as u64);
                done.finish(None, tag, bytes);
            }
        }
        Ok(moved)
    }

    /// Takes one piece of what has arrived. `receive` finds the receive of a message that begins.
    pub(super) fn receive<L: Link>(
        &mut self,
        link: &mut L,
        receive: impl FnMut(&Message) -> Option<Sink>,
    ) -> Result<Event, String> {
        if let Some(incoming) = self.incoming.take_if(|incoming| incoming.received == incoming.message.bytes)
        {
            return Ok(self.complete(incoming));
        }
        let received = match &mut self.incoming {
            Some(incoming) => link.try_recv(&mut [IoSliceMut::new(incoming.room(&mut [0; DRAIN_BYTES]))]),
            None => link.try_recv(&mut [IoSliceMut::new(&mut self.header[self.header_bytes..])]),
        };
        let received = match received {
            Ok(0) => return Err("the connection was closed".to_owned()),
            Ok(received) => received,
            Err(error) if is_pause(&error) => return Ok(Event::Nothing),
            Err(error) => return Err(error.to_string()),
        };
        match &mut self.incoming {
            Some(incoming) => incoming.received += received as u64,
            None => {
                self.header_bytes += received;
                if self.header_bytes == FRAME_BYTES {
                    self.header_bytes = 0;
                    return self.begin(receive);
                }
            }
        }
        Ok(Event::Moved)
    }

    fn begin(&mut self, mut receive: impl FnMut(&Message) -> Option<Sink>) -> Result<Event, String> {
        let frame = Frame::decode(&self.header).ok_or("bytes that are not a frame")?;
        match frame {
            Frame::Eager(message) if message.bytes > EAGER_BYTES_MAX => {
                return Err(format!("an eager message of {} bytes", message.bytes));
            }
            Frame::Eager(message) => {
                let into = match receive(&message) {
                    Some(sink) => {
                        self.give_credit(message.bytes);
                        Into::Sink(sink)
                    }
                    None => Into::Queue(vec![0; message.bytes as usize]),
                };
                self.incoming = Some(Incoming { message, received: 0, into });
            }
            Frame::Request(message) => return Ok(Event::Arrived(Arrived::Request { message })),
            Frame::Grant { number } => {
                let position = self.asking.iter().position(|(asked, _)| *asked == number);
                let (_, operation) = self.asking.remove(position.ok_or("a grant that nobody asked for")?);
                let bytes = operation.message().len() as u64;
                self.push(Frame::Data { number, bytes }, Some(operation));
            }
            Frame::Data { number, bytes } => {
                let expected =
                    |(message, _): &(Message, Sink)| message.number == number && message.bytes == bytes;
                let position = self.granted.iter().position(expected).ok_or("data that nobody granted")?;
                let (message, sink) = self.granted.remove(position);
                self.incoming = Some(Incoming { message, received: 0, into: Into::Sink(sink) });
            }
            Frame::Credit { bytes } => {
                self.queued_there = self.queued_there.checked_sub(bytes).ok_or("credit that nobody took")?;
            }
        }
        Ok(Event::Moved)
    }

    fn complete(&mut self, incoming: Incoming) -> Event {
        let message = incoming.message;
        match incoming.into {
            Into::Queue(bytes) => Event::Arrived(Arrived::Whole { message, bytes }),
            Into::Sink(Sink::Receive(receive)) => {
                receive.finish(Some(self.peer), message.tag, message.bytes);
                Event::Moved
            }
            Into::Sink(Sink::Drain) => Event::Moved,
        }
    }
}

fn receive_of(sink: &Sink) -> Option<&Operation> {
    match sink {
        Sink::Receive(receive) => Some(receive),
        Sink::Drain => None,
    }
}

fn is_pause(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
