//! Memory on a device of wgpu. It has no addresses, but calls name memory by address: each allocation gets a range of
//! made-up ones, and a table finds its buffer.

#![expect(unsafe_code, reason = "memory of a device, by a made-up address")]

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use unisono_communicator::{DeviceBuffer, DeviceBufferMut, Error, Result};
use unisono_compression::{DeviceMemory, View, ViewMut};

use crate::WgpuKernels;
use crate::pool::Pooled;

/// The next address that no memory has. All devices of the process share the addresses, and none is used again: an
/// address of another device, or of memory that is gone, is found nowhere.
static NEXT_ADDRESS: AtomicUsize = AtomicUsize::new(GAP_BYTES);

/// Between two allocations, so that no range of one reaches into the next.
const GAP_BYTES: usize = 1 << 20;

/// Words of a buffer.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) buffer: wgpu::Buffer,
    /// The first word.
    pub(crate) at: usize,
    pub(crate) words: usize,
}

/// The buffers that addresses mean.
#[derive(Default)]
pub(crate) struct AddressTable(Mutex<BTreeMap<usize, (wgpu::Buffer, usize)>>);

impl AddressTable {
    /// The address of new memory.
    fn add(&self, buffer: &wgpu::Buffer, words: usize) -> usize {
        let room = (words * 4).next_multiple_of(GAP_BYTES) + GAP_BYTES;
        let address = NEXT_ADDRESS.fetch_add(room, Ordering::Relaxed);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(address, (buffer.clone(), words));
        address
    }

    fn remove(&self, address: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
    }

    /// The words at an address; `None` unless they are all in one allocation.
    pub(crate) fn find(&self, address: usize, bytes: usize) -> Option<Span> {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, (buffer, words)) = table.range(..=address).next_back()?;
        let at = address - start;
        let is_inside = at.is_multiple_of(4) && bytes.is_multiple_of(4) && at + bytes <= words * 4;
        is_inside.then(|| Span { buffer: buffer.clone(), at: at / 4, words: bytes / 4 })
    }
}

/// Words on a device, on which [`WgpuKernels`] compute. It goes back to the device's pool when it is dropped.
pub struct WgpuMemory {
    kernels: WgpuKernels,
    buffer: Pooled,
    address: usize,
    words: usize,
    /// The host's vector of a message, until it comes back.
    pub(crate) message: Vec<u32>,
}

impl WgpuMemory {
    pub(crate) fn new(kernels: &WgpuKernels, buffer: Pooled, words: usize, message: Vec<u32>) -> WgpuMemory {
        let address = kernels.addresses().add(buffer.buffer(), words);
        WgpuMemory { kernels: kernels.clone(), buffer, address, words, message }
    }

    /// The buffer of wgpu, for a program's own work on [`WgpuKernels::queue`]. Its first words are this memory; there
    /// may be more. It may be used as storage, and copied from and to.
    pub fn buffer(&self) -> &wgpu::Buffer {
        self.buffer.buffer()
    }

    fn place(&self, words: Range<usize>) -> (usize, usize) {
        assert!(words.start <= words.end && words.end <= self.words, "{words:?} of {} words", self.words);
        (self.address + words.start * 4, words.len() * 4)
    }

    /// The buffer, if it is memory of `kernels` and has these words.
    pub(crate) fn span(&self, kernels: &WgpuKernels, at: usize, words: usize) -> Result<Span> {
        if at + words > self.words {
            let problem = format!("{words} words from word {at} on, of memory of {} words", self.words);
            return Err(Error::invalid("memory", problem));
        }
        kernels.find(self.address + at * 4, words * 4)
    }
}

impl DeviceMemory for WgpuMemory {
    fn words(&self) -> usize {
        self.words
    }

    fn view(&self, words: Range<usize>) -> View<'_> {
        let (address, bytes) = self.place(words);
        // SAFETY: the address is a name in a table of these kernels; nothing reads through it. Their work with it runs
        // in the order of their queue.
        let buffer = unsafe { DeviceBuffer::from_raw(address, bytes, self.kernels.number()) };
        #[expect(clippy::expect_used, reason = "no address is null or near the end of the address space")]
        View::Device(buffer.expect("a made-up address is valid"))
    }

    fn view_mut(&mut self, words: Range<usize>) -> ViewMut<'_> {
        let (address, bytes) = self.place(words);
        // SAFETY: as in `view`.
        let buffer = unsafe { DeviceBufferMut::from_raw(address, bytes, self.kernels.number()) };
        #[expect(clippy::expect_used, reason = "as there")]
        ViewMut::Device(buffer.expect("a made-up address is valid"))
    }
}

impl fmt::Debug for WgpuMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} words on {:?}", self.words, self.kernels)
    }
}

impl Drop for WgpuMemory {
    fn drop(&mut self) {
        self.kernels.addresses().remove(self.address);
    }
}
