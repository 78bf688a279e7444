//! Words in a card's memory, and allocations that are used again.

#![expect(unsafe_code, reason = "memory and a stream of a card, by their addresses")]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use unisono_communicator::{DeviceBuffer, DeviceBufferMut, DeviceStream, Error, Result};
use unisono_compression::{DeviceMemory, View, ViewMut};
use unisono_cuda::Memory;

use crate::card::{Card, CudaKernels};
use crate::spans::Span;

const WORD_BYTES: usize = size_of::<u32>();

/// Words in the memory of a card.
pub struct CudaMemory {
    card: Arc<Card>,
    /// `None` only while it is dropped.
    memory: Option<Memory>,
    words: usize,
    /// The vector of a message, whose words are here.
    message: Vec<u32>,
    /// Whether the allocation goes back to the pool.
    is_pooled: bool,
}

impl fmt::Debug for CudaMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaMemory({} words on {:?})", self.words, self.card.context)
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take().filter(|memory| self.is_pooled && memory.bytes() > 0) {
            drop(self.card.pool.put(memory.bytes(), memory));
        }
    }
}

impl CudaMemory {
    pub(crate) fn new(card: Arc<Card>, memory: Memory, words: usize) -> CudaMemory {
        CudaMemory { card, memory: Some(memory), words, message: Vec::new(), is_pooled: false }
    }

    /// Of any content, and used again in the order of the stream.
    pub(crate) fn pooled(card: Arc<Card>, words: usize) -> Result<CudaMemory> {
        let bytes = words * WORD_BYTES;
        let memory = card.pool.take(bytes).map_or_else(|| card.allocate(bytes), Ok)?;
        Ok(CudaMemory { words, card, memory: Some(memory), message: Vec::new(), is_pooled: true })
    }

    /// As long as a message, of any content; keeps the vector.
    pub(crate) fn of_message(card: Arc<Card>, message: Vec<u32>) -> Result<CudaMemory> {
        let mut memory = CudaMemory::pooled(card, message.len())?;
        memory.put_message(message);
        Ok(memory)
    }

    pub(crate) fn take_message(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.message)
    }

    pub(crate) fn put_message(&mut self, message: Vec<u32>) {
        self.message = message;
    }

    pub(crate) fn memory(&self) -> &Memory {
        #[expect(clippy::expect_used, reason = "it is taken when the value is dropped")]
        self.memory.as_ref().expect("memory lives as long as its owner")
    }

    pub(crate) fn memory_mut(&mut self) -> &mut Memory {
        #[expect(clippy::expect_used, reason = "it is taken when the value is dropped")]
        self.memory.as_mut().expect("memory lives as long as its owner")
    }

    /// Address, bytes and device of a range of words.
    fn part(&self, words: &Range<usize>) -> (usize, usize, u32) {
        assert!(words.start <= words.end && words.end <= self.words, "{words:?} of {} words", self.words);
        let bytes = words.len() * WORD_BYTES;
        // Memory that is empty has no address.
        let address =
            if bytes == 0 { 0 } else { self.memory().address() as usize + words.start * WORD_BYTES };
        (address, bytes, self.card.context.ordinal())
    }
}

/// Refuses an address that is none of words.
fn check_address(address: u64, words: usize) -> Result<()> {
    if !address.is_multiple_of(WORD_BYTES as u64) {
        return Err(Error::invalid("address", format!("{address:#x}, which is no multiple of 4")));
    }
    if words.checked_mul(WORD_BYTES).is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(Error::invalid("words", format!("{words}, which exceed the address space")));
    }
    Ok(())
}

impl CudaKernels {
    /// Memory that belongs to somebody else, such as a tensor of f32: `words` words of 4 bytes at `address`.
    ///
    /// # Safety
    /// The words must be valid memory of this card as long as the value lives, and be used by nobody else while calls
    /// that have the value run.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an address that the driver knows on
    /// another device or not at all, or that is no multiple of 4.
    pub unsafe fn from_raw(&self, address: u64, words: usize) -> Result<CudaMemory> {
        check_address(address, words)?;
        // SAFETY: the caller promises as much.
        let memory = unsafe { Memory::from_raw(&self.0.context, address, words * WORD_BYTES) }?;
        Ok(CudaMemory::new(self.0.clone(), memory, words))
    }

    /// Copies the words of a call's buffer to the host.
    pub(crate) fn download(&self, from: Span, to: &mut [f32]) -> Result<()> {
        // SAFETY: the buffer is borrowed for a call, and its words were checked; the copy is done when this returns.
        let memory = unsafe { Memory::from_raw(&self.0.context, from.address, from.words * WORD_BYTES) }?;
        memory.read(0, bytemuck::cast_slice_mut(to), &self.0.stream)
    }
}

impl Card {
    /// The stream that the kernels run on, for calls of a communicator.
    pub(crate) fn device_stream(&self) -> DeviceStream {
        // SAFETY: it is a stream of this device, and lives as long as the card.
        unsafe { DeviceStream::from_raw(self.stream.raw(), self.context.ordinal()) }
    }
}

impl DeviceMemory for CudaMemory {
    fn words(&self) -> usize {
        self.words
    }

    fn view(&self, words: Range<usize>) -> View<'_> {
        let (address, bytes, device) = self.part(&words);
        // SAFETY: the bytes are this memory's, which is borrowed as long as the view lives; it is freed or used again
        // in the order of the stream that the kernels run on.
        let buffer = unsafe { DeviceBuffer::from_raw(address, bytes, device) };
        #[expect(clippy::expect_used, reason = "the driver has given out this address and this size")]
        View::Device(buffer.expect("memory of a device is in the address space"))
    }

    fn view_mut(&mut self, words: Range<usize>) -> ViewMut<'_> {
        let (address, bytes, device) = self.part(&words);
        // SAFETY: as above, and nobody else has a view of it.
        let buffer = unsafe { DeviceBufferMut::from_raw(address, bytes, device) };
        #[expect(clippy::expect_used, reason = "as above")]
        ViewMut::Device(buffer.expect("memory of a device is in the address space"))
    }
}
