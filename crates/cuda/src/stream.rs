//! The order of work on a device, and the time that it takes.

#![expect(unsafe_code, reason = "calls NVIDIA's driver")]

use std::ffi::c_void;
use std::ptr;

use unisono_communicator::{Error, Result};

use crate::context::Context;
use crate::driver::Handle;
use crate::module::Function;
use crate::raw::{EventKind, StreamKind};

/// Work that is done in the order in which it was enqueued.
#[derive(Debug)]
pub struct Stream {
    context: Context,
    handle: Handle,
}

// SAFETY: the driver's functions may be called from any thread, and a stream is not bound to one.
unsafe impl Send for Stream {}
// SAFETY: as above; the driver orders calls of several threads.
unsafe impl Sync for Stream {}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: it was created, and is not used again.
        unsafe { self.context.destroy_stream(self.handle) };
    }
}

/// The number of threads that run a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks, up to 2^31 - 1.
    pub blocks: u32,
    /// Threads of a block, up to 1,024.
    pub threads: u32,
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// A pointer; 0 is null.
    Address(u64),
    /// An `unsigned`.
    Word(u32),
    /// An `unsigned long long`.
    Long(u64),
    /// A `float`.
    Float(f32),
    /// A `double`.
    Double(f64),
}

impl Argument {
    /// The place of its bytes.
    pub(crate) fn bytes(&self) -> *mut c_void {
        match self {
            Argument::Address(value) | Argument::Long(value) => ptr::from_ref(value).cast_mut().cast(),
            Argument::Word(value) => ptr::from_ref(value).cast_mut().cast(),
            Argument::Float(value) => ptr::from_ref(value).cast_mut().cast(),
            Argument::Double(value) => ptr::from_ref(value).cast_mut().cast(),
        }
    }
}

impl Stream {
    pub(crate) fn new(context: Context) -> Result<Stream> {
        let handle = context.create_stream(StreamKind::Blocking)?;
        Ok(Stream { context, handle })
    }

    /// The stream as C has it, a `CUstream` or `cudaStream_t`, as a number. It is valid as long as this value.
    pub fn raw(&self) -> usize {
        self.handle.expose_provenance()
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns when all work is done.
    ///
    /// # Errors
    /// [`Error::Vendor`], also for work that has failed.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream lives.
        unsafe { self.context.synchronize(self.handle) }
    }

    /// Enqueues a kernel, and returns at once.
    ///
    /// # Safety
    /// The arguments must fit the kernel, in number and types, and its accesses to the memory that they point to must
    /// be valid in the order of this stream.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a kernel of another device; [`Error::Vendor`]. A failure while it runs is an
    /// error of a later call.
    pub unsafe fn launch(&self, function: &Function, grid: Grid, arguments: &[Argument]) -> Result<()> {
        if function.context().ordinal() != self.context.ordinal() {
            let problem =
                format!("is loaded on {:?}, the stream is on {:?}", function.context(), self.context);
            return Err(Error::invalid("function", problem));
        }
        // SAFETY: the caller's; the stream lives.
        unsafe { self.context.launch(function, grid, arguments, self.handle) }
    }
}

/// A point in a stream.
#[derive(Debug)]
pub struct Event {
    context: Context,
    handle: Handle,
}

// SAFETY: the driver's functions may be called from any thread, and an event is not bound to one.
unsafe impl Send for Event {}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it was created, and is not used again.
        unsafe { self.context.destroy_event(self.handle) };
    }
}

impl Event {
    pub(crate) fn new(context: Context) -> Result<Event> {
        let handle = context.create_event(EventKind::Timing)?;
        Ok(Event { context, handle })
    }

    /// Notes the time when the work before it on the stream is done.
    ///
    /// # Errors
    /// [`Error::Vendor`].
    pub fn record(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both live.
        unsafe { self.context.record(self.handle, stream.handle()) }
    }

    /// Milliseconds from `start` to this event; waits for it.
    ///
    /// # Errors
    /// [`Error::Vendor`], also for work that has failed, and for events that were not recorded.
    pub fn elapsed_ms(&self, start: &Event) -> Result<f32> {
        let (_current, driver) = (self.context.enter()?, self.context.driver());
        // SAFETY: the event lives.
        let code = unsafe { (driver.table.event_synchronize)(self.handle) };
        driver.check("cuEventSynchronize", code)?;
        let mut milliseconds = 0.0;
        // SAFETY: it writes one number; both events live.
        let code = unsafe { (driver.table.event_elapsed_time)(&mut milliseconds, start.handle, self.handle) };
        driver.check("cuEventElapsedTime", code)?;
        Ok(milliseconds)
    }
}
