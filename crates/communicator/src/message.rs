//! Messages between two ranks: the result of a receive, and a message that a probe has found.

use std::fmt;

use crate::call::OwnedCall;
use crate::call::descriptor::{Descriptor, Peer, Tag};
use crate::call::operation::Operation;
use crate::call::outcome::Outcome;
use crate::elements::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::group::rank::GroupRank;
use crate::memory::owned::{OwnedBuffers, OwnedMemory};
use crate::memory::raw::OwnedBuffer;
use crate::work::Work;

/// The result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The sender's rank; `None` for a receive from [`Peer::None`]. It is a [`Peer`] as it stands:
    /// `comm.send(&answer, received.source, received.tag)`.
    pub source: Option<u32>,
    /// The message's tag.
    pub tag: u32,
    /// Elements received; the rest of the buffer is untouched.
    pub count: usize,
}

impl Received {
    /// The result of a receive of elements of `dtype` with this outcome.
    pub fn of(outcome: &Outcome, dtype: DType) -> Received {
        let Outcome { source, tag, bytes, .. } = *outcome;
        Received { source, tag, count: bytes as usize / dtype.bytes() }
    }
}

/// A backend's part of a [`Probed`]. Dropped before [`FoundMessage::receive`], the message goes back to its place in
/// the order of its source and tag.
pub trait FoundMessage: Send {
    /// Receives the message into the memory of `call`.
    fn receive(self: Box<Self>, call: OwnedCall) -> Work;
}

/// A message that a probe has found: nobody else receives it (MPI 4.1, section 3.8.2, matching probe). Its receive
/// needs neither source nor tag. Dropped instead, the message goes back to its place, and another receive or probe
/// gets it.
///
/// ```
/// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
/// use unisono::{Collectives, Peer, PointToPoint, Solo, Tag};
/// let comm = Solo::new();
/// comm.send(&[1.5f32, 2.5], 0, 7)?;
/// let message = comm.probe(Peer::Any, Tag::Any)?;
/// assert_eq!((message.source(), message.tag(), message.count::<f32>()), (Some(0), 7, Some(2)));
/// let mut values = [0.0f32; 2];
/// message.recv(&mut values)?;
/// assert_eq!(values, [1.5, 2.5]);
/// # Ok::<(), unisono::Error>(())
/// ```
#[must_use = "dropped, the message goes back to its place"]
pub struct Probed {
    source: Option<u32>,
    tag: u32,
    dtype: DType,
    bytes: u64,
    /// `None` for a message of nobody.
    found: Option<Box<dyn FoundMessage>>,
}

impl fmt::Debug for Probed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Probed { source, tag, dtype, bytes, .. } = self;
        write!(f, "Probed({bytes} bytes of {dtype}, source {source:?}, tag {tag})")
    }
}

impl Probed {
    /// A message of this source and tag, with elements of this type and so many bytes. For backends.
    pub fn new(
        (source, tag): (u32, u32),
        (dtype, bytes): (DType, u64),
        found: Box<dyn FoundMessage>,
    ) -> Probed {
        Probed { source: Some(source), tag, dtype, bytes, found: Some(found) }
    }

    /// The message of [`Peer::None`], which is empty.
    pub fn of_nobody() -> Probed {
        Probed { source: None, tag: 0, dtype: DType::U8, bytes: 0, found: None }
    }

    /// The sender's rank; `None` for a probe of [`Peer::None`].
    pub fn source(&self) -> Option<u32> {
        self.source
    }

    /// The message's tag.
    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// The type of its elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The backend's part; `None` for a message of nobody. For backends.
    pub fn into_found(self) -> Option<Box<dyn FoundMessage>> {
        self.found
    }

    /// Its length in elements; `None` if they are of another type.
    #[doc(alias = "MPI_Get_count")]
    pub fn count<T: Element>(&self) -> Option<usize> {
        let is_empty = self.found.is_none();
        (is_empty || self.dtype == T::DTYPE).then_some(self.bytes as usize / size_of::<T>())
    }

    /// Receives the message into `buffer`, which may be longer.
    ///
    /// Cost: a receive, and a copy.
    ///
    /// # Errors
    /// [`Error::Truncated`] when the buffer is too short, [`Error::InvalidArgument`] for another element type: the
    /// message goes back to its place. Else as `recv`.
    #[doc(alias = "MPI_Mrecv")]
    #[track_caller]
    pub fn recv<T: Element>(self, buffer: &mut [T]) -> Result<Received> {
        if let (Some(source), true) = (self.source, self.bytes > size_of_val(buffer) as u64) {
            let (source_rank, tag) = (GroupRank::new(source), self.tag);
            let room_bytes = size_of_val(buffer) as u64;
            return Err(Error::Truncated { source_rank, tag, sent_bytes: self.bytes, room_bytes });
        }
        let (message, received) = self.receive::<T>()?;
        buffer[..message.len()].copy_from_slice(&message);
        Ok(received)
    }

    /// Receives the message into a vector of its length.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another element type: the message goes back to its place. Else as `recv`.
    #[track_caller]
    pub fn recv_vec<T: Element>(self) -> Result<Vec<T>> {
        self.receive().map(|(message, _)| message)
    }

    #[track_caller]
    fn receive<T: Element>(mut self) -> Result<(Vec<T>, Received)> {
        let (Some(source), Some(found)) = (self.source, self.found.take()) else {
            return Ok((Vec::new(), Received { source: None, tag: self.tag, count: 0 }));
        };
        let descriptor = Descriptor {
            peer: Some(Peer::Rank(source)),
            tag: Tag::Is(self.tag),
            ..Descriptor::new(Operation::Recv, T::DTYPE, self.bytes / size_of::<T>() as u64)
        };
        let buffers = OwnedBuffers::Separate {
            input: OwnedMemory::of(Vec::<T>::new()),
            output: OwnedMemory::One(OwnedBuffer::for_message::<T>(u64::MAX)),
        };
        let call = OwnedCall::new(descriptor, buffers);
        if T::DTYPE != self.dtype {
            let problem = format!("{}, but rank {source} sent {}", T::DTYPE, self.dtype);
            return Err(Error::invalid("dtype", problem).in_call(&call));
        }
        let finished = found.receive(call).finish();
        let received = Received::of(&finished.result?, T::DTYPE);
        let message = match finished.buffers {
            Some(OwnedBuffers::Separate { output, .. }) => output.into_vec(),
            Some(OwnedBuffers::InOut(_) | OwnedBuffers::None) | None => None,
        };
        Ok((message.unwrap_or_default(), received))
    }
}
