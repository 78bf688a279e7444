//! One card with the kernels loaded, and the stream that they run on.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use unisono_communicator::{DeviceStream, Result};
use unisono_compression::{DevicePool, KernelDevice};
use unisono_cuda::{Context, Driver, Event, Function, KernelCode, Memory, Stream};

use crate::code::{KERNELS, source};
use crate::memory::CudaMemory;

/// The options with which a card is opened.
#[derive(Clone, Debug, Default)]
pub struct CudaOptions {
    /// The driver's library; the system's, else.
    pub driver: Option<PathBuf>,
    /// The number of the card, as the driver counts.
    pub device: u32,
    /// The source of the kernels.
    pub code: KernelCode,
}

/// The kernels of one card, on a stream of their own. Clones share the stream; ranks of one process that are to run
/// side by side open their own.
///
/// Calls that encode, and calls whose result a user reads, return when the card is done, so that a failure there is
/// their error. The stream waits for earlier work on the legacy default stream, and later work there waits for it; work
/// on streams that do not block must be ordered by the caller.
#[derive(Clone)]
pub struct CudaKernels(pub(crate) Arc<Card>);

pub(crate) struct Card {
    pub(crate) context: Context,
    pub(crate) stream: Stream,
    /// In the order of [`KERNELS`].
    pub(crate) functions: Vec<Function>,
    scratch: Mutex<Scratch>,
    /// Before and behind each kernel and copy, while [`CudaKernels::timed`] runs.
    times: Mutex<Option<Vec<[Event; 2]>>>,
    pub(crate) pool: DevicePool<Memory>,
}

/// The memory that launches of one stream write beside their results, one call after the other.
pub(crate) struct Scratch {
    /// The first block that cannot be encoded: one word.
    pub(crate) first_bad: Memory,
    /// The addresses of parts.
    pub(crate) parts: Memory,
    /// The sums of squares and the shifts of tiles.
    pub(crate) squares: Memory,
}

impl Scratch {
    /// At least so many bytes. The content is lost.
    pub(crate) fn grown<'a>(
        context: &Context,
        memory: &'a mut Memory,
        bytes: usize,
    ) -> Result<&'a mut Memory> {
        if memory.bytes() < bytes {
            *memory = context.allocate(bytes.next_power_of_two())?;
        }
        Ok(memory)
    }
}

impl fmt::Debug for CudaKernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaKernels({:?})", self.0.context)
    }
}

impl CudaKernels {
    /// Opens a card.
    ///
    /// # Errors
    /// [`LibraryMissing`](unisono_communicator::Error::LibraryMissing) without a driver or NVRTC, and when one of them
    /// is too old or lacks a function; [`Unsupported`](unisono_communicator::Error::Unsupported) when the kernels were
    /// compiled for other cards; [`InvalidArgument`](unisono_communicator::Error::InvalidArgument) for a card that
    /// there is not; [`Vendor`](unisono_communicator::Error::Vendor) when a function of the driver fails.
    pub fn open(options: &CudaOptions) -> Result<CudaKernels> {
        let driver = Driver::open(options.driver.as_deref())?;
        let context = driver.context(options.device)?;
        let code = options.code.of(&source(), &driver, context.capability())?;
        let module = context.load(&code)?;
        let functions = KERNELS.iter().map(|name| module.function(name)).collect::<Result<_>>()?;
        let empty = || context.allocate(0);
        let scratch = Scratch { first_bad: context.allocate(4)?, parts: empty()?, squares: empty()? };
        let (stream, pool) = (context.stream()?, DevicePool::default());
        let (scratch, times) = (Mutex::new(scratch), Mutex::new(None));
        Ok(CudaKernels(Arc::new(Card { context, stream, functions, scratch, times, pool })))
    }

    /// Runs `calls`, and gives the milliseconds that their kernels and copies took on the card, without the time around
    /// them.
    ///
    /// # Errors
    /// The errors of `calls`; [`Vendor`](unisono_communicator::Error::Vendor).
    pub fn timed<R>(&self, calls: impl FnOnce() -> Result<R>) -> Result<(R, f32)> {
        *self.0.times() = Some(Vec::new());
        let result = calls();
        let times = self.0.times().take().unwrap_or_default();
        let result = result?;
        let elapsed = times.iter().map(|[start, end]| end.elapsed_ms(start));
        Ok((result, elapsed.sum::<Result<f32>>()?))
    }

    /// The card.
    pub fn context(&self) -> &Context {
        &self.0.context
    }
}

impl Card {
    fn times(&self) -> MutexGuard<'_, Option<Vec<[Event; 2]>>> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues a kernel or a copy by `launch`, and notes its time if somebody asks.
    pub(crate) fn noting_time(&self, launch: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut times = self.times();
        let Some(times) = &mut *times else { return launch() };
        let events = [self.context.event()?, self.context.event()?];
        events[0].record(&self.stream)?;
        launch()?;
        events[1].record(&self.stream)?;
        times.push(events);
        Ok(())
    }

    /// Memory of any content. The pool's memory is given up if there is not enough.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<Memory> {
        let first = self.context.allocate(bytes);
        if first.is_err() && !self.pool.take_all().is_empty() { self.context.allocate(bytes) } else { first }
    }

    /// For one call.
    pub(crate) fn scratch(&self) -> MutexGuard<'_, Scratch> {
        // Another call writes the memory before it reads it, so a panic has left nothing of use or harm there.
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KernelDevice for CudaKernels {
    type Memory = CudaMemory;

    fn allocate(&self, words: usize) -> Result<CudaMemory> {
        let mut memory = self.0.allocate(words * size_of::<u32>())?;
        memory.fill(0, 0, words, &self.0.stream)?;
        // It may be used by kernels of another stream.
        self.0.stream.synchronize()?;
        Ok(CudaMemory::new(self.0.clone(), memory, words))
    }

    fn allocate_unwritten(&self, words: usize) -> Result<CudaMemory> {
        CudaMemory::pooled(self.0.clone(), words)
    }

    fn stream(&self) -> Option<DeviceStream> {
        Some(self.0.device_stream())
    }

    fn read(&self, from: &CudaMemory, at: usize, to: &mut [u32]) -> Result<()> {
        from.memory().read(at * size_of::<u32>(), bytemuck::cast_slice_mut(to), &self.0.stream)
    }

    fn write(&self, from: &[u32], to: &mut CudaMemory, at: usize) -> Result<()> {
        to.memory_mut().write(at * size_of::<u32>(), bytemuck::cast_slice(from), &self.0.stream)?;
        self.0.stream.synchronize()
    }

    fn copy(&self, from: &CudaMemory, at: usize, to: &mut CudaMemory, range: Range<usize>) -> Result<()> {
        let bytes = |words: usize| words * size_of::<u32>();
        let range_from = bytes(at)..bytes(at + range.len());
        self.0.noting_time(|| {
            to.memory_mut().copy(bytes(range.start), from.memory(), range_from, &self.0.stream)
        })
    }

    fn to_write(&self, message: Vec<u32>) -> Result<CudaMemory> {
        CudaMemory::of_message(self.0.clone(), message)
    }

    fn written(&self, mut memory: CudaMemory) -> Result<Vec<u32>> {
        let mut message = memory.take_message();
        self.read(&memory, 0, &mut message)?;
        Ok(message)
    }

    fn to_read(&self, message: Vec<u32>) -> Result<CudaMemory> {
        let mut memory = CudaMemory::of_message(self.0.clone(), message)?;
        let message = memory.take_message();
        memory.memory_mut().write(0, bytemuck::cast_slice(&message), &self.0.stream)?;
        memory.put_message(message);
        Ok(memory)
    }

    fn was_read(&self, mut memory: CudaMemory) -> Vec<u32> {
        memory.take_message()
    }
}
