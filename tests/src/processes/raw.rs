//! Memory of a call that is named by its address: what was lent, and devices.

#![expect(unsafe_code, reason = "memory of a call, by its address")]

use std::any::Any;

use unisono_communicator::{DType, DeviceBufferMut, DeviceSpan, DeviceStream, OwnedBuffer};

use super::messages::SpanMessage;

/// Bytes that are aligned for every element type.
pub(super) struct Aligned {
    words: Vec<u64>,
    bytes: usize,
}

impl Aligned {
    pub(super) fn copied(bytes: &[u8]) -> Aligned {
        let mut aligned = Aligned { words: vec![0; bytes.len().div_ceil(8)], bytes: bytes.len() };
        aligned.bytes_mut().copy_from_slice(bytes);
        aligned
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }
}

/// Hears of what lent memory has become.
type Tell = Box<dyn FnOnce(&[u8]) + Send>;

/// Memory of a rank that stands for memory that the test has lent. Dropped as the keeper of a call, it tells what has
/// become of it.
pub(super) struct LentMemory {
    memory: Aligned,
    tell: Option<Tell>,
}

impl LentMemory {
    pub(super) fn new(bytes: &[u8], tell: impl FnOnce(&[u8]) + Send + 'static) -> LentMemory {
        LentMemory { memory: Aligned::copied(bytes), tell: Some(Box::new(tell)) }
    }

    /// The memory as a call takes it.
    pub(super) fn lend(mut self, dtype: DType) -> OwnedBuffer {
        let bytes = self.memory.bytes_mut();
        let (start, length) = (bytes.as_mut_ptr(), bytes.len());
        let keeper: Box<dyn Any + Send> = Box::new(self);
        // SAFETY: the words are on the heap and the keeper's, who looks at them when it is dropped.
        unsafe { OwnedBuffer::from_raw(start, length, dtype, keeper) }.unwrap()
    }
}

impl Drop for LentMemory {
    fn drop(&mut self) {
        if let Some(tell) = self.tell.take() {
            tell(self.memory.bytes());
        }
    }
}

/// No memory, with a keeper: at the end of its call it becomes what lent memory becomes.
pub(super) fn placeholder(dtype: DType) -> OwnedBuffer {
    // SAFETY: there is nothing to read or write.
    unsafe { OwnedBuffer::from_raw(std::ptr::null_mut(), 0, dtype, Box::new(())) }.unwrap()
}

/// The address of a span, which travels to a rank that reaches no such device.
pub(super) fn span_message(span: &DeviceSpan) -> SpanMessage {
    SpanMessage { address: span.address() as u64, bytes: span.bytes() as u64, device: span.device() }
}

/// The span that a test has named.
pub(super) fn span_mut(span: &SpanMessage) -> DeviceBufferMut {
    // SAFETY: no backend of the suite reaches a device, so that nothing uses the address.
    unsafe { DeviceBufferMut::from_raw(span.address as usize, span.bytes as usize, span.device) }.unwrap()
}

/// The stream that a test has named.
pub(super) fn stream(handle: u64, device: u32) -> DeviceStream {
    // SAFETY: as in `span_mut`.
    unsafe { DeviceStream::from_raw(handle as usize, device) }
}
