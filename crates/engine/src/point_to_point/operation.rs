//! One send or receive: it owns its memory, or a thread that is blocked in it lends the memory at every turn.
//!
//! At most one operation is borrowed at a time, that of the holder of the links. Before its thread gives them away, the
//! operation gets memory of its own, in the same place, so that another holder can go on with it.

use std::panic::Location;
use std::sync::Arc;
use std::time::Instant;

use unisono_communicator::{
    Awaited, CallInfo, Collective, Completion, DType, Descriptor, Error, Outcome, OwnedBuffers, OwnedCall,
    Peer, Result, Site,
};

use crate::drive::request::{Request, RequestState};
use crate::lock;

use super::frame::Message;

/// The name of what moves messages, in outcomes.
const ALGORITHM: &str = "point_to_point";

/// A send or a receive.
pub(super) enum Operation {
    /// It owns its memory.
    Owned(Box<Owned>),
    /// Its memory is in the [`Borrowed`] of this turn.
    Borrowed,
}

/// An operation with the memory that it owns.
pub(super) struct Owned {
    request: Arc<Request>,
    call: OwnedCall,
    pub(super) started: Instant,
    pub(super) deadline: Instant,
}

/// The memory of the one borrowed operation, handed over at every turn, and its end.
pub(crate) struct Borrowed<'m> {
    pub(crate) descriptor: Descriptor,
    pub(crate) site: &'static Location<'static>,
    pub(crate) message: &'m [u8],
    pub(crate) room: &'m mut [u8],
    /// Set when the operation has ended.
    pub(crate) result: Option<Result<Outcome>>,
}

impl<'m> Borrowed<'m> {
    /// The memory of a blocking call.
    pub(crate) fn new(
        descriptor: Descriptor,
        site: &'static Location<'static>,
        message: &'m [u8],
        room: &'m mut [u8],
    ) -> Borrowed<'m> {
        Borrowed { descriptor, site, message, room, result: None }
    }

    /// Nothing is borrowed.
    pub(crate) fn none() -> Borrowed<'static> {
        let nothing = Descriptor::new(Collective::Barrier, DType::U8, 0);
        Borrowed::new(nothing, Location::caller(), &[], &mut [])
    }

    /// Whether a caller lends anything.
    pub(super) fn is_some(&self) -> bool {
        self.descriptor.collective.is_point_to_point()
    }

    /// Whether the borrowed operation has ended.
    pub(super) fn is_over(&self) -> bool {
        self.result.is_some()
    }
}

impl Owned {
    /// The operation of a request that has not begun; `None` when its call has been taken already.
    pub(super) fn take(request: Arc<Request>, started: Instant, deadline: Instant) -> Option<Box<Owned>> {
        let state = std::mem::replace(&mut *lock(&request.state), RequestState::Finished(None));
        match state {
            RequestState::Queued(call) => Some(Box::new(Owned { request, call, started, deadline })),
            RequestState::Active(_) | RequestState::Finished(_) => None,
        }
    }

    /// Where a receive stores its message.
    pub(super) fn room(&mut self) -> &mut [u8] {
        match &mut self.call.buffers {
            OwnedBuffers::Separate { output, .. } => output.bytes_mut(),
            OwnedBuffers::InOut(_) | OwnedBuffers::None => &mut [],
        }
    }

    /// The error of its passed deadline, on rank `rank`.
    pub(super) fn late(&self, rank: u32, now: Instant) -> Error {
        late(&self.call.descriptor, self.call.site, (rank, self.started, now))
    }
}

/// The error of an operation on rank `rank` whose deadline has passed.
pub(super) fn late(
    descriptor: &Descriptor,
    site: &'static Location<'static>,
    (rank, started, now): (u32, Instant, Instant),
) -> Error {
    let reported_by = rank;
    let (rank, status) = match (descriptor.collective, descriptor.peer) {
        (Collective::Send, Some(Peer::Rank(peer))) => (peer, "has not received"),
        (_, Some(Peer::Rank(peer))) => (peer, "has not sent"),
        (_, Some(Peer::Any) | None) => (rank, "waits for any rank, and none has sent"),
    };
    let (site, sizes) = (Some(Site::from(site)), None);
    let call = CallInfo { number: 0, descriptor: *descriptor, algorithm: None, site, sizes };
    let not_arrived = vec![Awaited { rank, status: status.to_owned() }];
    let waited = now.saturating_duration_since(started);
    Error::Timeout { call: Box::new(call), reported_by, waited, not_arrived }
}

impl Operation {
    /// The operation's memory, if it owns it.
    pub(super) fn owned(&self) -> Option<&Owned> {
        match self {
            Operation::Owned(owned) => Some(owned),
            Operation::Borrowed => None,
        }
    }

    /// What is asked for.
    pub(super) fn descriptor<'a>(&'a self, borrowed: &'a Borrowed<'_>) -> &'a Descriptor {
        match self {
            Operation::Owned(owned) => &owned.call.descriptor,
            Operation::Borrowed => &borrowed.descriptor,
        }
    }

    /// The bytes of a send.
    pub(super) fn message<'a>(&'a self, borrowed: &'a Borrowed<'_>) -> &'a [u8] {
        match self {
            Operation::Borrowed => borrowed.message,
            Operation::Owned(owned) => match &owned.call.buffers {
                OwnedBuffers::Separate { input, .. } => input.bytes(),
                OwnedBuffers::InOut(_) | OwnedBuffers::None => &[],
            },
        }
    }

    /// Where a receive stores its message.
    pub(super) fn room<'a>(&'a mut self, borrowed: &'a mut Borrowed<'_>) -> &'a mut [u8] {
        match self {
            Operation::Borrowed => borrowed.room,
            Operation::Owned(owned) => owned.room(),
        }
    }

    /// Ends it well.
    pub(super) fn finish(self, borrowed: &mut Borrowed<'_>, source: Option<u32>, tag: u32, bytes: u64) {
        self.end(
            borrowed,
            Ok(Outcome { completion: Completion::Done, source, tag, bytes, algorithm: ALGORITHM }),
        );
    }

    /// Ends it with an error.
    pub(super) fn fail(self, borrowed: &mut Borrowed<'_>, error: Error) {
        self.end(borrowed, Err(error));
    }

    fn end(self, borrowed: &mut Borrowed<'_>, result: Result<Outcome>) {
        match self {
            Operation::Owned(owned) => owned.request.finish(result, owned.call.buffers),
            Operation::Borrowed => borrowed.result = Some(result),
        }
    }

    /// Why this receive cannot take a message that matches it by source and tag.
    pub(super) fn refusal(&self, borrowed: &Borrowed<'_>, source: u32, message: &Message) -> Option<Error> {
        let ours = self.descriptor(borrowed);
        let room_bytes = ours.count * ours.dtype.bytes() as u64;
        if ours.dtype != message.dtype {
            let problem = format!("{}, but rank {source} sent {}", ours.dtype, message.dtype);
            return Some(Error::invalid("dtype", problem));
        }
        (message.bytes > room_bytes).then_some(Error::Truncated {
            source_rank: source,
            tag: message.tag,
            sent_bytes: message.bytes,
            room_bytes,
        })
    }
}

/// Where the bytes of a matched message go.
pub(super) enum Sink {
    /// Into this receive.
    Receive(Operation),
    /// Nowhere: the receive has been refused the message.
    Drain,
}

impl Sink {
    /// The receive as the sink of a message, or its refusal.
    pub(super) fn of(
        receive: Operation,
        borrowed: &mut Borrowed<'_>,
        source: u32,
        message: &Message,
    ) -> Sink {
        match receive.refusal(borrowed, source, message) {
            None => Sink::Receive(receive),
            Some(error) => {
                receive.fail(borrowed, error);
                Sink::Drain
            }
        }
    }

    /// The receive.
    pub(super) fn receive(&self) -> Option<&Operation> {
        match self {
            Sink::Receive(receive) => Some(receive),
            Sink::Drain => None,
        }
    }

    /// The receive, to change.
    pub(super) fn receive_mut(&mut self) -> Option<&mut Operation> {
        match self {
            Sink::Receive(receive) => Some(receive),
            Sink::Drain => None,
        }
    }

    /// The receive, taken out.
    pub(super) fn into_receive(self) -> Option<Operation> {
        match self {
            Sink::Receive(receive) => Some(receive),
            Sink::Drain => None,
        }
    }
}
