//! One send or receive. Either the transfer owns its memory, or the thread that is blocked in the call lends the memory
//! at every poll.
//!
//! Only the blocking call of the thread that holds the links lends memory: for one transfer, or for a batch. Before
//! this thread gives the links up, the transfers get memory of their own, so that the next holder can continue from the
//! same byte.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use unisono_backend::{Peers, unread_text};
use unisono_communicator::{
    Awaited, BufferMut, CallInfo, Completion, Descriptor, Error, GroupRank, Operation, Outcome, OwnedBuffers,
    OwnedCall, OwnedMemory, Peer, Result, Segments, Site, zeroed,
};

use crate::calls::request::{Request, RequestState};
use crate::calls::wait::Wait;
use crate::lock;

use super::frame::Message;

/// The algorithm that outcomes name.
const ALGORITHM: &str = "point_to_point";

/// The text that points to the report of a panic.
const LOG: &str = "see the log of this rank";

/// A send or a receive.
pub(super) enum Transfer {
    /// It owns its memory.
    Owned(Box<Owned>),
    /// Its memory is lent at every poll: the [`Borrowed`] of this index.
    Lent(usize),
}

/// A transfer that owns its memory. If a panic drops it, its request still ends.
pub(super) struct Owned {
    request: Arc<Request>,
    call: OwnedCall,
    /// The bytes of the message in one piece, if its memory is a list.
    staged: Option<Vec<u8>>,
    /// The number of the probe, if it is one.
    probe: Option<u64>,
    pub(super) wait: Wait,
    is_over: bool,
}

/// The memory of one transfer of a blocking call, lent at every poll, and its result.
pub(crate) struct Borrowed<'m> {
    pub(crate) descriptor: Descriptor,
    pub(crate) site: Site,
    pub(crate) message: &'m [u8],
    pub(crate) room: &'m mut [u8],
    /// Set when the transfer has ended.
    pub(crate) result: Option<Result<Outcome>>,
    /// Whether some of its bytes have moved since the last look.
    pub(crate) has_moved: bool,
}

impl<'m> Borrowed<'m> {
    #[inline]
    pub(crate) fn new(
        descriptor: Descriptor,
        site: Site,
        message: &'m [u8],
        room: &'m mut [u8],
    ) -> Borrowed<'m> {
        Borrowed { descriptor, site, message, room, result: None, has_moved: false }
    }

    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.result.is_some()
    }

    /// The peer, if it is one rank.
    #[inline]
    pub(crate) fn peer(&self) -> Option<GroupRank> {
        peer_of(&self.descriptor)
    }
}

/// Whether a blocking call lends memory, and each of its transfers has ended.
#[inline]
pub(crate) fn are_over(lent: &[Borrowed<'_>]) -> bool {
    !lent.is_empty() && lent.iter().all(Borrowed::is_over)
}

/// The other side of a send or receive, if it is one rank.
#[inline]
pub(super) fn peer_of(descriptor: &Descriptor) -> Option<GroupRank> {
    match descriptor.peer {
        Some(Peer::Rank(peer)) => Some(GroupRank::new(peer)),
        Some(Peer::Any | Peer::None) | None => None,
    }
}

/// The outcome of a transfer.
pub(super) fn outcome(source: Option<GroupRank>, tag: u32, bytes: u64) -> Outcome {
    let source = source.map(GroupRank::get);
    Outcome { completion: Completion::Done, source, tag, bytes, algorithm: ALGORITHM }
}

impl Owned {
    /// Begins the transfer of a request; `None` if its call was taken already.
    pub(super) fn take(request: Arc<Request>, wait: Wait, probe: Option<u64>) -> Option<Box<Owned>> {
        let state = std::mem::replace(&mut *lock(&request.state), RequestState::Taken);
        match state {
            RequestState::Queued(call) => match staged(&call) {
                Ok(staged) => Some(Box::new(Owned { request, call, staged, probe, wait, is_over: false })),
                Err(error) => {
                    request.finish(Err(error), Some(call.buffers));
                    None
                }
            },
            RequestState::Active(_) | RequestState::Taken => None,
        }
    }

    /// The memory for a receive's message.
    pub(super) fn room(&mut self) -> &mut [u8] {
        match (&mut self.staged, &mut self.call.buffers) {
            (Some(staged), _) => staged,
            (None, OwnedBuffers::Separate { output: OwnedMemory::One(output), .. }) => output.bytes_mut(),
            (None, _) => &mut [],
        }
    }

    /// The bytes of a send.
    fn message(&self) -> &[u8] {
        match (&self.staged, &self.call.buffers) {
            (Some(staged), _) => staged,
            (None, OwnedBuffers::Separate { input: OwnedMemory::One(input), .. }) => input.bytes(),
            (None, _) => &[],
        }
    }

    /// The transfer for a warning or an error.
    pub(super) fn waiting(&self) -> WaitingTransfer {
        WaitingTransfer::new(self.call.descriptor, self.call.site)
    }

    fn end(&mut self, result: Result<Outcome>) {
        self.is_over = true;
        if let (Some(staged), Ok(outcome)) = (&self.staged, &result)
            && let OwnedBuffers::Separate { output, .. } = &mut self.call.buffers
            && let BufferMut::Host(mut output) = output.borrow_mut()
        {
            // A send has no output, so this writes nothing for it.
            let received = staged.len().min(outcome.bytes as usize);
            output.write_front(&Segments::One(&staged[..received]));
        }
        let buffers = std::mem::replace(&mut self.call.buffers, OwnedBuffers::None);
        self.request.finish(result, Some(buffers));
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if !self.is_over {
            self.end(Err(Error::System { what: "a panic inside a call".to_owned(), text: LOG.to_owned() }));
        }
    }
}

/// Memory in one piece for a call whose memory is a list: a copy of its message, or room for one.
fn staged(call: &OwnedCall) -> Result<Option<Vec<u8>>> {
    let OwnedBuffers::Separate { input, output } = &call.buffers else { return Ok(None) };
    match (call.descriptor.operation, input, output) {
        (Operation::Send, OwnedMemory::Many(list), _) => Segments::Owned(list).copied().map(Some),
        (Operation::Recv, _, OwnedMemory::Many(list)) => zeroed(list.bytes()).map(Some),
        _ => Ok(None),
    }
}

/// A send or receive that waits.
pub(crate) struct WaitingTransfer {
    descriptor: Descriptor,
    site: Site,
    /// The number of other sends and receives of this rank that wait too.
    others: usize,
}

impl fmt::Display for WaitingTransfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.descriptor, self.site.at())?;
        match self.others {
            0 => Ok(()),
            1 => f.write_str(" (and 1 more send or receive)"),
            others => write!(f, " (and {others} more sends and receives)"),
        }
    }
}

impl WaitingTransfer {
    /// It waits alone.
    pub(crate) fn new(descriptor: Descriptor, site: Site) -> WaitingTransfer {
        WaitingTransfer { descriptor, site, others: 0 }
    }

    /// It waits beside so many others.
    pub(crate) fn beside(self, others: usize) -> WaitingTransfer {
        WaitingTransfer { others, ..self }
    }

    /// The only rank that can end the wait; `None` if any rank can.
    pub(crate) fn awaited(&self) -> Option<GroupRank> {
        peer_of(&self.descriptor)
    }

    /// The transfer as errors name it.
    fn info(&self) -> CallInfo {
        CallInfo { site: self.site.text(), ..CallInfo::new(0, self.descriptor) }
    }

    /// The timeout after this `wait`, on this rank of `peers`.
    pub(crate) fn late(&self, wait: &Wait, peers: &Peers, now: Instant) -> Error {
        let (group, board) = (peers.group(), peers.board());
        let missing = match self.descriptor.operation {
            Operation::Send => "has not received",
            Operation::Recv | Operation::Collective(_) => "has not sent",
        };
        let mut not_arrived = match (self.awaited(), wait.asked_about()) {
            (Some(peer), Some(number)) => {
                let mut list = board.answers().not_arrived(group, vec![peer], number);
                board.tell_left(group, &mut list);
                let peer = group.job_rank(peer);
                let of_peer = list.iter_mut().filter(|awaited| awaited.rank == peer);
                of_peer.for_each(|awaited| awaited.status = format!("{missing} and {}", awaited.status));
                list
            }
            (Some(peer), None) => vec![Awaited { rank: group.job_rank(peer), status: missing.to_owned() }],
            (None, _) => {
                let status = "waits for any rank, and none has sent".to_owned();
                vec![Awaited { rank: group.own_job_rank(), status }]
            }
        };
        let here = unread_text(&board.doing().unread, group);
        if let Some(first) = not_arrived.first_mut().filter(|_| !here.is_empty()) {
            first.status += &format!("; on rank {} lie {here}", group.own_job_rank());
        }
        let (reported_by, waited) = (group.own_job_rank(), wait.waited(now));
        Error::Timeout { call: Box::new(self.info()), reported_by, waited, not_arrived }
    }
}

impl Transfer {
    /// The transfer, if it owns its memory.
    pub(super) fn owned(&self) -> Option<&Owned> {
        match self {
            Transfer::Owned(owned) => Some(owned),
            Transfer::Lent(_) => None,
        }
    }

    /// The transfer, if it owns its memory.
    pub(super) fn owned_mut(&mut self) -> Option<&mut Owned> {
        match self {
            Transfer::Owned(owned) => Some(owned),
            Transfer::Lent(_) => None,
        }
    }

    /// The number of the probe, if it is one.
    pub(super) fn probe(&self) -> Option<u64> {
        self.owned().and_then(|owned| owned.probe)
    }

    /// Whether it is the lent transfer of this index.
    pub(super) fn is_lent(&self, index: usize) -> bool {
        match self {
            Transfer::Lent(own) => *own == index,
            Transfer::Owned(_) => false,
        }
    }

    /// Whether nobody will ever ask how it ends.
    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            Transfer::Owned(owned) => owned.request.is_abandoned(),
            Transfer::Lent(_) => false,
        }
    }

    /// Whether somebody waits for its end, or asks again and again.
    pub(super) fn is_awaited(&self) -> bool {
        match self {
            Transfer::Owned(owned) => owned.request.is_awaited(),
            Transfer::Lent(_) => true,
        }
    }

    /// Notes that some bytes of the transfer have moved.
    pub(super) fn moved(&mut self, lent: &mut [Borrowed<'_>]) {
        match self {
            Transfer::Owned(owned) => owned.wait.moved(),
            Transfer::Lent(index) => lent[*index].has_moved = true,
        }
    }

    /// The arguments of the call.
    pub(super) fn descriptor<'a>(&'a self, lent: &'a [Borrowed<'_>]) -> &'a Descriptor {
        match self {
            Transfer::Owned(owned) => &owned.call.descriptor,
            Transfer::Lent(index) => &lent[*index].descriptor,
        }
    }

    /// The tag of a send. A send with any tag was refused above the backends.
    pub(super) fn sent_tag(&self, lent: &[Borrowed<'_>]) -> u32 {
        self.descriptor(lent).tag.one().unwrap_or_default()
    }

    /// The bytes of a send.
    pub(super) fn message<'a>(&'a self, lent: &'a [Borrowed<'_>]) -> &'a [u8] {
        match self {
            Transfer::Lent(index) => lent[*index].message,
            Transfer::Owned(owned) => owned.message(),
        }
    }

    /// The memory for a receive's message.
    pub(super) fn room<'a>(&'a mut self, lent: &'a mut [Borrowed<'_>]) -> &'a mut [u8] {
        match self {
            Transfer::Lent(index) => lent[*index].room,
            Transfer::Owned(owned) => owned.room(),
        }
    }

    /// Ends it with success.
    pub(super) fn finish(self, lent: &mut [Borrowed<'_>], source: Option<GroupRank>, tag: u32, bytes: u64) {
        self.end(lent, Ok(outcome(source, tag, bytes)));
    }

    /// Ends it with an error.
    pub(super) fn fail(self, lent: &mut [Borrowed<'_>], error: Error) {
        self.end(lent, Err(error));
    }

    fn end(self, lent: &mut [Borrowed<'_>], result: Result<Outcome>) {
        match self {
            Transfer::Owned(mut owned) => owned.end(result),
            Transfer::Lent(index) => {
                // A call that has failed lends its memory no more: its caller has the error already.
                if let Some(message) = lent.get_mut(index) {
                    message.result = Some(result);
                }
            }
        }
    }

    /// The reason why this receive cannot take a message of its source and tag; `None` if it can, and has room for it.
    pub(super) fn refusal(
        &mut self,
        lent: &[Borrowed<'_>],
        source: GroupRank,
        message: &Message,
    ) -> Option<Error> {
        let ours = *self.descriptor(lent);
        let room_bytes = ours.count * ours.dtype.bytes() as u64;
        if ours.dtype != message.dtype {
            let problem = format!("{}, but rank {source} sent {}", ours.dtype, message.dtype);
            return Some(Error::invalid("dtype", problem));
        }
        if let Transfer::Owned(owned) = self
            && owned.call.buffers.makes_room()
        {
            return owned.call.buffers.make_room(source, message.tag, message.bytes).err();
        }
        (message.bytes > room_bytes).then_some(Error::Truncated {
            source_rank: source,
            tag: message.tag,
            sent_bytes: message.bytes,
            room_bytes,
        })
    }
}

/// The destination of a matched message's bytes.
pub(super) enum Sink {
    /// Into this receive.
    Receive(Transfer),
    /// Nowhere: the receive has refused the message and has ended.
    Drain,
}

impl Sink {
    /// The sink of a matched message: the receive, or nothing if it refuses the message.
    pub(super) fn of(
        mut receive: Transfer,
        lent: &mut [Borrowed<'_>],
        source: GroupRank,
        message: &Message,
    ) -> Sink {
        match receive.refusal(lent, source, message) {
            None => Sink::Receive(receive),
            Some(error) => {
                receive.fail(lent, error);
                Sink::Drain
            }
        }
    }

    /// The receive.
    pub(super) fn receive(&self) -> Option<&Transfer> {
        match self {
            Sink::Receive(receive) => Some(receive),
            Sink::Drain => None,
        }
    }

    /// The receive.
    pub(super) fn receive_mut(&mut self) -> Option<&mut Transfer> {
        match self {
            Sink::Receive(receive) => Some(receive),
            Sink::Drain => None,
        }
    }

    /// The receive.
    pub(super) fn into_receive(self) -> Option<Transfer> {
        match self {
            Sink::Receive(receive) => Some(receive),
            Sink::Drain => None,
        }
    }
}
