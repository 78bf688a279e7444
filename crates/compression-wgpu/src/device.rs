//! A device that is open: its pipelines, its memory, and copies between it and the host.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use unisono_communicator::Result;

use crate::adapter::{OpenOptions, open};
use crate::error::unreachable;
use crate::link::Link;
use crate::memory::{AddressTable, Span, WgpuMemory};
use crate::pipelines::Pipelines;
use crate::pool::{Pool, Pooled};

/// The kernels on one device of wgpu.
///
/// A clone is the same device; threads may share it. Calls run in their order, and what returns nothing but success
/// may still be running when it has returned.
#[derive(Clone)]
pub struct WgpuKernels(Arc<Inner>);

struct Inner {
    link: Arc<Link>,
    info: wgpu::AdapterInfo,
    /// For [`unisono_communicator::DeviceSpan::device`].
    number: u32,
    pipelines: Pipelines,
    addresses: AddressTable,
    /// What kernels read and write, and what the host reads.
    memory: Arc<Pool>,
    staging: Arc<Pool>,
    /// What is bound where a kernel reads nothing, and where it writes nothing.
    unread: (Span, Pooled),
    unwritten: (Span, Pooled),
}

impl fmt::Debug for WgpuKernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wgpu on {:?}", self.0.link)
    }
}

impl WgpuKernels {
    /// Opens a device and compiles all kernels, which takes some tenths of a second.
    ///
    /// # Errors
    /// [`Error::LibraryMissing`] when there is no such adapter; it lists those that there are.
    /// [`Error::Unsupported`] when a limit is too small; it names the limit.
    /// [`Error::Vendor`] when the device cannot be opened, or does not take a kernel.
    pub fn open(options: &OpenOptions) -> Result<WgpuKernels> {
        static OPENED: AtomicU32 = AtomicU32::new(0);
        let (info, device, queue) = open(options)?;
        let link = Arc::new(Link::new(&info, device, queue));
        let pipelines = Pipelines::new(&link)?;
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let memory = Pool::new(Arc::clone(&link), usage);
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let staging = Pool::new(Arc::clone(&link), usage);
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        let unused = || -> Result<(Span, Pooled)> {
            let buffer = memory.take(1)?;
            Ok((Span { buffer: buffer.buffer().clone(), at: 0, words: 1 }, buffer))
        };
        let (unread, unwritten, addresses) = (unused()?, unused()?, AddressTable::default());
        let inner = Inner { link, info, number, pipelines, addresses, memory, staging, unread, unwritten };
        Ok(WgpuKernels(Arc::new(inner)))
    }

    /// The adapter.
    pub fn adapter(&self) -> &wgpu::AdapterInfo {
        &self.0.info
    }

    /// The device of wgpu. Whoever destroys it makes every later call fail with [`Error::Vendor`].
    pub fn device(&self) -> &wgpu::Device {
        &self.0.link.device
    }

    pub(crate) fn link(&self) -> &Link {
        &self.0.link
    }

    pub(crate) fn number(&self) -> u32 {
        self.0.number
    }

    pub(crate) fn addresses(&self) -> &AddressTable {
        &self.0.addresses
    }

    pub(crate) fn pipelines(&self) -> &Pipelines {
        &self.0.pipelines
    }

    /// Buffers that kernels read and write.
    pub(crate) fn memory(&self) -> &Arc<Pool> {
        &self.0.memory
    }

    /// Buffers that the host reads.
    pub(crate) fn staging(&self) -> &Arc<Pool> {
        &self.0.staging
    }

    /// What is bound where a kernel reads nothing.
    pub(crate) fn unread(&self) -> &Span {
        &self.0.unread.0
    }

    /// What is bound where a kernel writes nothing.
    pub(crate) fn unwritten(&self) -> &Span {
        &self.0.unwritten.0
    }

    /// The buffer of an address.
    pub(crate) fn find(&self, address: usize, bytes: usize) -> Result<Span> {
        self.0.addresses.find(address, bytes).ok_or_else(|| {
            let adapter = &self.link().adapter;
            let what = "memory that is gone or on another device";
            unreachable(
                adapter,
                what,
                "memory of these kernels (allocate), or a copy of it by read and write",
            )
        })
    }

    /// `words` words of zeros.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for more than the device's `max_buffer_size`, [`Error::Vendor`] when it has no more.
    pub fn allocate(&self, words: usize) -> Result<WgpuMemory> {
        let buffer = self.memory().take(words)?;
        let Link { device, queue, .. } = self.link();
        self.link().checked("clear_buffer", || {
            let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            encoder.clear_buffer(buffer.buffer(), 0, None);
            queue.submit([encoder.finish()])
        })?;
        Ok(WgpuMemory::new(self, buffer, words, Vec::new()))
    }

    /// Copies words of memory to the host, and waits until they are there.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for words behind the end; [`Error::Unsupported`] for another device's memory;
    /// [`Error::Vendor`] when the device is lost.
    pub fn read(&self, from: &WgpuMemory, at: usize, to: &mut [u32]) -> Result<()> {
        let span = from.span(self, at, to.len())?;
        if to.is_empty() {
            return Ok(());
        }
        let staging = self.staging().take(to.len())?;
        let Link { device, queue, .. } = self.link();
        let submission = self.link().checked("copy_buffer_to_buffer", || {
            let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            let bytes = to.len() as u64 * 4;
            encoder.copy_buffer_to_buffer(&span.buffer, span.at as u64 * 4, staging.buffer(), 0, bytes);
            queue.submit([encoder.finish()])
        })?;
        let read = self.link().read_back("read", staging.buffer(), submission, to);
        if read.is_err() {
            staging.discard();
        }
        read
    }

    /// Copies words of the host to memory.
    ///
    /// # Errors
    /// As [`WgpuKernels::read`].
    pub fn write(&self, from: &[u32], to: &mut WgpuMemory, at: usize) -> Result<()> {
        let span = to.span(self, at, from.len())?;
        self.upload(&span.buffer, span.at, from)
    }

    pub(crate) fn upload(&self, buffer: &wgpu::Buffer, at: usize, words: &[u32]) -> Result<()> {
        if words.is_empty() {
            return Ok(());
        }
        self.link().checked("write_buffer", || {
            self.link().queue.write_buffer(buffer, at as u64 * 4, bytemuck::cast_slice(words));
        })
    }

    /// Memory for a message that kernels write: as long as `words`, of any content. It keeps the vector.
    ///
    /// # Errors
    /// As [`WgpuKernels::allocate`].
    pub fn to_write(&self, words: Vec<u32>) -> Result<WgpuMemory> {
        let buffer = self.memory().take(words.len())?;
        Ok(WgpuMemory::new(self, buffer, words.len(), words))
    }

    /// The vector of [`WgpuKernels::to_write`], with what kernels have written.
    ///
    /// # Errors
    /// As [`WgpuKernels::read`].
    pub fn written(&self, mut memory: WgpuMemory) -> Result<Vec<u32>> {
        let mut words = std::mem::take(&mut memory.kept);
        self.read(&memory, 0, &mut words)?;
        Ok(words)
    }

    /// A message that kernels read: the content of `words`, which it keeps.
    ///
    /// # Errors
    /// As [`WgpuKernels::allocate`].
    pub fn to_read(&self, words: Vec<u32>) -> Result<WgpuMemory> {
        let buffer = self.memory().take(words.len())?;
        self.upload(buffer.buffer(), 0, &words)?;
        Ok(WgpuMemory::new(self, buffer, words.len(), words))
    }

    /// The vector of [`WgpuKernels::to_read`].
    pub fn was_read(&self, mut memory: WgpuMemory) -> Vec<u32> {
        std::mem::take(&mut memory.kept)
    }
}
