//! The driver's functions on streams, events and addresses that others own, such as a caller's stream: as numbers,
//! and without a record of who frees them. [`Memory`](crate::Memory), [`Stream`](crate::Stream) and
//! [`Event`](crate::Event) are the same with an owner.

#![expect(unsafe_code, reason = "calls NVIDIA's driver")]

use std::ffi::{c_int, c_void};
use std::ptr;

use unisono_communicator::Result;

use crate::context::Context;
use crate::driver::{Address, CAPTURE_UNSUPPORTED, Handle, NOT_READY};
use crate::module::Function;
use crate::stream::{Argument, Grid};

/// A stream as C has it, a `CUstream` or `cudaStream_t`.
pub type StreamHandle = Handle;

/// An event as C has it, a `CUevent` or `cudaEvent_t`.
pub type EventHandle = Handle;

/// The work that a stream waits for besides its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// Work on the legacy default stream, which waits for it in turn (`CU_STREAM_DEFAULT`).
    Blocking = 0,
    /// Nothing (`CU_STREAM_NON_BLOCKING`).
    NonBlocking = 1,
}

/// The fact that an event notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The time (`CU_EVENT_DEFAULT`).
    Timing = 0,
    /// Only that it has happened (`CU_EVENT_DISABLE_TIMING`).
    Done = 2,
}

/// Functions on handles and memory that others own. Every unsafe one requires that streams and events live and are of
/// this context, that addresses are of its device's memory for as many bytes as the call says, and that nobody else
/// uses these bytes until the work on the stream is done.
impl Context {
    /// `bytes` bytes of the device's memory, more than none, of any content.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`] with `CUDA_ERROR_OUT_OF_MEMORY` when there are not so many.
    pub fn allocate_raw(&self, bytes: usize) -> Result<Address> {
        let (_current, driver, mut address) = (self.enter()?, self.driver(), 0);
        // SAFETY: it writes one address.
        driver.check("cuMemAlloc", unsafe { (driver.table.mem_alloc)(&mut address, bytes) })?;
        Ok(address)
    }

    /// Frees memory, after all work that is under way on the device. A failure then is an error of a later call.
    ///
    /// # Safety
    /// It is of [`Context::allocate_raw`], and not used again.
    pub unsafe fn free_raw(&self, address: Address) {
        let Ok(_current) = self.enter() else { return };
        // SAFETY: the caller's; the driver waits for work that is under way.
        unsafe { (self.driver().table.mem_free)(address) };
    }

    /// Copies to the device, in the order of `stream`. From pageable memory of the host it returns when `from` may be
    /// changed; from memory that is locked, when the stream is done.
    ///
    /// # Safety
    /// See above.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`].
    pub unsafe fn upload(&self, to: Address, from: &[u8], stream: StreamHandle) -> Result<()> {
        let (_current, driver) = (self.enter()?, self.driver());
        // SAFETY: the caller's.
        let code = unsafe { (driver.table.memcpy_to_device)(to, from.as_ptr().cast(), from.len(), stream) };
        driver.check("cuMemcpyHtoDAsync", code)
    }

    /// Copies to the host, in the order of `stream`. Returns when the bytes are there.
    ///
    /// # Safety
    /// See above.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`], also for the work before it on the stream.
    pub unsafe fn download(&self, to: &mut [u8], from: Address, stream: StreamHandle) -> Result<()> {
        let (_current, driver) = (self.enter()?, self.driver());
        // SAFETY: the caller's; `to` stays borrowed until the stream is done.
        let code = unsafe { (driver.table.memcpy_to_host)(to.as_mut_ptr().cast(), from, to.len(), stream) };
        let copied = driver.check("cuMemcpyDtoHAsync", code);
        // Also after an error: nothing may be under way to `to`.
        // SAFETY: the caller's.
        unsafe { self.synchronize(stream) }.and(copied)
    }

    /// Enqueues a copy on the device; the two do not overlap.
    ///
    /// # Safety
    /// See above.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`].
    pub unsafe fn copy(&self, to: Address, from: Address, bytes: usize, stream: StreamHandle) -> Result<()> {
        let (_current, driver) = (self.enter()?, self.driver());
        // SAFETY: the caller's.
        let code = unsafe { (driver.table.memcpy_on_device)(to, from, bytes, stream) };
        driver.check("cuMemcpyDtoDAsync", code)
    }

    /// Enqueues a kernel, and returns at once.
    ///
    /// # Safety
    /// See above; the kernel is of this context, and the arguments are its own, in number and types.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`]. A failure while it runs is an error of a later call.
    pub unsafe fn launch(
        &self,
        function: &Function,
        grid: Grid,
        arguments: &[Argument],
        stream: StreamHandle,
    ) -> Result<()> {
        let (_current, driver) = (self.enter()?, self.driver());
        let mut arguments: Vec<*mut c_void> = arguments.iter().map(Argument::bytes).collect();
        // SAFETY: the caller's; the arguments are read before the call returns.
        let code = unsafe {
            (driver.table.launch_kernel)(
                function.handle(),
                grid.blocks,
                1,
                1,
                grid.threads,
                1,
                1,
                0,
                stream,
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        driver.check("cuLaunchKernel", code)
    }

    /// A new stream.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`].
    pub fn create_stream(&self, kind: StreamKind) -> Result<StreamHandle> {
        let (_current, driver, mut handle) = (self.enter()?, self.driver(), ptr::null_mut());
        // SAFETY: it writes one handle.
        driver.check("cuStreamCreate", unsafe { (driver.table.stream_create)(&mut handle, kind as u32) })?;
        Ok(handle)
    }

    /// Gives a stream back; work that is under way on it goes on.
    ///
    /// # Safety
    /// It is of [`Context::create_stream`], and not used again.
    pub unsafe fn destroy_stream(&self, stream: StreamHandle) {
        let Ok(_current) = self.enter() else { return };
        // SAFETY: the caller's; the driver keeps it until the work on it is done.
        unsafe { (self.driver().table.stream_destroy)(stream) };
    }

    /// Returns when all work that is on the stream is done.
    ///
    /// # Safety
    /// See above.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`], also for work that has failed.
    pub unsafe fn synchronize(&self, stream: StreamHandle) -> Result<()> {
        let (_current, driver) = (self.enter()?, self.driver());
        // SAFETY: the caller's.
        driver.check("cuStreamSynchronize", unsafe { (driver.table.stream_synchronize)(stream) })
    }

    /// Whether the stream's work is captured into a graph instead of being done.
    ///
    /// # Safety
    /// See above.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`], also for the legacy default stream while another one is captured.
    pub unsafe fn is_capturing(&self, stream: StreamHandle) -> Result<bool> {
        let (_current, driver, mut status) = (self.enter()?, self.driver(), 0);
        // SAFETY: the caller's; it writes one number.
        let code = unsafe { (driver.table.stream_is_capturing)(stream, &mut status) };
        driver.check("cuStreamIsCapturing", code)?;
        // CU_STREAM_CAPTURE_STATUS_NONE.
        Ok(status != 0)
    }

    /// Whether the stream is one of this context.
    ///
    /// # Safety
    /// It lives, in any context.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`].
    pub unsafe fn owns_stream(&self, stream: StreamHandle) -> Result<bool> {
        let (_current, driver, mut context) = (self.enter()?, self.driver(), ptr::null_mut());
        // SAFETY: the caller's; it writes one handle.
        let code = unsafe { (driver.table.stream_get_ctx)(stream, &mut context) };
        driver.check("cuStreamGetCtx", code)?;
        Ok(context == self.handle())
    }

    /// A new event.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`].
    pub fn create_event(&self, kind: EventKind) -> Result<EventHandle> {
        let (_current, driver, mut handle) = (self.enter()?, self.driver(), ptr::null_mut());
        // SAFETY: it writes one handle.
        driver.check("cuEventCreate", unsafe { (driver.table.event_create)(&mut handle, kind as u32) })?;
        Ok(handle)
    }

    /// Frees an event.
    ///
    /// # Safety
    /// It is of [`Context::create_event`], and not used again.
    pub unsafe fn destroy_event(&self, event: EventHandle) {
        let Ok(_current) = self.enter() else { return };
        // SAFETY: the caller's; the driver keeps it as long as it needs it.
        unsafe { (self.driver().table.event_destroy)(event) };
    }

    /// The event is done when all work that is on the stream now is.
    ///
    /// # Safety
    /// See above.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`].
    pub unsafe fn record(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        let (_current, driver) = (self.enter()?, self.driver());
        // SAFETY: the caller's.
        driver.check("cuEventRecord", unsafe { (driver.table.event_record)(event, stream) })
    }

    /// Whether the event is done; does not wait. An event that was never recorded is. While a capture of a stream
    /// forbids the question, it is not known to be.
    ///
    /// # Safety
    /// See above.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`] for work that has failed.
    pub unsafe fn is_done(&self, event: EventHandle) -> Result<bool> {
        let (_current, driver) = (self.enter()?, self.driver());
        // SAFETY: the caller's.
        match unsafe { (driver.table.event_query)(event) } {
            NOT_READY | CAPTURE_UNSUPPORTED => Ok(false),
            code => driver.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// The number of the device in whose memory the address is; `None` for memory of the host, and for addresses that
    /// the driver does not know.
    pub fn device_of(&self, address: Address) -> Option<u32> {
        let (_current, driver) = (self.enter().ok()?, self.driver());
        // CU_POINTER_ATTRIBUTE_MEMORY_TYPE and _DEVICE_ORDINAL: memory of the host that is locked has a device too.
        let (mut attributes, mut kind, mut ordinal) = ([2, 9], 0 as c_int, -1 as c_int);
        let mut values = [(&raw mut kind).cast(), (&raw mut ordinal).cast()];
        // SAFETY: both attributes are an `int`; for an address that the driver does not know they are none.
        let code = unsafe {
            (driver.table.pointer_get_attributes)(2, attributes.as_mut_ptr(), values.as_mut_ptr(), address)
        };
        // CU_MEMORYTYPE_DEVICE.
        let is_known = code == 0 && kind == 2;
        u32::try_from(ordinal).ok().filter(|_| is_known)
    }
}
