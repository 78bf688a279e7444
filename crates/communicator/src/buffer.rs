//! The memory of a call: lists of segments on the host, raw pointers on a device.

use std::num::NonZeroUsize;

use crate::dtype::Element;
use crate::segments::{Division, SegmentList, Segments, SegmentsMut};

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
            Buffer::Host(segments) => coalesced(segments.divided()),
            Buffer::Device(_) => None,
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

fn coalesced(divided: Option<(Division, &[usize])>) -> Option<&[usize]> {
    divided.filter(|(division, _)| *division == Division::Coalesced).map(|(_, ends)| ends)
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
            BufferMut::Host(segments) => coalesced(segments.divided()),
            BufferMut::Device(_) => None,
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
