//! The memory of a call: lists of segments on the host, raw pointers on a device; borrowed or owned.

use std::any::Any;
use std::fmt;
use std::num::NonZeroUsize;

use crate::allocation::reserve;
use crate::dtype::{DType, Element};
use crate::error::Result;

/// Memory on an accelerator: an address that only a vendor library uses. Made by an unsafe constructor, since
/// nothing can be checked about the address.
#[derive(Clone, Copy, Debug)]
pub struct DeviceBuffer {
    address: NonZeroUsize,
    bytes: usize,
    device: u32,
    stream: usize,
}

impl DeviceBuffer {
    /// Memory of `bytes` bytes at `address` on `device`, used in the order of `stream` (a vendor's handle, 0 for its
    /// default stream).
    ///
    /// # Safety
    /// The memory must stay valid, and untouched outside `stream`, until the call that uses it has completed in
    /// stream order.
    #[allow(unsafe_code, reason = "the caller vouches for an address that no check can judge")]
    pub unsafe fn from_raw(address: NonZeroUsize, bytes: usize, device: u32, stream: usize) -> DeviceBuffer {
        DeviceBuffer { address, bytes, device, stream }
    }

    /// The address on the device.
    pub fn address(&self) -> NonZeroUsize {
        self.address
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The device's number.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// The vendor's stream handle.
    pub fn stream(&self) -> usize {
        self.stream
    }
}

/// What the slices of a list are to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// One buffer that lies in pieces, cut anywhere. Other ranks need not know.
    Anywhere,
    /// One buffer, a slice for each rank's share. Other ranks need not know.
    Shares,
    /// Buffers that one call handles together; their lengths must be the same on every rank.
    Coalesced,
}

/// Slices of bytes that follow each other, with the offset at which each ends: a byte is found by binary search.
#[derive(Clone, Debug)]
pub struct SegmentList<S> {
    slices: Vec<S>,
    ends: Vec<usize>,
    division: Division,
}

impl<S: AsRef<[u8]>> From<Vec<S>> for SegmentList<S> {
    fn from(slices: Vec<S>) -> SegmentList<S> {
        let add = |end: &mut usize, slice: &S| {
            *end += slice.as_ref().len();
            Some(*end)
        };
        let ends = slices.iter().scan(0, add).collect();
        SegmentList { slices, ends, division: Division::Anywhere }
    }
}

impl<S: AsRef<[u8]>> SegmentList<S> {
    /// The same list, divided in this way.
    #[must_use]
    pub fn divided(self, division: Division) -> SegmentList<S> {
        SegmentList { division, ..self }
    }

    /// How the list is divided.
    pub fn division(&self) -> Division {
        self.division
    }

    /// Where the slices end, in bytes.
    pub fn ends(&self) -> &[usize] {
        &self.ends
    }

    /// The slices in order.
    pub fn slices(&self) -> &[S] {
        &self.slices
    }

    /// The slices in order, to write. Their lengths are fixed.
    pub fn slices_mut(&mut self) -> &mut [S] {
        &mut self.slices
    }

    /// Size in bytes, all slices together.
    pub fn bytes(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The slice that holds byte `offset`, and where in it; `None` at the end and after it.
    ///
    /// ```
    /// use unisono_communicator::SegmentList;
    /// let list = SegmentList::from(vec![&[1u8, 2][..], &[], &[3]]);
    /// assert_eq!((list.locate(1), list.locate(2), list.locate(3)), (Some((0, 1)), Some((2, 0)), None));
    /// ```
    pub fn locate(&self, offset: usize) -> Option<(usize, usize)> {
        let index = self.ends.partition_point(|&end| end <= offset);
        let slice = self.slices.get(index)?.as_ref();
        Some((index, offset + slice.len() - self.ends[index]))
    }
}

/// Host memory that is read: one slice, or a list of slices that follow each other.
#[derive(Clone, Debug)]
pub enum Segments<'a> {
    /// Contiguous.
    One(&'a [u8]),
    /// A list; empty segments are allowed.
    Many(SegmentList<&'a [u8]>),
}

/// Host memory that is written.
#[derive(Debug)]
pub enum SegmentsMut<'a> {
    /// Contiguous.
    One(&'a mut [u8]),
    /// A list; empty segments are allowed.
    Many(SegmentList<&'a mut [u8]>),
}

impl<'a> Segments<'a> {
    /// Size in bytes, all segments together.
    pub fn bytes(&self) -> usize {
        match self {
            Segments::One(slice) => slice.len(),
            Segments::Many(list) => list.bytes(),
        }
    }

    /// The segments in order.
    pub fn slices(&self) -> &[&'a [u8]] {
        match self {
            Segments::One(slice) => std::slice::from_ref(slice),
            Segments::Many(list) => list.slices(),
        }
    }

    /// All bytes in one vector.
    ///
    /// # Errors
    /// [`crate::Error::System`] when there is no memory for them.
    pub fn copied(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        reserve(&mut bytes, self.bytes())?;
        self.slices().iter().for_each(|slice| bytes.extend_from_slice(slice));
        Ok(bytes)
    }
}

impl SegmentsMut<'_> {
    /// Size in bytes, all segments together.
    pub fn bytes(&self) -> usize {
        match self {
            SegmentsMut::One(slice) => slice.len(),
            SegmentsMut::Many(list) => list.bytes(),
        }
    }

    /// Writes as many bytes of `source` as fit, from the start on; the rest of the memory stays as it is.
    ///
    /// ```
    /// use unisono_communicator::{Segments, SegmentsMut};
    /// let (mut first, mut second) = ([0u8; 2], [0u8; 4]);
    /// let mut room = SegmentsMut::Many(vec![&mut first[..], &mut second[..]].into());
    /// room.write_front(&Segments::Many(vec![&[1u8][..], &[], &[2, 3, 4]].into()));
    /// assert_eq!((first, second), ([1, 2], [3, 4, 0, 0]));
    /// ```
    pub fn write_front(&mut self, source: &Segments<'_>) {
        let mut sources = source.slices().iter();
        let mut bytes: &[u8] = &[];
        self.for_each(|mut slice| {
            while !slice.is_empty() {
                if bytes.is_empty() {
                    match sources.next() {
                        Some(next) => bytes = next,
                        None => return,
                    }
                }
                let (now, later) = bytes.split_at(slice.len().min(bytes.len()));
                let (target, rest) = std::mem::take(&mut slice).split_at_mut(now.len());
                target.copy_from_slice(now);
                (bytes, slice) = (later, rest);
            }
        });
    }

    /// Calls `change` with every segment in order.
    pub fn for_each(&mut self, mut change: impl FnMut(&mut [u8])) {
        match self {
            SegmentsMut::One(slice) => change(slice),
            SegmentsMut::Many(list) => list.slices.iter_mut().for_each(|slice| change(slice)),
        }
    }
}

/// Memory that is read.
#[derive(Debug)]
pub enum Buffer<'a> {
    /// On the host.
    Host(Segments<'a>),
    /// On a device.
    Device(DeviceBuffer),
}

/// Memory that is written.
#[derive(Debug)]
pub enum BufferMut<'a> {
    /// On the host.
    Host(SegmentsMut<'a>),
    /// On a device.
    Device(DeviceBuffer),
}

impl<'a> Buffer<'a> {
    /// The bytes of a slice of elements.
    pub fn of<T: Element>(slice: &'a [T]) -> Buffer<'a> {
        Buffer::Host(Segments::One(bytemuck::cast_slice(slice)))
    }

    /// The bytes of a list of slices.
    pub fn of_list<T: Element>(list: &[&'a [T]], division: Division) -> Buffer<'a> {
        let slices: Vec<&[u8]> = list.iter().map(|slice| bytemuck::cast_slice(slice)).collect();
        Buffer::Host(Segments::Many(SegmentList::from(slices).divided(division)))
    }

    /// Where the slices of a coalesced list end.
    pub(crate) fn coalesced_ends(&self) -> Option<&[usize]> {
        match self {
            Buffer::Host(Segments::Many(list)) if list.division == Division::Coalesced => Some(&list.ends),
            Buffer::Host(Segments::Many(_) | Segments::One(_)) | Buffer::Device(_) => None,
        }
    }

    /// Nothing.
    pub fn empty() -> Buffer<'static> {
        Buffer::Host(Segments::One(&[]))
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Buffer::Host(segments) => segments.bytes(),
            Buffer::Device(device) => device.bytes(),
        }
    }
}

impl<'a> BufferMut<'a> {
    /// The bytes of a slice of elements.
    pub fn of<T: Element>(slice: &'a mut [T]) -> BufferMut<'a> {
        BufferMut::Host(SegmentsMut::One(bytemuck::cast_slice_mut(slice)))
    }

    /// The bytes of a list of slices.
    pub fn of_list<T: Element>(
        list: impl IntoIterator<Item = &'a mut [T]>,
        division: Division,
    ) -> BufferMut<'a> {
        let slices: Vec<&mut [u8]> = list.into_iter().map(|slice| bytemuck::cast_slice_mut(slice)).collect();
        BufferMut::Host(SegmentsMut::Many(SegmentList::from(slices).divided(division)))
    }

    /// Where the slices of a coalesced list end.
    pub(crate) fn coalesced_ends(&self) -> Option<&[usize]> {
        match self {
            BufferMut::Host(SegmentsMut::Many(list)) if list.division == Division::Coalesced => {
                Some(&list.ends)
            }
            BufferMut::Host(SegmentsMut::Many(_) | SegmentsMut::One(_)) | BufferMut::Device(_) => None,
        }
    }

    /// Nothing.
    pub fn empty() -> BufferMut<'static> {
        BufferMut::Host(SegmentsMut::One(&mut []))
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            BufferMut::Host(segments) => segments.bytes(),
            BufferMut::Device(device) => device.bytes(),
        }
    }
}

/// The buffers of a call: never two slices that may alias.
#[derive(Debug)]
pub enum Buffers<'a> {
    /// One buffer that is input and output.
    InOut(BufferMut<'a>),
    /// Two buffers; either may be empty on a rank that has no part in that side.
    Separate {
        /// What is read.
        input: Buffer<'a>,
        /// What is written.
        output: BufferMut<'a>,
    },
}

impl Buffers<'_> {
    /// No data: a barrier.
    pub fn none() -> Buffers<'static> {
        Buffers::Separate { input: Buffer::empty(), output: BufferMut::empty() }
    }

    /// Whether any part lies on a device.
    pub fn on_device(&self) -> bool {
        match self {
            Buffers::InOut(buffer) => matches!(buffer, BufferMut::Device(_)),
            Buffers::Separate { input, output } => {
                matches!(input, Buffer::Device(_)) || matches!(output, BufferMut::Device(_))
            }
        }
    }
}

trait ElementVec: Send {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;
}

impl<T: Element> ElementVec for Vec<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(self)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

/// A vector of elements that moved into an asynchronous call, its type remembered.
pub struct OwnedBuffer {
    dtype: DType,
    elements: Box<dyn ElementVec>,
}

impl OwnedBuffer {
    /// Takes the vector; no copy.
    pub fn new<T: Element>(elements: Vec<T>) -> OwnedBuffer {
        OwnedBuffer { dtype: T::DTYPE, elements: Box::new(elements) }
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.elements.bytes()
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.elements.bytes_mut()
    }

    /// Gives the vector back; no copy. `None` when `T` is not the type that moved in.
    pub fn into_vec<T: Element>(self) -> Option<Vec<T>> {
        self.elements.into_any().downcast().ok().map(|vec| *vec)
    }
}

impl fmt::Debug for OwnedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedBuffer({} bytes of {})", self.bytes().len(), self.dtype)
    }
}

/// The buffers of an asynchronous call; they move in and come back.
#[derive(Debug)]
pub enum OwnedBuffers {
    /// No data: a barrier.
    None,
    /// One buffer that is input and output.
    InOut(OwnedBuffer),
    /// Two buffers; either may be empty.
    Separate {
        /// What is read.
        input: OwnedBuffer,
        /// What is written.
        output: OwnedBuffer,
    },
}

impl OwnedBuffers {
    /// The same buffers, borrowed for one turn of the engine. Allocates nothing.
    pub fn borrow(&mut self) -> Buffers<'_> {
        match self {
            OwnedBuffers::None => Buffers::none(),
            OwnedBuffers::InOut(buffer) => {
                Buffers::InOut(BufferMut::Host(SegmentsMut::One(buffer.bytes_mut())))
            }
            OwnedBuffers::Separate { input, output } => Buffers::Separate {
                input: Buffer::Host(Segments::One(input.bytes())),
                output: BufferMut::Host(SegmentsMut::One(output.bytes_mut())),
            },
        }
    }
}
