//! Memory on an accelerator, and the streams that order calls on it.

#![expect(unsafe_code, reason = "memory and streams of a device, by their addresses")]

use std::ops::Deref;

use crate::error::{Error, Result};
use crate::memory::segments::{Division, Segment, SegmentList};

/// Contiguous memory on a device. Only a vendor's library uses the address.
#[derive(Debug)]
pub struct DeviceSpan {
    address: usize,
    bytes: usize,
    device: u32,
}

impl DeviceSpan {
    fn new(address: usize, bytes: usize, device: u32) -> Result<DeviceSpan> {
        if isize::try_from(bytes).is_err() || address.checked_add(bytes).is_none() {
            return Err(Error::invalid("bytes", format!("{bytes}, which exceeds the address space")));
        }
        if address == 0 && bytes > 0 {
            return Err(Error::invalid("address", format!("null, but there are {bytes} bytes")));
        }
        Ok(DeviceSpan { address, bytes, device })
    }

    /// The address on the device; may be null when there are no bytes.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The device's number in its vendor's library.
    pub fn device(&self) -> u32 {
        self.device
    }
}

impl Segment for DeviceSpan {
    fn length(&self) -> usize {
        self.bytes
    }
}

#[derive(Debug)]
enum Spans {
    One(DeviceSpan),
    Many(SegmentList<DeviceSpan>),
}

/// Device memory from which a call reads: one span, or a list of spans that follow each other.
///
/// [`DeviceBufferMut`] is the memory to which a call writes. The two relate as `&[T]` and `&mut [T]` do. A call borrows
/// the buffer until the call is enqueued; the maker of the buffer has promised that the memory outlives the call.
#[derive(Debug)]
pub struct DeviceBuffer {
    spans: Spans,
}

impl DeviceBuffer {
    /// `bytes` bytes at `address` of `device`, to read. The address may be null if `bytes` is 0. Allocates nothing.
    ///
    /// # Safety
    /// From the issue of a call with this buffer until the stream has completed the call, the bytes must be valid on
    /// that device for the vendor's library that makes the call. Nothing may write them unless the same stream, or
    /// events, order the write before or behind the call.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when the memory would exceed the address space, or when `address` is null with
    /// `bytes` above 0.
    pub unsafe fn from_raw(address: usize, bytes: usize, device: u32) -> Result<DeviceBuffer> {
        Ok(DeviceBuffer { spans: Spans::One(DeviceSpan::new(address, bytes, device)?) })
    }

    /// The spans of all `parts` in order, as a list of this division. Allocates the list.
    pub fn list(parts: impl IntoIterator<Item = DeviceBuffer>, division: Division) -> DeviceBuffer {
        let mut spans = Vec::new();
        for part in parts {
            match part.spans {
                Spans::One(span) => spans.push(span),
                Spans::Many(list) => spans.extend(list.into_slices()),
            }
        }
        DeviceBuffer { spans: Spans::Many(SegmentList::from(spans).divided(division)) }
    }

    /// The spans in order.
    pub fn spans(&self) -> &[DeviceSpan] {
        match &self.spans {
            Spans::One(span) => std::slice::from_ref(span),
            Spans::Many(list) => list.slices(),
        }
    }

    /// Size in bytes, all spans together.
    pub fn bytes(&self) -> usize {
        match &self.spans {
            Spans::One(span) => span.bytes,
            Spans::Many(list) => list.bytes(),
        }
    }

    /// The division of a list, and where its spans end, in bytes; `None` for one span.
    pub fn divided(&self) -> Option<(Division, &[usize])> {
        match &self.spans {
            Spans::One(_) => None,
            Spans::Many(list) => Some((list.division(), list.ends())),
        }
    }
}

/// Memory on a device that calls write, or read and write. Nothing else uses it: the value cannot be copied, and its
/// maker has promised that nobody else uses the address.
///
/// ```no_run
/// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*};
/// # pub mod call { pub use unisono_communicator::*; } }
/// use unisono::{Collective, Collectives, Communicator, DType, ReduceOp, Result};
/// use unisono::call::{BufferMut, Buffers, Call, Descriptor, DeviceBufferMut, DeviceStream, Division, Place};
///
/// /// Adds up two gradients of 64 f32 on device 0 over all ranks, and returns when the sums are there.
/// fn sum(comm: &dyn Communicator, addresses: [usize; 2], stream: usize) -> Result<()> {
///     // SAFETY: both are tensors of 64 f32 that live until the ticket is resolved; only work of `stream` uses them.
///     let [weights, biases] = addresses.map(|at| unsafe { DeviceBufferMut::from_raw(at, 256, 0) });
///     // SAFETY: a stream of device 0, which lives until the ticket is resolved.
///     let stream = unsafe { DeviceStream::from_raw(stream, 0) };
///     let mut gradients = DeviceBufferMut::list([weights?, biases?], Division::Coalesced);
///     let descriptor = Descriptor {
///         op: Some(ReduceOp::Sum),
///         place: Place::InPlace,
///         ..Descriptor::new(Collective::AllReduce, DType::F32, 128)
///     };
///     let call = Call::new(descriptor, Buffers::InOut(BufferMut::Device(&mut gradients)));
///     let enqueued = comm.issue(Call { stream: Some(stream), ..call })?;
///     if let Some(ticket) = enqueued.ticket() {
///         comm.resolve(ticket)?;
///     }
///     Ok(())
/// }
/// # let _ = sum;
/// ```
///
/// The same memory cannot be two arguments:
///
/// ```compile_fail,E0502
/// # use unisono_communicator::{Buffer, BufferMut, Buffers, DeviceBufferMut};
/// fn alias(memory: &mut DeviceBufferMut) {
///     let buffers = Buffers::Separate { input: Buffer::Device(memory), output: BufferMut::Device(memory) };
/// }
/// ```
#[derive(Debug)]
pub struct DeviceBufferMut(DeviceBuffer);

impl DeviceBufferMut {
    /// `bytes` bytes at `address` of `device`, to write. The address may be null if `bytes` is 0. Allocates nothing.
    ///
    /// # Safety
    /// As [`DeviceBuffer::from_raw`]. While a call writes the bytes, nothing may read them unless it is ordered before
    /// or behind the call. A call that gets the buffer as its input only reads it.
    ///
    /// # Errors
    /// As [`DeviceBuffer::from_raw`].
    pub unsafe fn from_raw(address: usize, bytes: usize, device: u32) -> Result<DeviceBufferMut> {
        // SAFETY: this function demands more than `DeviceBuffer::from_raw` does.
        unsafe { DeviceBuffer::from_raw(address, bytes, device) }.map(DeviceBufferMut)
    }

    /// The spans of all `parts` in order, as a list of this division. Allocates the list.
    pub fn list(parts: impl IntoIterator<Item = DeviceBufferMut>, division: Division) -> DeviceBufferMut {
        DeviceBufferMut(DeviceBuffer::list(parts.into_iter().map(|part| part.0), division))
    }

    /// Makes all spans empty.
    pub(crate) fn release(&mut self) {
        let release = |span: &mut DeviceSpan| (span.address, span.bytes) = (0, 0);
        match &mut self.0.spans {
            Spans::One(span) => release(span),
            Spans::Many(list) => {
                list.slices_mut().iter_mut().for_each(release);
                list.measure();
            }
        }
    }
}

impl Deref for DeviceBufferMut {
    type Target = DeviceBuffer;

    fn deref(&self) -> &DeviceBuffer {
        &self.0
    }
}

/// A stream of a device: all work on it, calls included, runs in the order in which it was enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceStream {
    handle: usize,
    device: u32,
}

impl DeviceStream {
    /// The stream with the vendor's handle: a `cudaStream_t`, an `aclrtStream`, the address of a `sycl::queue`. 0 is
    /// the default stream, where the vendor has one.
    ///
    /// # Safety
    /// Until all calls on the stream have completed, `handle` must be a stream of `device`, made for the vendor's
    /// library that performs the calls.
    pub unsafe fn from_raw(handle: usize, device: u32) -> DeviceStream {
        DeviceStream { handle, device }
    }

    /// The vendor's handle.
    pub fn handle(&self) -> usize {
        self.handle
    }

    /// The device's number.
    pub fn device(&self) -> u32 {
        self.device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(address: usize, bytes: usize) -> Result<DeviceBufferMut> {
        // SAFETY: the address is never used.
        unsafe { DeviceBufferMut::from_raw(address, bytes, 3) }
    }

    #[test]
    fn memory_that_cannot_be_is_refused() {
        for (address, bytes) in [(0, 1), (usize::MAX, 1), (8, usize::MAX), (8, 1 << 63)] {
            let refused = buffer(address, bytes);
            assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{bytes} bytes at {address}");
        }
        assert!(buffer(0, 0).is_ok_and(|empty| empty.bytes() == 0 && empty.spans().len() == 1));
    }

    #[test]
    fn lists_are_as_long_as_their_parts() -> Result<()> {
        let pair = DeviceBufferMut::list([buffer(64, 8)?, buffer(0, 0)?], Division::Anywhere);
        let mut list = DeviceBufferMut::list([pair, buffer(16, 4)?], Division::Shares);
        assert_eq!(list.divided(), Some((Division::Shares, &[8, 8, 12][..])));
        assert_eq!(list.spans().iter().map(DeviceSpan::address).collect::<Vec<_>>(), [64, 0, 16]);
        assert_eq!((list.bytes(), list.spans()[2].device()), (12, 3));
        list.release();
        assert_eq!((list.bytes(), list.spans().len()), (0, 3));
        assert_eq!(DeviceBufferMut::list([], Division::Anywhere).bytes(), 0);
        Ok(())
    }
}
