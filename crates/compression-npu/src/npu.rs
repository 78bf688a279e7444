//! An Ascend device whose memory compressed calls use.

#![expect(unsafe_code, reason = "copies in a device's memory, by its address")]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use unisono_communicator::{Error, Result};
use unisono_compression::{Codec, DevicePool, KernelDevice, SignRms};
use unisono_offload::{Device, RawStream};
use unisono_offload_hccl::{HcclOptions, Vectors};

use crate::memory::{Allocation, NpuMemory, WORD_BYTES};

/// The name in errors.
pub(crate) const BACKEND: &str = "compression on Ascend";

/// Words that are set to zero at once.
const ZEROED_WORDS: usize = 1 << 20;

/// The kernels of the codec [`SignRms`] on an Ascend device, by aclnn's operators. Clones are the same device.
///
/// All work is on one stream of its own, which [`KernelDevice::read`] and [`KernelDevice::write`] wait for. Work of
/// other streams on memory that a call is given must be done before it.
#[derive(Clone)]
pub struct NpuKernels(pub(crate) Arc<Npu>);

/// A device, open.
pub(crate) struct Npu {
    pub(crate) vectors: Vectors,
    pub(crate) stream: RawStream,
    pub(crate) pool: DevicePool<Allocation>,
}

impl fmt::Debug for NpuKernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NpuKernels({:?})", self.0.vectors)
    }
}

impl NpuKernels {
    /// Opens a device.
    ///
    /// # Errors
    /// As [`Vectors::open`]: [`Error::LibraryMissing`] without CANN's libraries, [`Error::Unsupported`] for other
    /// products than Atlas A2 and A3 and where an operator is missing, [`Error::InvalidArgument`] for a device that
    /// there is not, [`Error::Vendor`] when a function fails.
    pub fn open(options: &HcclOptions) -> Result<NpuKernels> {
        let vectors = Vectors::open(options)?;
        let stream = vectors.device().create_stream()?;
        Ok(NpuKernels(Arc::new(Npu { vectors, stream, pool: DevicePool::default() })))
    }
}

impl Npu {
    pub(crate) fn device(&self) -> &dyn Device {
        self.vectors.device()
    }

    /// Memory of any content. The pool's memory is given up if there is not enough.
    pub(crate) fn allocate(&self, words: usize) -> Result<Allocation> {
        let first = Allocation::new(self.device(), words * WORD_BYTES);
        if first.is_ok() {
            return first;
        }
        let kept = self.pool.take_all();
        if kept.is_empty() {
            return first;
        }
        // SAFETY: the stream is this value's.
        unsafe { self.device().synchronize(self.stream) }?;
        kept.into_iter().for_each(|one| one.free(self.device()));
        Allocation::new(self.device(), words * WORD_BYTES)
    }

    /// Gives memory back behind its users. After an error nobody knows its users, and it stays.
    pub(crate) fn free(&self, memory: Allocation) {
        // SAFETY: the stream is this value's.
        if unsafe { self.device().synchronize(self.stream) }.is_ok() {
            memory.free(self.device());
        }
    }

    /// Copies words to the device.
    pub(crate) fn upload(&self, to: usize, words: &[u32]) -> Result<()> {
        let (to, bytes) = (std::ptr::with_exposed_provenance_mut(to), bytemuck::cast_slice(words));
        // SAFETY: callers have checked that so many words are there; their work is on this stream.
        unsafe { self.device().upload(to, bytes, self.stream) }
    }

    /// Copies words to the host. Waits for the stream.
    pub(crate) fn download(&self, words: &mut [u32], from: usize) -> Result<()> {
        let (bytes, from) = (bytemuck::cast_slice_mut(words), std::ptr::with_exposed_provenance(from));
        // SAFETY: as above.
        unsafe { self.device().download(bytes, from, self.stream) }
    }

    /// Copies words on the device, which do not overlap.
    pub(crate) fn copy(&self, to: usize, from: usize, words: usize) -> Result<()> {
        let (to, from) = (std::ptr::with_exposed_provenance_mut(to), std::ptr::with_exposed_provenance(from));
        // SAFETY: as above.
        unsafe { self.device().copy(to, from, words * WORD_BYTES, self.stream) }
    }
}

impl Drop for Npu {
    fn drop(&mut self) {
        let kept = self.pool.take_all();
        // SAFETY: the stream is this value's. An error helps nobody: memory that it may still use is kept then.
        unsafe {
            if self.device().synchronize(self.stream).is_ok() {
                kept.into_iter().for_each(|one| one.free(self.device()));
                self.device().destroy_stream(self.stream);
            }
        }
    }
}

impl KernelDevice for NpuKernels {
    type Memory = NpuMemory;

    fn check_codec(&self, codec: &dyn Codec) -> Result<()> {
        if codec.name() == SignRms::default().name() {
            return Ok(());
        }
        Err(unsupported(&format!("the codec {}", codec.name())))
    }

    fn allocate(&self, words: usize) -> Result<NpuMemory> {
        let memory = NpuMemory::new(self.0.clone(), words)?;
        let zeros = vec![0; words.min(ZEROED_WORDS)];
        for at in (0..words).step_by(ZEROED_WORDS) {
            self.0.upload(memory.at(at), &zeros[..ZEROED_WORDS.min(words - at)])?;
        }
        Ok(memory)
    }

    fn read(&self, from: &NpuMemory, at: usize, to: &mut [u32]) -> Result<()> {
        self.0.download(to, from.part(at..at + to.len()))
    }

    fn write(&self, from: &[u32], to: &mut NpuMemory, at: usize) -> Result<()> {
        self.0.upload(to.part(at..at + from.len()), from)
    }

    fn copy(&self, from: &NpuMemory, at: usize, to: &mut NpuMemory, range: Range<usize>) -> Result<()> {
        let words = range.len();
        self.0.copy(to.part(range), from.part(at..at + words), words)
    }

    fn to_write(&self, message: Vec<u32>) -> Result<NpuMemory> {
        NpuMemory::pooled(self.0.clone(), message.len()).map(|memory| memory.with_message(message))
    }

    fn written(&self, mut memory: NpuMemory) -> Result<Vec<u32>> {
        let mut message = memory.take_message();
        self.read(&memory, 0, &mut message)?;
        Ok(message)
    }

    fn to_read(&self, message: Vec<u32>) -> Result<NpuMemory> {
        let memory = NpuMemory::pooled(self.0.clone(), message.len())?;
        self.0.upload(memory.at(0), &message)?;
        Ok(memory.with_message(message))
    }

    fn was_read(&self, mut memory: NpuMemory) -> Vec<u32> {
        memory.take_message()
    }
}

/// The error of an operation without a kernel.
pub(crate) fn unsupported(what: &str) -> Error {
    Error::Unsupported {
        what: what.to_owned(),
        backend: BACKEND,
        instead: Some("the codec sign-rms, or HostKernels with vectors on the host".to_owned()),
    }
}
