//! A device with the context in which this process uses it.

#![expect(unsafe_code, reason = "calls NVIDIA's driver")]

use std::cell::Cell;
use std::ffi::c_int;
use std::fmt;
use std::ptr;
use std::sync::Arc;

use unisono_communicator::{Error, Result};

use crate::driver::{Driver, Handle};
use crate::memory::Memory;
use crate::module::{Code, Module};
use crate::stream::{Event, Stream};

/// The compute capability of a card, as NVIDIA counts: 9.0 is `sm_90`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability {
    /// 9 of 9.0: code for one major version does not run on another.
    pub major: u32,
    /// 0 of 9.0: code runs on this and later minor versions.
    pub minor: u32,
}

impl Capability {
    /// From the number in `sm_90`.
    pub const fn from_number(number: u32) -> Capability {
        Capability { major: number / 10, minor: number % 10 }
    }

    /// The number in `sm_90`.
    pub const fn number(self) -> u32 {
        self.major * 10 + self.minor
    }

    /// Whether a card of this capability runs code for `other`.
    pub const fn runs(self, other: Capability) -> bool {
        self.major == other.major && self.minor >= other.minor
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.number())
    }
}

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The primary context of a device, which is given back when the last clone and the last thing made with it is dropped.
///
/// Every method may be called on any thread: it makes the context current and leaves the thread as it was. None voids a
/// capture of a stream into a graph that the program has under way, on this thread or another one.
#[derive(Clone)]
pub struct Context(Arc<Primary>);

struct Primary {
    driver: Driver,
    ordinal: u32,
    device: c_int,
    handle: Handle,
    name: String,
    capability: Capability,
}

// SAFETY: the driver's functions may be called from any thread, and a context is not bound to one.
unsafe impl Send for Primary {}
// SAFETY: as above; nothing here changes after it was made.
unsafe impl Sync for Primary {}

impl Drop for Primary {
    fn drop(&mut self) {
        // SAFETY: the context was retained once, and nothing that uses it is left.
        unsafe { (self.driver.table.primary_ctx_release)(self.device) };
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({} {:?}, {})", self.0.ordinal, self.0.name, self.0.capability)
    }
}

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;

/// The context is current on this thread until it is dropped, and nothing that the thread does meanwhile voids the
/// capture of a stream into a graph. The driver refuses questions about events, allocations and others, and voids the
/// capture, while any thread captures in global mode, or the own thread in any but relaxed mode; no capture of the
/// program's is meant to have the work of this crate.
pub(crate) struct Current<'a> {
    /// `None` within [`Context::hold`], which has made it current.
    driver: Option<&'a Driver>,
    /// The mode of the thread before.
    capture_mode: c_int,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let Some(driver) = self.driver else { return };
        let mut popped = ptr::null_mut();
        // SAFETY: it takes the mode back that `Context::enter` has changed on this thread, and pops the context that it
        // has pushed.
        unsafe {
            (driver.table.thread_exchange_capture_mode)(&mut self.capture_mode);
            (driver.table.ctx_pop_current)(&mut popped);
        }
    }
}

thread_local! {
    /// The context that [`Context::hold`] has made current on this thread, while nobody else's code may change that.
    static HELD: Cell<Handle> = const { Cell::new(ptr::null_mut()) };
}

/// The earlier value of [`HELD`], which returns when this is dropped.
struct Held(Handle);

impl Held {
    fn set(handle: Handle) -> Held {
        Held(HELD.replace(handle))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.set(self.0);
    }
}

impl Context {
    pub(crate) fn new(driver: Driver, ordinal: u32) -> Result<Context> {
        let (mut device, mut handle) = (0, ptr::null_mut());
        let number = c_int::try_from(ordinal).map_err(|_| Error::invalid("device", ordinal.to_string()))?;
        // SAFETY: it writes one number.
        driver.check("cuDeviceGet", unsafe { (driver.table.device_get)(&mut device, number) })?;
        let name = driver.device_name(device)?;
        // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
        let [major, minor] = [driver.attribute(device, 75)?, driver.attribute(device, 76)?];
        // SAFETY: it writes one handle; `Primary` releases it.
        let code = unsafe { (driver.table.primary_ctx_retain)(&mut handle, device) };
        driver.check("cuDevicePrimaryCtxRetain", code)?;
        let capability = Capability { major: major.unsigned_abs(), minor: minor.unsigned_abs() };
        Ok(Context(Arc::new(Primary { driver, ordinal, device, handle, name, capability })))
    }

    /// The driver.
    pub fn driver(&self) -> &Driver {
        &self.0.driver
    }

    /// The device's number.
    pub fn ordinal(&self) -> u32 {
        self.0.ordinal
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The compute capability of the device.
    pub fn capability(&self) -> Capability {
        self.0.capability
    }

    /// Makes it current on this thread, in the relaxed mode of captures.
    pub(crate) fn enter(&self) -> Result<Current<'_>> {
        let (driver, mut mode) = (self.driver(), RELAXED);
        if HELD.get() == self.0.handle {
            return Ok(Current { driver: None, capture_mode: mode });
        }
        // SAFETY: the context lives as long as this value; `Current` pops it.
        driver.check("cuCtxPushCurrent", unsafe { (driver.table.ctx_push_current)(self.0.handle) })?;
        // SAFETY: it reads one number and writes another.
        let code = unsafe { (driver.table.thread_exchange_capture_mode)(&mut mode) };
        if code != 0 {
            let mut popped = ptr::null_mut();
            // // SAFETY: it pops the context that was just pushed.
            unsafe { (driver.table.ctx_pop_current)(&mut popped) };
            driver.check("cuThreadExchangeStreamCaptureMode", code)?;
        }
        Ok(Current { driver: Some(driver), capture_mode: mode })
    }

    /// Runs `work`, in which methods of this context do not make it current again, one after the other. `work` leaves
    /// the thread's current context as it is.
    ///
    /// # Errors
    /// [`Error::Vendor`], before `work`.
    pub fn hold<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let _current = self.enter()?;
        let _held = Held::set(self.0.handle);
        Ok(work())
    }

    /// Runs `work` with this context current on the thread, as libraries on top of CUDA's run-time library need it: for
    /// them, the current device is this one.
    ///
    /// # Errors
    /// [`Error::Vendor`], and the errors of `work`.
    pub fn with_current<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let _current = self.enter()?;
        let _held = Held::set(ptr::null_mut());
        work()
    }

    /// Bytes of the device's memory that are free now.
    ///
    /// # Errors
    /// [`Error::Vendor`].
    pub fn free_bytes(&self) -> Result<usize> {
        let _current = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: it writes two numbers.
        let code = unsafe { (self.driver().table.mem_get_info)(&mut free, &mut total) };
        self.driver().check("cuMemGetInfo", code)?;
        Ok(free)
    }

    /// `bytes` bytes of the device's memory, of any content.
    ///
    /// # Errors
    /// [`Error::Vendor`] with `CUDA_ERROR_OUT_OF_MEMORY` when there are not so many.
    pub fn allocate(&self, bytes: usize) -> Result<Memory> {
        Memory::new(self.clone(), bytes)
    }

    /// A stream, which waits for work on the legacy default stream and is waited for by it, as every blocking stream.
    ///
    /// # Errors
    /// [`Error::Vendor`].
    pub fn stream(&self) -> Result<Stream> {
        Stream::new(self.clone())
    }

    /// An event that notes the time.
    ///
    /// # Errors
    /// [`Error::Vendor`].
    pub fn event(&self) -> Result<Event> {
        Event::new(self.clone())
    }

    /// Loads code.
    ///
    /// # Errors
    /// [`Error::Vendor`] for code that the device does not run.
    pub fn load(&self, code: &Code) -> Result<Module> {
        Module::new(self.clone(), code)
    }

    /// Whether an address is in memory that the driver has given out on this device.
    pub fn owns(&self, address: u64) -> bool {
        self.device_of(address) == Some(self.ordinal())
    }

    /// The driver's pointer to it.
    pub(crate) fn handle(&self) -> Handle {
        self.0.handle
    }
}
