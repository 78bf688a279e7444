//! Words in a device's memory, and allocations that are used again.

#![expect(unsafe_code, reason = "memory of a device, by its address")]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use unisono_communicator::{DeviceBuffer, DeviceBufferMut, Error, Result};
use unisono_compression::{DeviceMemory, View, ViewMut};
use unisono_offload::Device;

use crate::npu::{Npu, NpuKernels};

pub(crate) const WORD_BYTES: usize = size_of::<u32>();

/// Memory of the device's. Its holder frees it.
pub(crate) struct Allocation {
    address: usize,
    bytes: usize,
}

impl Allocation {
    pub(crate) fn new(device: &dyn Device, bytes: usize) -> Result<Allocation> {
        // None has no address.
        let address = if bytes == 0 { 0 } else { device.allocate(bytes)?.expose_provenance() };
        Ok(Allocation { address, bytes })
    }

    /// Gives it back. The work that uses it is done.
    pub(crate) fn free(self, device: &dyn Device) {
        if self.bytes > 0 {
            // SAFETY: it is this value's, and callers have waited.
            unsafe { device.free(std::ptr::with_exposed_provenance_mut(self.address)) };
        }
    }
}

/// The owner of the memory.
enum Owner {
    /// Somebody else's.
    Lent,
    /// This value's, given back with it.
    Own(Allocation),
    /// The pool's, for the time being.
    Pool(Allocation),
    /// Only while it is dropped.
    Nobody,
}

/// Words in the memory of an Ascend device.
pub struct NpuMemory {
    npu: Arc<Npu>,
    address: usize,
    words: usize,
    owner: Owner,
    /// The vector of a message, whose words are here.
    message: Vec<u32>,
}

impl fmt::Debug for NpuMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NpuMemory({} words on {:?})", self.words, self.npu.vectors)
    }
}

impl Drop for NpuMemory {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.owner, Owner::Nobody) {
            Owner::Lent | Owner::Nobody => {}
            Owner::Own(memory) => self.npu.free(memory),
            Owner::Pool(memory) if memory.bytes == 0 => {}
            Owner::Pool(memory) => {
                if let Some(shortest) = self.npu.pool.put(memory.bytes, memory) {
                    self.npu.free(shortest);
                }
            }
        }
    }
}

impl NpuMemory {
    fn of(npu: Arc<Npu>, words: usize, memory: Allocation, owner: fn(Allocation) -> Owner) -> NpuMemory {
        NpuMemory { npu, address: memory.address, words, owner: owner(memory), message: Vec::new() }
    }

    /// Words of any content.
    pub(crate) fn new(npu: Arc<Npu>, words: usize) -> Result<NpuMemory> {
        let memory = npu.allocate(words)?;
        Ok(NpuMemory::of(npu, words, memory, Owner::Own))
    }

    /// Words of any content that go back to the pool: their users are on the stream before their next users.
    pub(crate) fn pooled(npu: Arc<Npu>, words: usize) -> Result<NpuMemory> {
        let memory = npu.pool.take(words * WORD_BYTES).map_or_else(|| npu.allocate(words), Ok)?;
        Ok(NpuMemory::of(npu, words, memory, Owner::Pool))
    }

    pub(crate) fn with_message(self, message: Vec<u32>) -> NpuMemory {
        let mut memory = self;
        memory.message = message;
        memory
    }

    pub(crate) fn take_message(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.message)
    }

    /// The address of a word, or of the end.
    pub(crate) fn at(&self, word: usize) -> usize {
        self.address + word * WORD_BYTES
    }

    /// The address of a range of words.
    pub(crate) fn part(&self, words: Range<usize>) -> usize {
        assert!(words.start <= words.end && words.end <= self.words, "{words:?} of {} words", self.words);
        // Memory that is empty has no address.
        if words.is_empty() { 0 } else { self.at(words.start) }
    }
}

impl NpuKernels {
    /// Memory that belongs to somebody else, such as a tensor of f32: `words` words of 4 bytes at `address`.
    ///
    /// # Safety
    /// The words must be valid memory of this device as long as the value lives, and be used by nobody else while calls
    /// that have the value run.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an address that ACL knows on another device or not at all, or that is no multiple
    /// of 4.
    pub unsafe fn from_raw(&self, address: usize, words: usize) -> Result<NpuMemory> {
        if !address.is_multiple_of(WORD_BYTES) {
            return Err(Error::invalid("address", format!("{address:#x}, which is no multiple of 4")));
        }
        let Some(bytes) = words.checked_mul(WORD_BYTES).filter(|bytes| isize::try_from(*bytes).is_ok())
        else {
            return Err(Error::invalid("words", format!("{words}, which exceed the address space")));
        };
        if bytes > 0 {
            self.0.device().check_address("address", address)?;
            self.0.device().check_address("address", address + bytes - 1)?;
        }
        Ok(NpuMemory { npu: self.0.clone(), address, words, owner: Owner::Lent, message: Vec::new() })
    }
}

impl DeviceMemory for NpuMemory {
    fn words(&self) -> usize {
        self.words
    }

    fn view(&self, words: Range<usize>) -> View<'_> {
        let (bytes, device) = (words.len() * WORD_BYTES, self.npu.device().ordinal());
        // SAFETY: the bytes are this memory's, which is borrowed as long as the view lives; it is freed or used again
        // behind the kernels' stream.
        let buffer = unsafe { DeviceBuffer::from_raw(self.part(words), bytes, device) };
        #[expect(clippy::expect_used, reason = "ACL has given out this address and this size")]
        View::Device(buffer.expect("memory of a device is in the address space"))
    }

    fn view_mut(&mut self, words: Range<usize>) -> ViewMut<'_> {
        let (bytes, device) = (words.len() * WORD_BYTES, self.npu.device().ordinal());
        // SAFETY: as above, and nobody else has a view of it.
        let buffer = unsafe { DeviceBufferMut::from_raw(self.part(words), bytes, device) };
        #[expect(clippy::expect_used, reason = "as above")]
        ViewMut::Device(buffer.expect("memory of a device is in the address space"))
    }
}
