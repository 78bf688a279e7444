//! The memory of a call: lists of segments on the host, or lists of spans on a device.

pub(crate) mod allocation;
#[cfg(feature = "cudarc")]
mod cudarc_elements;
pub(crate) mod device;
pub(crate) mod device_slice;
pub(crate) mod host;
pub(crate) mod owned;
pub(crate) mod raw;
pub(crate) mod segments;

use crate::elements::dtype::Element;
use crate::memory::device::{DeviceBuffer, DeviceBufferMut};
use crate::memory::host::{Segments, SegmentsMut};
use crate::memory::segments::{Division, SegmentList};

/// The place of a call's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// In the memory of the process.
    Host,
    /// On a device, used in the order of a stream.
    Device,
}

/// Memory that is read.
#[derive(Debug)]
pub enum Buffer<'a> {
    /// On the host.
    Host(Segments<'a>),
    /// On a device.
    Device(&'a DeviceBuffer),
}

/// Memory that is written.
#[derive(Debug)]
pub enum BufferMut<'a> {
    /// On the host.
    Host(SegmentsMut<'a>),
    /// On a device.
    Device(&'a mut DeviceBufferMut),
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

    /// The division of a list, and where its segments end; `None` for one segment.
    #[inline]
    pub(crate) fn divided(&self) -> Option<(Division, &[usize])> {
        match self {
            Buffer::Host(segments) => segments.divided(),
            Buffer::Device(buffer) => buffer.divided(),
        }
    }

    /// An empty buffer.
    pub fn empty() -> Buffer<'static> {
        Buffer::Host(Segments::One(&[]))
    }

    /// Size in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        match self {
            Buffer::Host(segments) => segments.bytes(),
            Buffer::Device(buffer) => buffer.bytes(),
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

    /// The division of a list, and where its segments end; `None` for one segment.
    #[inline]
    pub(crate) fn divided(&self) -> Option<(Division, &[usize])> {
        match self {
            BufferMut::Host(segments) => segments.divided(),
            BufferMut::Device(buffer) => buffer.divided(),
        }
    }

    /// An empty buffer.
    pub fn empty() -> BufferMut<'static> {
        BufferMut::Host(SegmentsMut::One(&mut []))
    }

    /// Size in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        match self {
            BufferMut::Host(segments) => segments.bytes(),
            BufferMut::Device(buffer) => buffer.bytes(),
        }
    }
}

/// The buffers of a call. They never alias.
#[derive(Debug)]
pub enum Buffers<'a> {
    /// One buffer that is input and output.
    InOut(BufferMut<'a>),
    /// Two buffers. Either may be empty on a rank that has no input or no output.
    Separate {
        /// The memory that the call reads.
        input: Buffer<'a>,
        /// The memory that the call writes.
        output: BufferMut<'a>,
    },
}

impl Buffers<'_> {
    /// The buffers of a barrier.
    pub fn none() -> Buffers<'static> {
        Buffers::Separate { input: Buffer::empty(), output: BufferMut::empty() }
    }

    /// Size of the larger buffer in bytes.
    #[inline]
    pub fn bytes_max(&self) -> u64 {
        match self {
            Buffers::InOut(buffer) => buffer.bytes() as u64,
            Buffers::Separate { input, output } => input.bytes().max(output.bytes()) as u64,
        }
    }

    /// The ends of the segments of a coalesced call, in bytes. `None` for any other call, and for one segment.
    #[inline]
    pub fn segment_ends(&self) -> Option<&[usize]> {
        let (input, output) = match self {
            Buffers::InOut(buffer) => (None, buffer),
            Buffers::Separate { input, output } => (Some(input), output),
        };
        let ends = input.and_then(|input| coalesced(input.divided())).or_else(|| coalesced(output.divided()));
        ends.filter(|ends| ends.len() != 1)
    }

    /// Whether any part lies on a device.
    pub(crate) fn on_device(&self) -> bool {
        match self {
            Buffers::InOut(buffer) => matches!(buffer, BufferMut::Device(_)),
            Buffers::Separate { input, output } => {
                matches!(input, Buffer::Device(_)) || matches!(output, BufferMut::Device(_))
            }
        }
    }
}

fn coalesced(divided: Option<(Division, &[usize])>) -> Option<&[usize]> {
    divided.filter(|(division, _)| *division == Division::Coalesced).map(|(_, ends)| ends)
}
