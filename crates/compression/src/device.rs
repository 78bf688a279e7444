//! The device of a compressed call: the processor, or an accelerator. Vectors and residuals stay in the memory of one
//! device; messages come from it and go to it.

use std::fmt;
use std::ops::Range;

use unisono_communicator::{Buffer, BufferMut, DeviceBuffer, DeviceBufferMut, DeviceStream, Result};

use crate::codec::Codec;
use crate::kernels::CodecKernels;

/// A device that kernels run on, with its memory.
///
/// [`crate::HostKernels`] are one; an accelerator's crate brings another. The calls of [`crate::CompressedCollectives`]
/// are the same for all: f32 and residuals are in [`KernelDevice::Memory`], and messages go through four functions that
/// are the identity on the host, or stay on the device where kernels run on a stream that the communicator knows
/// ([`crate::CompressionState::with_messages_on_device`]).
///
/// # Errors
/// Every function returns [`unisono_communicator::Error::System`] when there is no memory, and errors of the device.
pub trait KernelDevice: CodecKernels + Clone + fmt::Debug + 'static {
    /// Memory that the kernels reach, in words of 4 bytes.
    type Memory: DeviceMemory;

    /// Refuses a codec for which there are no kernels here, before a state is made.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Unsupported`] with the codecs that there are.
    fn check_codec(&self, _codec: &dyn Codec) -> Result<()> {
        Ok(())
    }

    /// `words` words of zeros.
    fn allocate(&self, words: usize) -> Result<Self::Memory>;

    /// Memory of any content, for data that stays on the device.
    fn allocate_unwritten(&self, words: usize) -> Result<Self::Memory> {
        self.allocate(words)
    }

    /// The stream in whose order kernels run and memory is used again, for calls while a clone of the device lives;
    /// `None` where calls of a communicator cannot be enqueued behind kernels.
    fn stream(&self) -> Option<DeviceStream> {
        None
    }

    /// Copies words of `from`, the first being number `at`, to the host. Returns when they are there.
    fn read(&self, from: &Self::Memory, at: usize, to: &mut [u32]) -> Result<()>;

    /// Copies words of the host to `to`, the first becoming number `at`.
    fn write(&self, from: &[u32], to: &mut Self::Memory, at: usize) -> Result<()>;

    /// Copies words of `from`, the first being number `at`, to the words `range` of `to`.
    fn copy(&self, from: &Self::Memory, at: usize, to: &mut Self::Memory, range: Range<usize>) -> Result<()>;

    /// Memory that is as long as a message, of any content, for kernels to write.
    fn to_write(&self, message: Vec<u32>) -> Result<Self::Memory>;

    /// The message that kernels have written.
    fn written(&self, memory: Self::Memory) -> Result<Vec<u32>>;

    /// The content of a message, for kernels to read.
    fn to_read(&self, message: Vec<u32>) -> Result<Self::Memory>;

    /// Gives up memory that kernels have read; returns a vector of its length, of any content.
    fn was_read(&self, memory: Self::Memory) -> Vec<u32>;
}

/// Words in the memory of a device.
///
/// # Panics
/// `view` and `view_mut` panic for a range that exceeds the memory.
pub trait DeviceMemory: Send + fmt::Debug + 'static {
    /// The number of words.
    fn words(&self) -> usize;

    /// A range of them, for kernels to read.
    fn view(&self, words: Range<usize>) -> View<'_>;

    /// A range of them, for kernels to write.
    fn view_mut(&mut self, words: Range<usize>) -> ViewMut<'_>;
}

/// Words that kernels read.
#[derive(Debug)]
pub enum View<'a> {
    /// On the host.
    Host(&'a [u32]),
    /// On a device.
    Device(DeviceBuffer),
}

/// Words that kernels write.
#[derive(Debug)]
pub enum ViewMut<'a> {
    /// On the host.
    Host(&'a mut [u32]),
    /// On a device.
    Device(DeviceBufferMut),
}

impl View<'_> {
    /// As kernels take it.
    pub fn buffer(&self) -> Buffer<'_> {
        match self {
            View::Host(words) => Buffer::of(words),
            View::Device(buffer) => Buffer::Device(buffer),
        }
    }
}

impl ViewMut<'_> {
    /// As kernels take it.
    pub fn buffer(&mut self) -> BufferMut<'_> {
        match self {
            ViewMut::Host(words) => BufferMut::of(words),
            ViewMut::Device(buffer) => BufferMut::Device(buffer),
        }
    }
}

impl DeviceMemory for Vec<u32> {
    fn words(&self) -> usize {
        self.len()
    }

    fn view(&self, words: Range<usize>) -> View<'_> {
        View::Host(&self[words])
    }

    fn view_mut(&mut self, words: Range<usize>) -> ViewMut<'_> {
        ViewMut::Host(&mut self[words])
    }
}
