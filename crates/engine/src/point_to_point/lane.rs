//! One pair's stream of frames: what is on its way out, what is arriving, and the credits of both sides.

use std::io::{self, IoSliceMut};

use crate::links::{Broken, Link};

use super::EAGER_BYTES_MAX;
use super::frame::{Frame, Message};
use super::input::{Input, READ_AHEAD_BYTES};
use super::matching::Arrived;
use super::operation::{Borrowed, Operation, Sink};
use super::outgoing::{Outbox, is_pause};

/// Bytes of short messages that one sender may have in one receiver's queue.
const QUEUE_BYTES_MAX: u64 = 1024 * 1024;

/// What even an empty message costs in the queue, so that the queue is bounded.
const QUEUED_BYTES_MIN: u64 = 256;

/// Credit rides on frames that leave anyway; so much goes alone. A receiver that has taken everything owes less than
/// this, so its sender has room for a short message.
const CREDIT_BYTES_MAX: u64 = QUEUE_BYTES_MAX / 2;

const _: () = assert!(CREDIT_BYTES_MAX + EAGER_BYTES_MAX <= QUEUE_BYTES_MAX);

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

impl Into {
    fn sink(&self) -> Option<&Sink> {
        match self {
            Into::Sink(sink) => Some(sink),
            Into::Queue(_) => None,
        }
    }
}

impl Incoming {
    fn left(&self) -> u64 {
        self.message.bytes - self.received
    }

    /// Where its next bytes go; `None` when the message has been refused.
    fn room<'r>(&'r mut self, borrowed: &'r mut Borrowed<'_>) -> Option<&'r mut [u8]> {
        let (from, end) = (self.received as usize, self.message.bytes as usize);
        match &mut self.into {
            Into::Sink(Sink::Receive(receive)) => Some(&mut receive.room(borrowed)[from..end]),
            Into::Sink(Sink::Drain) => None,
            Into::Queue(bytes) => Some(&mut bytes[from..]),
        }
    }
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

/// One side of one pair's stream.
pub(super) struct Lane {
    peer: u32,
    is_open: bool,
    outbox: Outbox,
    /// Long sends that wait for their grant.
    asking: Vec<(u64, Operation)>,
    next_number: u64,
    /// Bytes of ours in the peer's queue, as far as we know.
    queued_there: u64,
    /// Bytes that have left our queue and that the peer does not know of yet.
    owed: u64,
    input: Input,
    incoming: Option<Incoming>,
    /// Long receives that have been granted.
    granted: Vec<(Message, Sink)>,
    broken: Option<Broken>,
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
            is_open: false,
            outbox: Outbox::default(),
            asking: Vec::new(),
            next_number: 0,
            queued_there: 0,
            owed: 0,
            input: Input::default(),
            incoming: None,
            granted: Vec::new(),
            broken: None,
        }
    }

    /// Whether the stream is known to be open. It stays so.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// The stream is open.
    pub(super) fn set_open(&mut self) {
        self.is_open = true;
    }

    /// Why the stream has ended, if it has.
    pub(super) fn broken(&self) -> Option<&Broken> {
        self.broken.as_ref()
    }

    /// Nothing can be written any more. What has arrived still counts, so the stream has ended only for who sends.
    pub(super) fn set_unwritable(&mut self, broken: Broken) {
        self.outbox.keep_operations();
        if self.is_sending() {
            self.set_broken(broken);
        }
    }

    /// The stream has ended. What only the peer would have wanted is forgotten; operations stay, to be failed.
    pub(super) fn set_broken(&mut self, broken: Broken) {
        self.broken = Some(broken);
        self.outbox.keep_operations();
        self.granted.retain(|(_, sink)| sink.receive().is_some());
        self.incoming.take_if(|incoming| incoming.into.sink().and_then(Sink::receive).is_none());
    }

    /// Whether a message need not ask, if there is room for it.
    pub(super) fn is_short(bytes: u64) -> bool {
        bytes <= EAGER_BYTES_MAX
    }

    /// Whether the peer's queue has room for a short message, as far as we know.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.queued_there + queued_bytes(bytes) <= QUEUE_BYTES_MAX
    }

    /// Queues a message: at once if it is short and there is room for it, else by asking.
    pub(super) fn send(&mut self, operation: Operation, borrowed: &Borrowed<'_>) {
        let descriptor = operation.descriptor(borrowed);
        let bytes = operation.message(borrowed).len() as u64;
        let message =
            Message { dtype: descriptor.dtype, tag: descriptor.tag, number: self.next_number, bytes };
        self.next_number += 1;
        if Lane::is_short(bytes) && self.has_room(bytes) {
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

    /// A message has left the queue: its sender will hear of it with the next frame, or once enough is owed.
    pub(super) fn give_credit(&mut self, bytes: u64) {
        self.owed += queued_bytes(bytes);
        if self.owed >= CREDIT_BYTES_MAX {
            self.push(Frame::Credit, None);
        }
    }

    fn push(&mut self, frame: Frame, payload: Option<Operation>) {
        if self.broken.is_some() && payload.is_none() {
            return;
        }
        self.outbox.push(frame, std::mem::take(&mut self.owed), payload);
    }

    /// Whether frames wait to be written.
    pub(super) fn wants_to_write(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Whether a send, a grant or a credit is not finished.
    pub(super) fn is_sending(&self) -> bool {
        !self.outbox.is_empty() || !self.asking.is_empty()
    }

    /// Whether a message that a receive waits for has begun to arrive, or has been granted. What arrives for the queue
    /// is nobody's yet: whoever wants it will read on.
    pub(super) fn is_receiving(&self) -> bool {
        let is_wanted = |incoming: &Incoming| incoming.into.sink().is_some();
        self.incoming.as_ref().is_some_and(is_wanted) || !self.granted.is_empty()
    }

    /// The operations in this lane.
    pub(super) fn operations(&self) -> impl Iterator<Item = &Operation> {
        let asking = self.asking.iter().map(|(_, operation)| operation);
        let incoming = self.incoming.as_ref().and_then(|incoming| incoming.into.sink());
        let sinks = self.granted.iter().map(|(_, sink)| sink).chain(incoming);
        self.outbox.operations().chain(asking).chain(sinks.filter_map(Sink::receive))
    }

    /// Gives every operation up.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Operation> {
        let asking = self.asking.drain(..).map(|(_, operation)| operation);
        let incoming = self.incoming.take().and_then(|incoming| match incoming.into {
            Into::Sink(sink) => Some(sink),
            Into::Queue(_) => None,
        });
        let sinks = self.granted.drain(..).map(|(_, sink)| sink).chain(incoming);
        self.outbox.drain().chain(asking).chain(sinks.filter_map(Sink::into_receive))
    }

    /// The borrowed operation, if it is in this lane, and how many bytes it has received.
    pub(super) fn borrowed_mut(&mut self) -> Option<(&mut Operation, usize)> {
        let asking = self.asking.iter_mut().map(|(_, operation)| operation);
        let granted = self.granted.iter_mut().filter_map(|(_, sink)| sink.receive_mut());
        let untouched =
            self.outbox.operations_mut().chain(asking).chain(granted).map(|operation| (operation, 0));
        let incoming = self.incoming.as_mut().and_then(|incoming| match &mut incoming.into {
            Into::Sink(sink) => sink.receive_mut().map(|receive| (receive, incoming.received as usize)),
            Into::Queue(_) => None,
        });
        untouched.chain(incoming).find(|(operation, _)| operation.owned().is_none())
    }

    /// Writes what fits; true when something was written.
    pub(super) fn flush<L: Link>(
        &mut self,
        link: &mut L,
        borrowed: &mut Borrowed<'_>,
        stage: &mut Vec<u8>,
    ) -> Result<bool, Broken> {
        self.outbox.flush(link, borrowed, stage)
    }

    /// Takes one piece of what has arrived. `receive` finds the receive of a message that begins.
    pub(super) fn receive<L: Link>(
        &mut self,
        link: &mut L,
        borrowed: &mut Borrowed<'_>,
        receive: impl FnMut(&Message, &mut Borrowed<'_>) -> Option<Sink>,
    ) -> Result<Event, Broken> {
        let Some(incoming) = self.incoming.as_mut() else {
            return match self.input.header() {
                Some(header) => {
                    let (frame, credit) = Frame::decode(&header).ok_or("bytes that are not a frame")?;
                    self.queued_there =
                        self.queued_there.checked_sub(credit).ok_or("credit that nobody took")?;
                    self.begin(frame, borrowed, receive)
                }
                None => event_of(self.input.fill(link)),
            };
        };
        let left = incoming.left();
        if left == 0 {
            return Ok(self.complete(borrowed));
        }
        if self.input.bytes() == 0 {
            if left as usize > READ_AHEAD_BYTES
                && let Some(room) = incoming.room(borrowed)
            {
                let received = link.try_recv(&mut [IoSliceMut::new(room)]);
                incoming.received += *received.as_ref().unwrap_or(&0) as u64;
                return event_of(received);
            }
            match event_of(self.input.fill(link))? {
                Event::Moved => {}
                other => return Ok(other),
            }
        }
        let taken = match incoming.room(borrowed) {
            Some(room) => self.input.take(room),
            None => self.input.skip(left),
        };
        incoming.received += taken as u64;
        Ok(Event::Moved)
    }

    fn begin(
        &mut self,
        frame: Frame,
        borrowed: &mut Borrowed<'_>,
        mut receive: impl FnMut(&Message, &mut Borrowed<'_>) -> Option<Sink>,
    ) -> Result<Event, Broken> {
        match frame {
            Frame::Eager(message) if !Lane::is_short(message.bytes) => {
                return Err(Broken::Lost(format!("an eager message of {} bytes", message.bytes)));
            }
            Frame::Eager(message) => {
                let into = match receive(&message, borrowed) {
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
                let bytes = operation.message(borrowed).len() as u64;
                self.push(Frame::Data { number, bytes }, Some(operation));
            }
            Frame::Data { number, bytes } => {
                let expected =
                    |(message, _): &(Message, Sink)| message.number == number && message.bytes == bytes;
                let position = self.granted.iter().position(expected).ok_or("data that nobody granted")?;
                let (message, sink) = self.granted.remove(position);
                self.incoming = Some(Incoming { message, received: 0, into: Into::Sink(sink) });
            }
            Frame::Credit => {}
        }
        Ok(Event::Moved)
    }

    fn complete(&mut self, borrowed: &mut Borrowed<'_>) -> Event {
        let Some(Incoming { message, into, .. }) = self.incoming.take() else { return Event::Moved };
        match into {
            Into::Queue(bytes) => Event::Arrived(Arrived::Whole { message, bytes }),
            Into::Sink(Sink::Receive(receive)) => {
                receive.finish(borrowed, Some(self.peer), message.tag, message.bytes);
                Event::Moved
            }
            Into::Sink(Sink::Drain) => Event::Moved,
        }
    }
}

/// What one read means.
fn event_of(received: io::Result<usize>) -> Result<Event, Broken> {
    match received {
        Ok(0) => Err("the connection was closed".into()),
        Ok(_) => Ok(Event::Moved),
        Err(error) if is_pause(&error) => Ok(Event::Nothing),
        Err(error) => Err(error.into()),
    }
}
