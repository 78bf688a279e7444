//! Calls on memory of SYCL's devices, for programs that have SYCL: a queue is an opaque pointer here, so the program
//! lends the functions that work on it.

#![expect(unsafe_code, reason = "calls a program's functions on SYCL's queues")]

use std::ffi::{c_int, c_void};

use unisono_communicator::{DType, Error, Result};
use unisono_offload::{Device, RawEvent, RawStream, Scale};

use crate::vendor::BACKEND;

/// The operations that a program offers on a `sycl::queue`, behind functions that C++ exports:
///
/// ```c++
/// sycl::queue &of(void *queue) { return *static_cast<sycl::queue *>(queue); }
/// extern "C" int my_wait(void *queue) {
///     try {
///         of(queue).wait_and_throw();
///         return 0;
///     } catch (const sycl::exception &error) {
///         return error.code().value();
///     }
/// }
/// extern "C" int my_copy(void *queue, void *to, const void *from, size_t bytes) {
///     of(queue).memcpy(to, from, bytes);
///     return 0;
/// }
/// extern "C" void *my_allocate(size_t bytes) { return sycl::malloc_device(bytes, the_queue()); }
/// extern "C" void my_free(void *memory) { sycl::free(memory, the_queue()); }
/// ```
///
/// A result of 0 is success; any other number ends up in [`Error::Vendor`].
#[derive(Clone, Copy, Debug)]
pub struct SyclFunctions {
    /// Waits until all work on a queue is done.
    pub wait: unsafe extern "C" fn(queue: *mut c_void) -> c_int,
    /// Enqueues a copy: queue, to, from, bytes. The queue is in order.
    pub copy: unsafe extern "C" fn(*mut c_void, *mut c_void, *const c_void, usize) -> c_int,
    /// Memory of the device that its queues reach; null when there is not so much.
    pub allocate: unsafe extern "C" fn(bytes: usize) -> *mut c_void,
    /// Gives it back.
    pub free: unsafe extern "C" fn(*mut c_void),
}

/// The device behind a program's queues.
#[derive(Debug)]
pub(crate) struct SyclDevice {
    functions: SyclFunctions,
    ordinal: u32,
}

impl SyclDevice {
    pub(crate) fn new(functions: SyclFunctions, ordinal: u32) -> SyclDevice {
        SyclDevice { functions, ordinal }
    }
}

fn check(call: &'static str, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    Err(Error::Vendor {
        library: "the program's SYCL".into(),
        call: call.into(),
        code,
        text: "a function that was lent with SyclFunctions has failed".into(),
        remedy: "see what the exception said in that function".into(),
    })
}

fn lacks<T>(what: &str, instead: &str) -> Result<T> {
    let instead = Some(instead.to_owned());
    Err(Error::Unsupported { what: what.to_owned(), backend: BACKEND, instead })
}

/// Nobody learns from C when the work on a queue is done, but by waiting for it: an event is done when it is recorded.
impl Device for SyclDevice {
    fn ordinal(&self) -> u32 {
        self.ordinal
    }

    fn allocate(&self, bytes: usize) -> Result<*mut c_void> {
        // SAFETY: the maker of the functions has promised their effects.
        let start = unsafe { (self.functions.allocate)(bytes) };
        if start.is_null() {
            return Err(Error::System {
                what: format!("{bytes} bytes of SYCL's memory"),
                text: "none left".to_owned(),
            });
        }
        Ok(start)
    }

    // SAFETY: the terms are the trait's.
    unsafe fn free(&self, address: *mut c_void) {
        // SAFETY: the caller's.
        unsafe { (self.functions.free)(address) };
    }

    // SAFETY: the terms are the trait's.
    unsafe fn upload(&self, to: *mut c_void, from: &[u8], stream: RawStream) -> Result<()> {
        // SAFETY: the caller's; the bytes are borrowed until the queue is done.
        unsafe {
            self.copy(to, from.as_ptr().cast(), from.len(), stream)?;
            self.synchronize(stream)
        }
    }

    // SAFETY: the terms are the trait's.
    unsafe fn download(&self, to: &mut [u8], from: *const c_void, stream: RawStream) -> Result<()> {
        // SAFETY: the caller's; the bytes are borrowed until the queue is done.
        unsafe {
            self.copy(to.as_mut_ptr().cast(), from, to.len(), stream)?;
            self.synchronize(stream)
        }
    }

    // SAFETY: the terms are the trait's.
    unsafe fn copy(
        &self,
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        // SAFETY: the caller's.
        check("copy", unsafe { (self.functions.copy)(stream.as_pointer(), to, from, bytes) })
    }

    // SAFETY: the terms are the trait's.
    unsafe fn scale(&self, _: *mut c_void, _: usize, _: DType, _: Scale, _: RawStream) -> Result<()> {
        lacks("arithmetic on a queue", "sum, and a kernel of the program's own")
    }

    fn create_stream(&self) -> Result<RawStream> {
        lacks("host memory that is staged", "calls on memory of the queue's device")
    }

    // SAFETY: the terms are the trait's.
    unsafe fn destroy_stream(&self, _: RawStream) {}

    // SAFETY: the terms are the trait's.
    unsafe fn synchronize(&self, stream: RawStream) -> Result<()> {
        // SAFETY: the caller's.
        check("wait", unsafe { (self.functions.wait)(stream.as_pointer()) })
    }

    fn create_event(&self) -> Result<RawEvent> {
        Ok(RawEvent(0))
    }

    // SAFETY: the terms are the trait's.
    unsafe fn destroy_event(&self, _: RawEvent) {}

    // SAFETY: the terms are the trait's.
    unsafe fn record(&self, _: RawEvent, stream: RawStream) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.synchronize(stream) }
    }

    // SAFETY: the terms are the trait's.
    unsafe fn is_done(&self, _: RawEvent) -> Result<bool> {
        Ok(true)
    }

    // SAFETY: the terms are the trait's.
    unsafe fn check_stream(&self, stream: RawStream) -> Result<()> {
        if stream == RawStream::HOST {
            return Err(Error::invalid("stream", "null, which is no sycl::queue"));
        }
        Ok(())
    }

    fn check_address(&self, _: &'static str, _: usize) -> Result<()> {
        Ok(())
    }
}
