//! One side of a pair's stream of frames: outgoing frames, the arriving message, the credits of both sides, the end.

pub(super) mod at_once;

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};

use unisono_communicator::GroupRank;

use crate::links::{Broken, Link};

use super::frame::{EAGER_BYTES_MAX, Frame, Message};
use super::incoming::{Incoming, Into};
use super::input::{Input, READ_AHEAD_BYTES};
use super::outgoing::{Outbox, is_pause};
use super::transfer::{Borrowed, Owned, Sink, Transfer};
use super::unexpected::Arrived;

/// The bytes of short messages that one sender may have in one receiver's queue.
const QUEUE_BYTES_MAX: u64 = 1024 * 1024;

/// The least that a message counts in the queue. Even an empty message counts, so that the queue is bounded.
const QUEUED_BYTES_MIN: u64 = 256;

/// Credit is piggybacked on frames; if this much is owed, it gets a frame of its own. A receiver without queued
/// messages owes less, so its sender has room for a short message.
const CREDIT_BYTES_MAX: u64 = QUEUE_BYTES_MAX / 2;

const _: () = assert!(CREDIT_BYTES_MAX + EAGER_BYTES_MAX <= QUEUE_BYTES_MAX);

/// The states of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// Frames go both ways.
    Open,
    /// Queued frames are still written, then a goodbye. Nothing new begins.
    Draining,
    /// Nothing more is written, because our goodbye is out or the stream takes no more bytes. Arriving frames are still
    /// read.
    SaidGoodbye,
    /// Nothing is written or read.
    Closed,
}

/// The result of one read of the stream.
pub(super) enum Event {
    /// Nothing has arrived.
    Nothing,
    /// Some bytes have been taken; read again.
    Moved,
    /// A message without a receive.
    Arrived(Arrived),
    /// The peer's last frame.
    Goodbye,
}

/// One side of one pair's stream.
pub(super) struct PeerLane {
    peer: GroupRank,
    /// Whether the stream is known to be open.
    is_connected: bool,
    life: Life,
    has_heard_goodbye: bool,
    /// Whether the control plane has reported that the peer has closed, so that its goodbye is on its way.
    peer_closes: bool,
    /// The reason why the stream broke.
    broken: Option<Broken>,
    outbox: Outbox,
    /// Long sends that wait for their grant.
    asking: BTreeMap<u64, Transfer>,
    next_number: u64,
    /// The bytes that this side has in the peer's queue, as far as it knows.
    queued_there: u64,
    /// The bytes that the peer has in our queue: it has been told of no credit for them.
    queued_here: u64,
    /// The bytes that have left our queue and of which the peer has not been told.
    owed: u64,
    input: Input,
    incoming: Option<Incoming>,
    /// The least number that the peer's next request may have.
    next_request: u64,
    /// Long receives that have been granted, by the number of their request.
    granted: BTreeMap<u64, (Message, Sink)>,
}

/// The number of bytes of the receiver's queue that a message takes.
fn queued_bytes(bytes: u64) -> u64 {
    bytes.max(QUEUED_BYTES_MIN)
}

impl PeerLane {
    pub(super) fn new(peer: GroupRank) -> PeerLane {
        PeerLane {
            peer,
            is_connected: false,
            life: Life::Open,
            has_heard_goodbye: false,
            peer_closes: false,
            broken: None,
            outbox: Outbox::default(),
            asking: BTreeMap::new(),
            next_number: 0,
            queued_there: 0,
            queued_here: 0,
            owed: 0,
            input: Input::default(),
            incoming: None,
            next_request: 0,
            granted: BTreeMap::new(),
        }
    }

    /// Whether the stream is known to be open. It stays open.
    pub(super) fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Notes that the stream is open.
    pub(super) fn set_connected(&mut self) {
        self.is_connected = true;
    }

    /// Notes that the peer has closed. From now on its frames are read up to its goodbye, even if no transfer waits.
    pub(super) fn set_peer_closes(&mut self) {
        self.peer_closes = true;
    }

    /// Queues a goodbye after all other frames. A stream that was never opened needs none.
    pub(super) fn say_goodbye(&mut self) {
        if self.is_connected && self.life == Life::Open {
            self.push(Frame::Goodbye, None);
            self.life = Life::Draining;
        }
    }

    /// Whether frames may be written.
    pub(super) fn writes(&self) -> bool {
        matches!(self.life, Life::Open | Life::Draining)
    }

    /// Whether more may arrive.
    pub(super) fn reads(&self) -> bool {
        self.life != Life::Closed && !self.has_heard_goodbye
    }

    /// Whether the stream is ending, and must be read even if no transfer waits.
    pub(super) fn is_ending(&self) -> bool {
        self.is_connected && self.reads() && (self.peer_closes || self.life != Life::Open)
    }

    /// Whether the peer has closed, and its goodbye has not been read.
    pub(super) fn is_peer_closing(&self) -> bool {
        self.peer_closes && self.is_connected && self.reads()
    }

    /// Whether the stream has been used, and has not ended on both sides.
    pub(super) fn is_unanswered(&self) -> bool {
        self.is_connected && self.life != Life::Closed
    }

    /// Whether all frames of this side, including the goodbye, are written or never can be.
    pub(super) fn has_said_goodbye(&self) -> bool {
        !self.is_connected || !self.writes()
    }

    /// Whether neither side has said goodbye.
    pub(super) fn is_open(&self) -> bool {
        self.life == Life::Open
    }

    /// The reason why some transfer of this lane can never end; `None` if all can. `is_awaited` says that a receive
    /// waits for this peer alone.
    pub(super) fn obstacle(&self, is_awaited: bool) -> Option<Broken> {
        let stops_sends = match self.life {
            Life::Open => false,
            Life::Draining => !self.asking.is_empty(),
            Life::SaidGoodbye | Life::Closed => self.sends().next().is_some(),
        };
        let stops_receives = !self.reads() && (is_awaited || self.receives().next().is_some());
        let reason = || self.broken.clone().unwrap_or("it closed the communicator".into());
        (stops_sends || stops_receives).then(reason)
    }

    /// Notes that nothing can be written any more. Arrived bytes are still read, so receives do not fail.
    pub(super) fn set_unwritable(&mut self, broken: Broken) {
        self.outbox.keep_operations();
        self.broken.get_or_insert(broken);
        self.life = if self.has_heard_goodbye { Life::Closed } else { Life::SaidGoodbye };
    }

    /// Notes that the stream has ended. Frames without a transfer are dropped. Transfers stay, to be failed.
    pub(super) fn set_broken(&mut self, broken: Broken) {
        self.outbox.keep_operations();
        self.broken.get_or_insert(broken);
        self.life = Life::Closed;
        self.granted.retain(|_, (_, sink)| sink.receive().is_some());
        self.incoming.take_if(|incoming| incoming.into.sink().and_then(Sink::receive).is_none());
    }

    /// Whether a message is short enough to go without a request, if the peer's queue has room.
    pub(super) fn is_short(bytes: u64) -> bool {
        bytes <= EAGER_BYTES_MAX
    }

    /// Whether the peer's queue has room for a short message, as far as this side knows.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.queued_there + queued_bytes(bytes) <= QUEUE_BYTES_MAX
    }

    /// Queues a message: with its bytes if it is short and the peer has room, else as a request.
    pub(super) fn send(&mut self, transfer: Transfer, lent: &[Borrowed<'_>]) {
        let (dtype, tag) = (transfer.descriptor(lent).dtype, transfer.sent_tag(lent));
        let bytes = transfer.message(lent).len() as u64;
        let message = Message { dtype, tag, number: self.next_number, bytes };
        self.next_number += 1;
        if self.life != Life::Open {
            // The next poll finds that the transfer cannot end.
            self.asking.insert(message.number, transfer);
        } else if PeerLane::is_short(bytes) && self.has_room(bytes) {
            self.queued_there += queued_bytes(bytes);
            self.push(Frame::Eager(message), Some(transfer));
        } else {
            self.push(Frame::Request(message), None);
            self.asking.insert(message.number, transfer);
        }
    }

    /// Tells the sender that the receive for its request has been posted.
    pub(super) fn grant(&mut self, message: Message, sink: Sink) {
        self.push(Frame::Grant { number: message.number }, None);
        if self.reads() || sink.receive().is_some() {
            self.granted.insert(message.number, (message, sink));
        }
    }

    /// Notes that a message has left the queue. The next frame tells the sender, or a frame of its own once enough
    /// credit is owed.
    pub(super) fn give_credit(&mut self, bytes: u64) {
        self.owed += queued_bytes(bytes);
        if self.owed >= CREDIT_BYTES_MAX {
            self.push(Frame::Credit, None);
        }
    }

    /// Queues a frame. After a goodbye it queues neither credits nor grants.
    fn push(&mut self, frame: Frame, payload: Option<Transfer>) {
        if self.life != Life::Open && payload.is_none() {
            return;
        }
        let credit = std::mem::take(&mut self.owed);
        self.queued_here = self.queued_here.saturating_sub(credit);
        self.outbox.push(frame, credit, payload);
    }

    /// Whether frames wait to be written.
    pub(super) fn wants_to_write(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Whether a send, or a frame for the peer, is unfinished and can still finish.
    pub(super) fn is_sending(&self) -> bool {
        self.writes() && (!self.outbox.is_empty() || !self.asking.is_empty())
    }

    /// Whether an awaited message is arriving or has been granted. A message for the queue does not count: its later
    /// receive will read on.
    pub(super) fn is_receiving(&self) -> bool {
        let is_wanted = |incoming: &Incoming| incoming.into.sink().is_some();
        self.incoming.as_ref().is_some_and(is_wanted) || !self.granted.is_empty()
    }

    /// The sends in this lane.
    fn sends(&self) -> impl Iterator<Item = &Transfer> {
        self.outbox.transfers().chain(self.asking.values())
    }

    /// The receives in this lane.
    fn receives(&self) -> impl Iterator<Item = &Transfer> {
        let incoming = self.incoming.as_ref().and_then(|incoming| incoming.into.sink());
        let sinks = self.granted.values().map(|(_, sink)| sink).chain(incoming);
        sinks.filter_map(Sink::receive)
    }

    /// The transfers that own their memory.
    pub(super) fn owned_mut(&mut self) -> impl Iterator<Item = &mut Owned> {
        let asking = self.asking.values_mut();
        let incoming = self.incoming.as_mut().and_then(|incoming| match &mut incoming.into {
            Into::Sink(sink) => Some(sink),
            Into::Queue(_) => None,
        });
        let sinks = self.granted.values_mut().map(|(_, sink)| sink).chain(incoming);
        let sends = self.outbox.transfers_mut().chain(asking);
        sends.chain(sinks.filter_map(Sink::receive_mut)).filter_map(Transfer::owned_mut)
    }

    /// Takes every transfer out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Transfer> {
        let asking = std::mem::take(&mut self.asking).into_values();
        let incoming = self.incoming.take().and_then(|incoming| match incoming.into {
            Into::Sink(sink) => Some(sink),
            Into::Queue(_) => None,
        });
        let granted = std::mem::take(&mut self.granted).into_values();
        let sinks = granted.map(|(_, sink)| sink).chain(incoming);
        self.outbox.drain().chain(asking).chain(sinks.filter_map(Sink::into_receive))
    }

    /// Takes out the granted and arriving receives for whose end nobody waits any more.
    pub(super) fn take_abandoned(&mut self) -> Vec<Transfer> {
        let is_abandoned = |sink: &Sink| sink.receive().is_some_and(Transfer::is_abandoned);
        let granted = self.granted.iter().filter(|(_, (_, sink))| is_abandoned(sink));
        let numbers: Vec<u64> = granted.map(|(number, _)| *number).collect();
        let granted = numbers.iter().filter_map(|number| self.granted.remove(number));
        let mut sinks: Vec<Sink> = granted.map(|(_, sink)| sink).collect();
        let arriving = self.incoming.take_if(|incoming| incoming.into.sink().is_some_and(is_abandoned));
        if let Some(Incoming { into: Into::Sink(sink), .. }) = arriving {
            sinks.push(sink);
        }
        sinks.into_iter().filter_map(Sink::into_receive).collect()
    }

    /// The lent transfer of this index, if it is in this lane, and the number of its received bytes.
    pub(super) fn lent_mut(&mut self, index: usize) -> Option<(&mut Transfer, usize)> {
        let asking = self.asking.values_mut();
        let granted = self.granted.values_mut().filter_map(|(_, sink)| sink.receive_mut());
        let untouched =
            self.outbox.transfers_mut().chain(asking).chain(granted).map(|transfer| (transfer, 0));
        let incoming = self.incoming.as_mut().and_then(|incoming| match &mut incoming.into {
            Into::Sink(sink) => sink.receive_mut().map(|receive| (receive, incoming.received as usize)),
            Into::Queue(_) => None,
        });
        untouched.chain(incoming).find(|(transfer, _)| transfer.is_lent(index))
    }

    /// Writes as much as fits, if the lane still writes. True if something moved, or if nothing can be written any
    /// more.
    pub(super) fn flush<L: Link>(
        &mut self,
        link: &mut L,
        lent: &mut [Borrowed<'_>],
        stage: &mut Vec<u8>,
    ) -> bool {
        if !self.writes() {
            return false;
        }
        match self.outbox.flush(link, lent, stage) {
            Ok(moved) => {
                if self.life == Life::Draining && self.outbox.is_empty() {
                    self.life = if self.has_heard_goodbye { Life::Closed } else { Life::SaidGoodbye };
                }
                moved
            }
            Err(broken) => {
                self.set_unwritable(broken);
                true
            }
        }
    }

    /// Takes one piece of the arrived bytes. `receive` finds the receive of a message that begins.
    pub(super) fn receive<L: Link>(
        &mut self,
        link: &mut L,
        lent: &mut [Borrowed<'_>],
        receive: impl FnMut(&Message, &mut [Borrowed<'_>]) -> Option<Sink>,
    ) -> Result<Event, Broken> {
        let Some(incoming) = self.incoming.as_mut() else {
            return match self.input.header() {
                Some(header) => {
                    let (frame, credit) = Frame::decode(&header).ok_or("bytes that are not a frame")?;
                    self.queued_there =
                        self.queued_there.checked_sub(credit).ok_or("credit that nobody took")?;
                    self.begin(frame, lent, receive)
                }
                None => event_of(self.input.fill(link)),
            };
        };
        let left = incoming.left();
        if left == 0 {
            return Ok(self.complete(lent));
        }
        if self.input.bytes() == 0 {
            if left as usize > READ_AHEAD_BYTES
                && let Some(room) = incoming.room(lent)
            {
                let received = link.try_recv(&mut [IoSliceMut::new(room)]);
                incoming.take(*received.as_ref().unwrap_or(&0), lent);
                return event_of(received);
            }
            match event_of(self.input.fill(link))? {
                Event::Moved => {}
                other => return Ok(other),
            }
        }
        let taken = match incoming.room(lent) {
            Some(room) => self.input.take(room),
            None => self.input.skip(left),
        };
        incoming.take(taken, lent);
        Ok(Event::Moved)
    }

    fn begin(
        &mut self,
        frame: Frame,
        lent: &mut [Borrowed<'_>],
        mut receive: impl FnMut(&Message, &mut [Borrowed<'_>]) -> Option<Sink>,
    ) -> Result<Event, Broken> {
        match frame {
            Frame::Eager(message) if !PeerLane::is_short(message.bytes) => {
                return Err(Broken::Lost(format!("an eager message of {} bytes", message.bytes)));
            }
            Frame::Eager(message) => {
                self.queued_here += queued_bytes(message.bytes);
                if self.queued_here > QUEUE_BYTES_MAX {
                    return Err("more short messages than there is room for".into());
                }
                let into = match receive(&message, lent) {
                    Some(sink) => {
                        self.give_credit(message.bytes);
                        Into::Sink(sink)
                    }
                    None => Into::Queue(vec![0; message.bytes as usize]),
                };
                self.incoming = Some(Incoming { message, received: 0, into });
            }
            Frame::Request(message) if message.number < self.next_request => {
                return Err("a request with the number of an earlier one".into());
            }
            Frame::Request(message) => {
                self.next_request = message.number.saturating_add(1);
                return Ok(Event::Arrived(Arrived::Request { message }));
            }
            Frame::Grant { number } => {
                let transfer = self.asking.remove(&number).ok_or("a grant that nobody asked for")?;
                let bytes = transfer.message(lent).len() as u64;
                self.push(Frame::Data { number, bytes }, Some(transfer));
            }
            Frame::Data { number, bytes } => {
                let is_expected =
                    self.granted.get(&number).is_some_and(|(message, _)| message.bytes == bytes);
                let granted = if is_expected { self.granted.remove(&number) } else { None };
                let (message, sink) = granted.ok_or("data that nobody granted")?;
                self.incoming = Some(Incoming { message, received: 0, into: Into::Sink(sink) });
            }
            Frame::Credit => {}
            Frame::Goodbye => {
                self.has_heard_goodbye = true;
                self.say_goodbye();
                if self.life == Life::SaidGoodbye {
                    self.life = Life::Closed;
                }
                return Ok(Event::Goodbye);
            }
        }
        Ok(Event::Moved)
    }

    fn complete(&mut self, lent: &mut [Borrowed<'_>]) -> Event {
        let Some(Incoming { message, into, .. }) = self.incoming.take() else { return Event::Moved };
        match into {
            Into::Queue(bytes) => Event::Arrived(Arrived::Whole { message, bytes }),
            Into::Sink(Sink::Receive(receive)) => {
                receive.finish(lent, Some(self.peer), message.tag, message.bytes);
                Event::Moved
            }
            Into::Sink(Sink::Drain) => Event::Moved,
        }
    }
}

/// The event of one read.
fn event_of(received: io::Result<usize>) -> Result<Event, Broken> {
    match received {
        Ok(0) => Err("the connection was closed".into()),
        Ok(_) => Ok(Event::Moved),
        Err(error) if is_pause(&error) => Ok(Event::Nothing),
        Err(error) => Err(error.into()),
    }
}
