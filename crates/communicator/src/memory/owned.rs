//! The memory of asynchronous calls: it moves in, and comes back through the handle.

use crate::elements::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::group::rank::GroupRank;
use crate::memory::device::DeviceBufferMut;
use crate::memory::host::{Segments, SegmentsMut};
use crate::memory::raw::{Keeper, OwnedBuffer};
use crate::memory::segments::{Division, SegmentList};
use crate::memory::{Buffer, BufferMut, Buffers};

/// The memory of one argument of an asynchronous call.
#[derive(Debug)]
pub enum OwnedMemory {
    /// Contiguous, on the host.
    One(OwnedBuffer),
    /// A list, on the host. Its ends are computed once, so that the engine's steps allocate nothing.
    Many(SegmentList<OwnedBuffer>),
    /// On a device.
    Device {
        /// The memory. At the end of the call it comes back, but empty if it had a keeper.
        buffer: DeviceBufferMut,
        /// The keeper of the memory. It is dropped when the stream has completed the call, or when the call is refused.
        /// A backend that only enqueues the call ([`crate::OwnedCall::borrow`]) must keep it until the ticket is
        /// resolved.
        keeper: Option<Keeper>,
    },
}

impl From<OwnedBuffer> for OwnedMemory {
    fn from(buffer: OwnedBuffer) -> OwnedMemory {
        OwnedMemory::One(buffer)
    }
}

impl From<DeviceBufferMut> for OwnedMemory {
    fn from(buffer: DeviceBufferMut) -> OwnedMemory {
        OwnedMemory::Device { buffer, keeper: None }
    }
}

impl OwnedMemory {
    /// Takes the vector; no copy.
    pub fn of<T: Element>(elements: Vec<T>) -> OwnedMemory {
        OwnedMemory::One(OwnedBuffer::new(elements))
    }

    /// Takes a list of vectors; no copy.
    pub fn of_list<T: Element>(list: Vec<Vec<T>>, division: Division) -> OwnedMemory {
        let buffers: Vec<_> = list.into_iter().map(OwnedBuffer::new).collect();
        OwnedMemory::Many(SegmentList::from(buffers).divided(division))
    }

    /// Borrows the memory for one step of the engine. Allocates nothing.
    pub fn borrow(&self) -> Buffer<'_> {
        match self {
            OwnedMemory::One(buffer) => Buffer::Host(Segments::One(buffer.bytes())),
            OwnedMemory::Many(list) => Buffer::Host(Segments::Owned(list)),
            OwnedMemory::Device { buffer, .. } => Buffer::Device(buffer),
        }
    }

    /// Borrows the memory for one step of the engine, to write. Allocates nothing.
    pub fn borrow_mut(&mut self) -> BufferMut<'_> {
        match self {
            OwnedMemory::One(buffer) => BufferMut::Host(SegmentsMut::One(buffer.bytes_mut())),
            OwnedMemory::Many(list) => BufferMut::Host(SegmentsMut::Owned(list)),
            OwnedMemory::Device { buffer, .. } => BufferMut::Device(buffer),
        }
    }

    /// Gives the vector back; `None` when it is no vector of `T`.
    pub fn into_vec<T: Element>(self) -> Option<Vec<T>> {
        match self {
            OwnedMemory::One(buffer) => buffer.into_vec(),
            OwnedMemory::Many(_) | OwnedMemory::Device { .. } => None,
        }
    }

    /// Gives the list of vectors back; `None` when it is no list of vectors of `T`.
    pub fn into_list<T: Element>(self) -> Option<Vec<Vec<T>>> {
        match self {
            OwnedMemory::Many(list) => list.into_slices().into_iter().map(OwnedBuffer::into_vec).collect(),
            OwnedMemory::One(_) | OwnedMemory::Device { .. } => None,
        }
    }

    /// An element type in it that is not `dtype`.
    fn other_dtype(&self, dtype: DType) -> Option<DType> {
        let buffers = match self {
            OwnedMemory::One(buffer) => std::slice::from_ref(buffer),
            OwnedMemory::Many(list) => list.slices(),
            OwnedMemory::Device { .. } => &[],
        };
        buffers.iter().map(OwnedBuffer::dtype).find(|other| *other != dtype)
    }

    fn has_keeper(&self) -> bool {
        match self {
            OwnedMemory::One(buffer) => buffer.has_keeper(),
            OwnedMemory::Many(list) => list.slices().iter().any(OwnedBuffer::has_keeper),
            OwnedMemory::Device { keeper, .. } => keeper.is_some(),
        }
    }

    fn release(&mut self, keepers: &mut Vec<Keeper>) {
        match self {
            OwnedMemory::One(buffer) => buffer.release(keepers),
            OwnedMemory::Many(list) => {
                list.slices_mut().iter_mut().for_each(|buffer| buffer.release(keepers));
                list.measure();
            }
            OwnedMemory::Device { buffer, keeper } => {
                if let Some(keeper) = keeper.take() {
                    buffer.release();
                    keepers.push(keeper);
                }
            }
        }
    }
}

/// The buffers of an asynchronous call; they move in and come back.
#[derive(Debug)]
pub enum OwnedBuffers {
    /// No data: a barrier.
    None,
    /// One buffer that is input and output.
    InOut(OwnedMemory),
    /// Two buffers; either may be empty.
    Separate {
        /// The memory that the call reads.
        input: OwnedMemory,
        /// The memory that the call writes.
        output: OwnedMemory,
    },
}

impl OwnedBuffers {
    /// Borrows the buffers for one step of the engine. Allocates nothing.
    pub fn borrow(&mut self) -> Buffers<'_> {
        match self {
            OwnedBuffers::None => Buffers::none(),
            OwnedBuffers::InOut(buffer) => Buffers::InOut(buffer.borrow_mut()),
            OwnedBuffers::Separate { input, output } => {
                Buffers::Separate { input: input.borrow(), output: output.borrow_mut() }
            }
        }
    }

    /// Makes room for a matched message whose length the receive did not know ([`OwnedBuffer::for_message`]); for
    /// backends. Other memory is left as it is.
    ///
    /// # Errors
    /// [`Error::Truncated`] when the message is longer than the receive allows, [`Error::InvalidArgument`] when there
    /// is not enough memory. The message is to be dropped; nothing else is affected.
    pub fn make_room(&mut self, source_rank: GroupRank, tag: u32, sent_bytes: u64) -> Result<()> {
        let OwnedBuffers::Separate { output: OwnedMemory::One(buffer), .. } = self else { return Ok(()) };
        let Some(room_bytes) = buffer.room_bytes_max() else { return Ok(()) };
        let too_long = Error::Truncated { source_rank, tag, sent_bytes, room_bytes };
        let bytes = usize::try_from(sent_bytes).ok().filter(|_| sent_bytes <= room_bytes).ok_or(too_long)?;
        buffer.make_room(bytes).map_err(|_| {
            let problem = format!("no memory for the {sent_bytes} bytes that rank {source_rank} sent");
            Error::invalid("message", problem)
        })
    }

    /// Whether a receive makes room for its message itself.
    pub fn makes_room(&self) -> bool {
        let OwnedBuffers::Separate { output: OwnedMemory::One(buffer), .. } = self else { return false };
        buffer.room_bytes_max().is_some()
    }

    fn each(&self) -> impl Iterator<Item = &OwnedMemory> {
        let pair = match self {
            OwnedBuffers::None => [None, None],
            OwnedBuffers::InOut(buffer) => [Some(buffer), None],
            OwnedBuffers::Separate { input, output } => [Some(input), Some(output)],
        };
        pair.into_iter().flatten()
    }

    /// An element type in the buffers that is not `dtype`.
    pub fn other_dtype(&self, dtype: DType) -> Option<DType> {
        self.each().find_map(|memory| memory.other_dtype(dtype))
    }

    /// Whether any part lies on a device.
    pub(crate) fn on_device(&self) -> bool {
        self.each().any(|memory| matches!(memory, OwnedMemory::Device { .. }))
    }

    /// Whether a keeper must be dropped when the call has ended.
    pub fn has_keeper(&self) -> bool {
        self.each().any(OwnedMemory::has_keeper)
    }

    /// Takes the keepers out when the call has ended, and empties the memory that they kept.
    pub(crate) fn release(&mut self) -> Vec<Keeper> {
        let mut keepers = Vec::new();
        match self {
            OwnedBuffers::None => {}
            OwnedBuffers::InOut(buffer) => buffer.release(&mut keepers),
            OwnedBuffers::Separate { input, output } => {
                input.release(&mut keepers);
                output.release(&mut keepers);
            }
        }
        keepers
    }
}
