//! A device that is open: its pipelines, its memory, and copies between it and the host.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(doc)]
use unisono_communicator::Error;
use unisono_communicator::{Result, Severity, log};
use unisono_compression::{DeviceMemory, KernelDevice};

use crate::adapter::{OpenOptions, check_limits, open, title};
use crate::error::unreachable;
use crate::link::Link;
use crate::memory::{AddressTable, Span, WgpuMemory};
use crate::pipelines::Pipelines;
use crate::pool::{Pool, Pooled};

/// The kernels on one device of wgpu.
///
/// A clone is the same device; threads may share it. Calls run in their order, and a call that returns nothing but
/// success may still be running when it has returned.
#[derive(Clone)]
pub struct WgpuKernels(Arc<Inner>);

struct Inner {
    link: Arc<Link>,
    info: wgpu::AdapterInfo,
    limits: wgpu::Limits,
    /// For [`unisono_communicator::DeviceSpan::device`].
    number: u32,
    pipelines: Pipelines,
    addresses: AddressTable,
    /// Buffers that kernels read and write, and buffers that the host reads.
    memory: Arc<Pool>,
    staging: Arc<Pool>,
    /// The buffers to bind where a kernel reads nothing, and where it writes nothing.
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
    /// [`Error::LibraryMissing`] when there is no such adapter; it lists the adapters that there are.
    /// [`Error::Unsupported`] when a limit is too small; it names the limit. [`Error::Vendor`] when the device cannot
    /// be opened, or does not take a kernel.
    pub fn open(options: &OpenOptions) -> Result<WgpuKernels> {
        let (info, device, queue) = open(options)?;
        WgpuKernels::new(info, device, queue)
    }

    /// The kernels on a device that the program has opened, beside its own work on it. They take the device's callback
    /// for its loss.
    ///
    /// # Errors
    /// As [`WgpuKernels::open`].
    pub fn on_device(device: wgpu::Device, queue: wgpu::Queue) -> Result<WgpuKernels> {
        let info = device.adapter_info();
        check_limits(&title(&info), &device.limits())?;
        WgpuKernels::new(info, device, queue)
    }

    fn new(info: wgpu::AdapterInfo, device: wgpu::Device, queue: wgpu::Queue) -> Result<WgpuKernels> {
        static OPENED: AtomicU32 = AtomicU32::new(0);
        let link = Arc::new(Link::new(&info, device, queue));
        let pipelines = Pipelines::new(&link)?;
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let memory = Pool::new(Arc::clone(&link), usage);
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let staging = Pool::new(Arc::clone(&link), usage);
        let unused = || -> Result<(Span, Pooled)> {
            let buffer = memory.take(1)?;
            Ok((Span { buffer: buffer.buffer().clone(), at: 0, words: 1 }, buffer))
        };
        let (unread, unwritten, addresses) = (unused()?, unused()?, AddressTable::default());
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        log(Severity::Info, None, format_args!("compression computes on {}", link.adapter));
        let limits = link.device.limits();
        let inner =
            Inner { link, info, limits, number, pipelines, addresses, memory, staging, unread, unwritten };
        Ok(WgpuKernels(Arc::new(inner)))
    }

    /// The adapter.
    pub fn adapter(&self) -> &wgpu::AdapterInfo {
        &self.0.info
    }

    /// The device of wgpu. After its destruction every call fails with [`Error::Vendor`].
    pub fn device(&self) -> &wgpu::Device {
        &self.0.link.device
    }

    /// Its queue, in whose order the kernels run: a call sees all work that a program submits before it.
    pub fn queue(&self) -> &wgpu::Queue {
        &self.0.link.queue
    }

    pub(crate) fn link(&self) -> &Link {
        &self.0.link
    }

    pub(crate) fn limits(&self) -> &wgpu::Limits {
        &self.0.limits
    }

    /// The bytes that a binding holds of words that begin anywhere: it begins at a place that is aligned, and so by
    /// less than the alignment too early.
    pub(crate) fn binding_bytes_max(&self) -> u64 {
        let wgpu::Limits { max_storage_buffer_binding_size, min_storage_buffer_offset_alignment, .. } =
            self.limits();
        max_storage_buffer_binding_size.saturating_sub((*min_storage_buffer_offset_alignment).into())
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

    /// The buffer to bind where a kernel reads nothing.
    pub(crate) fn unread(&self) -> &Span {
        &self.0.unread.0
    }

    /// The buffer to bind where a kernel writes nothing.
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

    /// Copies words to the host, and waits until they are there.
    pub(crate) fn download(&self, from: &Span, to: &mut [u32]) -> Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        let staging = self.staging().take(to.len())?;
        let submission = self.submit("copy_buffer_to_buffer", |encoder| {
            let bytes = to.len() as u64 * 4;
            encoder.copy_buffer_to_buffer(&from.buffer, from.at as u64 * 4, staging.buffer(), 0, bytes);
        })?;
        self.read_back("read", staging, submission, to)
    }

    /// Waits for a submission, and reads the words that it has copied to the start of `staging`.
    pub(crate) fn read_back(
        &self,
        call: &str,
        staging: Pooled,
        submission: wgpu::SubmissionIndex,
        to: &mut [u32],
    ) -> Result<()> {
        let read = self.link().read_back(call, staging.buffer(), submission, to);
        if read.is_err() {
            staging.discard();
        }
        read
    }

    /// Copies words of the host.
    pub(crate) fn upload(&self, to: &Span, from: &[u32]) -> Result<()> {
        if from.is_empty() {
            return Ok(());
        }
        self.link().checked("write_buffer", || {
            self.link().queue.write_buffer(&to.buffer, to.at as u64 * 4, bytemuck::cast_slice(from));
        })
    }

    /// Enqueues the commands of `record`.
    pub(crate) fn submit(
        &self,
        call: &str,
        record: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<wgpu::SubmissionIndex> {
        let Link { device, queue, .. } = self.link();
        self.link().checked(call, || {
            let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            record(&mut encoder);
            queue.submit([encoder.finish()])
        })
    }
}

/// # Errors
/// [`unisono_communicator::Error::Unsupported`] for more words than the device's `max_buffer_size` and for memory of
/// another device, [`unisono_communicator::Error::InvalidArgument`] for words behind the end of memory,
/// [`unisono_communicator::Error::Vendor`] when the device has no memory left or is lost.
impl KernelDevice for WgpuKernels {
    type Memory = WgpuMemory;

    fn allocate(&self, words: usize) -> Result<WgpuMemory> {
        let buffer = self.memory().take(words)?;
        self.submit("clear_buffer", |encoder| encoder.clear_buffer(buffer.buffer(), 0, None))?;
        Ok(WgpuMemory::new(self, buffer, words, Vec::new()))
    }

    fn read(&self, from: &WgpuMemory, at: usize, to: &mut [u32]) -> Result<()> {
        self.download(&from.span(self, at, to.len())?, to)
    }

    fn write(&self, from: &[u32], to: &mut WgpuMemory, at: usize) -> Result<()> {
        self.upload(&to.span(self, at, from.len())?, from)
    }

    fn copy(&self, from: &WgpuMemory, at: usize, to: &mut WgpuMemory, range: Range<usize>) -> Result<()> {
        let (from, to) = (from.span(self, at, range.len())?, to.span(self, range.start, range.len())?);
        if range.is_empty() {
            return Ok(());
        }
        let [read, write, bytes] = [from.at, to.at, range.len()].map(|words| words as u64 * 4);
        self.submit("copy_buffer_to_buffer", |encoder| {
            encoder.copy_buffer_to_buffer(&from.buffer, read, &to.buffer, write, bytes);
        })?;
        Ok(())
    }

    fn to_write(&self, message: Vec<u32>) -> Result<WgpuMemory> {
        let buffer = self.memory().take(message.len())?;
        Ok(WgpuMemory::new(self, buffer, message.len(), message))
    }

    fn written(&self, mut memory: WgpuMemory) -> Result<Vec<u32>> {
        let mut message = std::mem::take(&mut memory.message);
        // The vector of memory that was allocated for something else.
        message.resize(memory.words(), 0);
        self.read(&memory, 0, &mut message)?;
        Ok(message)
    }

    fn to_read(&self, message: Vec<u32>) -> Result<WgpuMemory> {
        let mut memory = self.to_write(message)?;
        let message = std::mem::take(&mut memory.message);
        self.write(&message, &mut memory, 0)?;
        memory.message = message;
        Ok(memory)
    }

    fn was_read(&self, mut memory: WgpuMemory) -> Vec<u32> {
        let mut message = std::mem::take(&mut memory.message);
        message.resize(memory.words(), 0);
        message
    }
}
