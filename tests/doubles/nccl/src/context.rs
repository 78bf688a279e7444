//! The CUDA driver: its codes (`CUresult`), devices and contexts. Each device has one context, the primary one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_char;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use unisono_double_common::fault::VendorError;
use unisono_double_common::{Out, export, handles, lock, memory, settings, text};

/// An error of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CuError(pub(crate) i32);

impl CuError {
    pub(crate) const INVALID_VALUE: CuError = CuError(1);
    pub(crate) const OUT_OF_MEMORY: CuError = CuError(2);
    const NOT_INITIALIZED: CuError = CuError(3);
    const NO_DEVICE: CuError = CuError(100);
    const INVALID_DEVICE: CuError = CuError(101);
    const INVALID_CONTEXT: CuError = CuError(201);
    pub(crate) const INVALID_IMAGE: CuError = CuError(200);
    pub(crate) const NOT_FOUND: CuError = CuError(500);
    pub(crate) const INVALID_HANDLE: CuError = CuError(400);
    pub(crate) const NOT_READY: CuError = CuError(600);
    pub(crate) const ILLEGAL_ADDRESS: CuError = CuError(700);
    pub(crate) const NOT_SUPPORTED: CuError = CuError(801);
    pub(crate) const STREAM_CAPTURE_UNSUPPORTED: CuError = CuError(900);
    pub(crate) const STREAM_CAPTURE_INVALIDATED: CuError = CuError(901);
}

impl VendorError for CuError {
    // CUDA_ERROR_UNKNOWN
    const ENDED: i32 = 999;

    fn code(&self) -> i32 {
        self.0
    }
}

const CODES: &[(i32, &str, &str)] = &[
    (0, "CUDA_SUCCESS", "no error"),
    (1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    (2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    (3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"),
    (100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"),
    (101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"),
    (200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"),
    (201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"),
    (400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"),
    (500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"),
    (600, "CUDA_ERROR_NOT_READY", "device not ready"),
    (700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"),
    (719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"),
    (801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"),
    (900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"),
    (901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"),
    (999, "CUDA_ERROR_UNKNOWN", "unknown error"),
];

static IS_INITIALIZED: AtomicBool = AtomicBool::new(false);
/// How often each device's context was retained.
static RETAINED: Mutex<BTreeMap<u32, u32>> = Mutex::new(BTreeMap::new());
/// What is left of an error that ends a device's context.
static LOST: Mutex<BTreeMap<u32, i32>> = Mutex::new(BTreeMap::new());

const CONTEXTS: usize = 0x0c0d_e000_0000;

thread_local! {
    /// The devices whose contexts are current, the last one on top.
    static CURRENT: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// The handle of a device's context.
pub(crate) fn context_of(device: u32) -> usize {
    CONTEXTS + 64 * device as usize
}

fn device_of(context: usize) -> Result<u32, CuError> {
    let device = (0..settings::devices()).find(|device| context_of(*device) == context);
    device.filter(|device| lock(&RETAINED).contains_key(device)).ok_or(CuError::INVALID_CONTEXT)
}

fn check_initialized() -> Result<(), CuError> {
    if IS_INITIALIZED.load(Ordering::SeqCst) { Ok(()) } else { Err(CuError::NOT_INITIALIZED) }
}

fn check_device(device: i32) -> Result<u32, CuError> {
    check_initialized()?;
    let number = u32::try_from(device).ok().filter(|device| *device < settings::devices());
    number.ok_or(CuError::INVALID_DEVICE)
}

/// The device whose context is current on this thread, unless it is lost.
pub(crate) fn current() -> Result<u32, CuError> {
    check_initialized()?;
    let device = CURRENT.with_borrow(|stack| stack.last().copied()).ok_or(CuError::INVALID_CONTEXT)?;
    if !lock(&RETAINED).contains_key(&device) {
        return Err(CuError::INVALID_CONTEXT);
    }
    match lock(&LOST).get(&device) {
        Some(code) => Err(CuError(*code)),
        None => Ok(device),
    }
}

/// The device that CUDA's run-time library would take: without a current context the first one.
pub(crate) fn current_or_first() -> Result<u32, CuError> {
    IS_INITIALIZED.store(true, Ordering::SeqCst);
    if settings::devices() == 0 {
        return Err(CuError::NO_DEVICE);
    }
    match CURRENT.with_borrow(|stack| stack.last().copied()) {
        Some(_) => current(),
        None => Ok(0),
    }
}

/// Notes the end of work on a device: its code, and whether somebody has written past the ends of memory.
pub(crate) fn end_of_work(device: u32, code: i32) -> Result<(), CuError> {
    let code = if code == 0 && !memory::is_intact() { CuError::ILLEGAL_ADDRESS.0 } else { code };
    if code == 0 {
        return Ok(());
    }
    lock(&LOST).entry(device).or_insert(code);
    Err(CuError(code))
}

/// Writes a result.
pub(crate) fn put<T>(to: Out<T>, value: T) -> Result<(), CuError> {
    if to.put(value) { Ok(()) } else { Err(CuError::INVALID_VALUE) }
}

fn describe(code: i32, to: Out<*const c_char>, of: impl Fn(&(i32, &str, &'static str)) -> String) -> i32 {
    let found = CODES.iter().find(|one| one.0 == code);
    let says = found.map_or(std::ptr::null(), |one| text::for_ever(&of(one)));
    if to.put(says) && found.is_some() { 0 } else { CuError::INVALID_VALUE.0 }
}

export! {
    fn cuInit(_flags: u32) -> CuError {
        if settings::devices() == 0 {
            return Err(CuError::NO_DEVICE);
        }
        IS_INITIALIZED.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn cuDriverGetVersion(version: Out<i32>) -> CuError {
        put(version, 12090)
    }

    plain fn cuGetErrorName(code: i32, name: Out<*const c_char>) -> i32 {
        describe(code, name, |one| one.1.to_owned())
    }

    plain fn cuGetErrorString(code: i32, says: Out<*const c_char>) -> i32 {
        describe(code, says, |one| format!("{} (test double)", one.2))
    }

    fn cuDeviceGetCount(count: Out<i32>) -> CuError {
        check_initialized()?;
        put(count, settings::devices() as i32)
    }

    fn cuDeviceGet(device: Out<i32>, ordinal: i32) -> CuError {
        put(device, check_device(ordinal)? as i32)
    }

    fn cuDeviceGetName(name: Out<u8>, bytes: i32, device: i32) -> CuError {
        let says = format!("test double (no card {})", check_device(device)?);
        let room = usize::try_from(bytes).map_err(|_| CuError::INVALID_VALUE)?;
        if name.put_text(&says, room) { Ok(()) } else { Err(CuError::INVALID_VALUE) }
    }

    fn cuDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) -> CuError {
        check_device(device)?;
        match attribute {
            // CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, _MULTIPROCESSOR_COUNT.
            1 => put(value, 1024),
            16 => put(value, 8),
            // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
            75 => put(value, 9),
            76 => put(value, 0),
            // CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED.
            115 => put(value, 0),
            _ => Err(CuError::INVALID_VALUE),
        }
    }

    fn cuDevicePrimaryCtxRetain(context: Out<usize>, device: i32) -> CuError {
        let device = check_device(device)?;
        put(context, context_of(device))?;
        *lock(&RETAINED).entry(device).or_default() += 1;
        handles::count("context", 1);
        Ok(())
    }

    fn cuDevicePrimaryCtxRelease_v2(device: i32) -> CuError {
        let device = check_device(device)?;
        let mut retained = lock(&RETAINED);
        let count = retained.get_mut(&device).ok_or(CuError::INVALID_CONTEXT)?;
        *count -= 1;
        if *count == 0 {
            retained.remove(&device);
        }
        handles::count("context", -1);
        Ok(())
    }

    fn cuCtxPushCurrent_v2(context: usize) -> CuError {
        let device = device_of(context)?;
        CURRENT.with_borrow_mut(|stack| stack.push(device));
        Ok(())
    }

    fn cuCtxPopCurrent_v2(context: Out<usize>) -> CuError {
        let device = CURRENT.with_borrow_mut(Vec::pop).ok_or(CuError::INVALID_CONTEXT)?;
        // The header allows null for whoever does not want to know.
        let _ = context.put(context_of(device));
        Ok(())
    }

    fn cuCtxSetCurrent(context: usize) -> CuError {
        let device = if context == 0 { None } else { Some(device_of(context)?) };
        CURRENT.with_borrow_mut(|stack| {
            stack.pop();
            stack.extend(device);
        });
        Ok(())
    }

    fn cuCtxGetCurrent(context: Out<usize>) -> CuError {
        check_initialized()?;
        let device = CURRENT.with_borrow(|stack| stack.last().copied());
        put(context, device.map_or(0, context_of))
    }

    fn cuCtxGetDevice(device: Out<i32>) -> CuError {
        put(device, current()? as i32)
    }
}
