//! An NVIDIA device, as collectives on its memory need it.

#![expect(unsafe_code, reason = "calls NVIDIA's driver")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use unisono_communicator::{DType, Error, Result};
use unisono_cuda::{Context, Driver, EventHandle, EventKind, KernelCode, StreamKind};
use unisono_offload::{Combination, Device, DeviceTurn, RawEvent, RawStream, Scale};

use crate::arithmetic::DeviceArithmetic;
use crate::vendor::BACKEND;

/// The device with which NCCL was opened. All its functions make the device's primary context current while they run,
/// which CUDA's run-time library and other libraries of the process share.
#[derive(Debug)]
pub struct CudaDevice {
    pub(crate) context: Context,
    pub(crate) arithmetic: DeviceArithmetic,
    turn: Arc<DeviceTurn>,
}

/// The turns on the devices of this process, by the driver's file and the device's number.
static TURNS: Mutex<BTreeMap<(String, u32), Arc<DeviceTurn>>> = Mutex::new(BTreeMap::new());

impl CudaDevice {
    /// The device of this number by the driver in this file, or else by the system's, with kernels that come from
    /// there. It needs no NCCL.
    ///
    /// # Errors
    /// The errors of [`crate::Nccl::open`] for the driver and the device.
    pub fn open(driver: Option<&Path>, ordinal: u32, kernels: &KernelCode) -> Result<CudaDevice> {
        let context = Driver::open(driver)?.context(ordinal)?;
        let arithmetic = DeviceArithmetic::new(&context, kernels);
        let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = turns.entry((context.driver().file().to_owned(), ordinal)).or_default().clone();
        Ok(CudaDevice { context, arithmetic, turn })
    }

    /// Its primary context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The elements that it combines: none without kernels.
    pub fn combining(&self) -> &'static [DType] {
        self.arithmetic.combining()
    }
}

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: RawStream = RawStream(2);

/// An address as the driver has it.
fn address(pointer: *const c_void) -> u64 {
    pointer.expose_provenance() as u64
}

fn event(event: RawEvent) -> EventHandle {
    ptr::with_exposed_provenance_mut(event.0)
}

// SAFETY of all that is unsafe here: the terms are the trait's, and the context has the same.
impl Device for CudaDevice {
    fn ordinal(&self) -> u32 {
        self.context.ordinal()
    }

    fn turn(&self) -> Option<&DeviceTurn> {
        Some(&self.turn)
    }

    /// NCCL leaves the current context as it is.
    fn hold(&self, work: &mut dyn FnMut()) {
        if self.context.hold(&mut *work).is_err() {
            // Each function says by itself why it cannot have the context.
            work();
        }
    }

    fn allocate(&self, bytes: usize) -> Result<*mut c_void> {
        Ok(ptr::with_exposed_provenance_mut(self.context.allocate_raw(bytes)? as usize))
    }

    // SAFETY: see above.
    unsafe fn free(&self, pointer: *mut c_void) {
        // SAFETY: see above.
        unsafe { self.context.free_raw(address(pointer)) };
    }

    // SAFETY: see above.
    unsafe fn upload(&self, to: *mut c_void, from: &[u8], stream: RawStream) -> Result<()> {
        // SAFETY: see above.
        unsafe {
            self.context.upload(address(to), from, stream.as_pointer())?;
            // The driver reads memory that is locked only when the stream comes to it.
            self.context.synchronize(stream.as_pointer())
        }
    }

    // SAFETY: see above.
    unsafe fn download(&self, to: &mut [u8], from: *const c_void, stream: RawStream) -> Result<()> {
        // SAFETY: see above.
        unsafe { self.context.download(to, address(from), stream.as_pointer()) }
    }

    // SAFETY: see above.
    unsafe fn copy(
        &self,
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: see above.
        unsafe { self.context.copy(address(to), address(from), bytes, stream.as_pointer()) }
    }

    /// NCCL divides by itself, so there is no kernel for it.
    // SAFETY: see above.
    unsafe fn scale(
        &self,
        pointer: *mut c_void,
        count: usize,
        dtype: DType,
        by: Scale,
        stream: RawStream,
    ) -> Result<()> {
        let (elements, stream) = ((count, dtype), stream.as_pointer());
        match by {
            Scale::Multiply(factor) => {
                let address = address(pointer);
                // SAFETY: see above.
                unsafe { self.arithmetic.multiply(&self.context, address, elements, factor, stream) }
            }
            Scale::Divide(_) => {
                let what = format!("division of {dtype} on the device");
                Err(Error::Unsupported { what, backend: BACKEND, instead: None })
            }
        }
    }

    // SAFETY: see above.
    unsafe fn combine(
        &self,
        to: *mut c_void,
        [left, right]: [*const c_void; 2],
        count: usize,
        dtype: DType,
        by: Combination,
        stream: RawStream,
    ) -> Result<()> {
        let addresses = [address(to), address(left), address(right)];
        let stream = stream.as_pointer();
        // SAFETY: see above.
        unsafe { self.arithmetic.combine(&self.context, addresses, (count, dtype), by, stream) }
    }

    fn create_stream(&self) -> Result<RawStream> {
        Ok(RawStream(self.context.create_stream(StreamKind::NonBlocking)?.expose_provenance()))
    }

    // SAFETY: see above.
    unsafe fn destroy_stream(&self, stream: RawStream) {
        // SAFETY: see above.
        unsafe { self.context.destroy_stream(stream.as_pointer()) };
    }

    // SAFETY: see above.
    unsafe fn synchronize(&self, stream: RawStream) -> Result<()> {
        // SAFETY: see above.
        unsafe { self.context.synchronize(stream.as_pointer()) }
    }

    fn create_event(&self) -> Result<RawEvent> {
        Ok(RawEvent(self.context.create_event(EventKind::Done)?.expose_provenance()))
    }

    // SAFETY: see above.
    unsafe fn destroy_event(&self, of: RawEvent) {
        // SAFETY: see above.
        unsafe { self.context.destroy_event(event(of)) };
    }

    // SAFETY: see above.
    unsafe fn record(&self, of: RawEvent, stream: RawStream) -> Result<()> {
        // SAFETY: see above.
        unsafe { self.context.record(event(of), stream.as_pointer()) }
    }

    // SAFETY: see above.
    unsafe fn is_done(&self, of: RawEvent) -> Result<bool> {
        // SAFETY: see above.
        unsafe { self.context.is_done(event(of)) }
    }

    /// Also refuses the default stream of a thread: NCCL launches calls of a communicator that does not block by a
    /// thread of its own, whose stream of that name is another one, so that nothing on the caller's would be behind
    /// them.
    // SAFETY: see above.
    unsafe fn check_stream(&self, stream: RawStream) -> Result<()> {
        if stream == PER_THREAD {
            let what = "the default stream of a thread (CU_STREAM_PER_THREAD)".to_owned();
            let instead =
                "a stream of cuStreamCreate, or the legacy default stream (CU_STREAM_LEGACY)".to_owned();
            return Err(Error::Unsupported { what, backend: BACKEND, instead: Some(instead) });
        }
        // SAFETY: see above.
        if !unsafe { self.context.owns_stream(stream.as_pointer()) }? {
            let problem =
                format!("{:#x}, which is not one of the primary context of {:?}", stream.0, self.context);
            return Err(Error::invalid("stream", problem));
        }
        // SAFETY: see above.
        if unsafe { self.context.is_capturing(stream.as_pointer()) }? {
            let what = "a stream whose work is being captured into a graph".to_owned();
            let instead = Some("the call before the capture begins or after it ends".to_owned());
            return Err(Error::Unsupported { what, backend: BACKEND, instead });
        }
        Ok(())
    }

    fn check_address(&self, argument: &'static str, address: usize) -> Result<()> {
        let own = self.ordinal();
        let problem = match self.context.device_of(address as u64) {
            Some(owner) if owner == own => return Ok(()),
            Some(owner) => format!("{address:#x}, in memory of device {owner}: the communicator is on {own}"),
            None => {
                format!("{address:#x}, which is no memory of a device: the communicator is on device {own}")
            }
        };
        Err(Error::invalid(argument, problem))
    }
}
