//! The driver: its functions, their errors, and the devices that it knows.

#![expect(unsafe_code, reason = "calls NVIDIA's driver")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use unisono_communicator::{Error, Result};
use unisono_vendor_library::{Library, functions};

use crate::context::Context;

/// An address on a device: `CUdeviceptr`.
pub(crate) type Address = u64;
/// An opaque pointer of the driver.
pub(crate) type Handle = *mut c_void;

/// `CUDA_ERROR_NOT_READY`, with which a query says that work is under way.
pub(crate) const NOT_READY: c_int = 600;
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`, with which a query says that a capture forbids it now.
pub(crate) const CAPTURE_UNSUPPORTED: c_int = 900;

functions! {
    /// The driver's functions, with the signatures of `cuda.h` (CUDA 12.9). A number behind a name is the version of
    /// its signature; the header has macros for it.
    Table {
        required {
            init: "cuInit" (c_uint);
            driver_get_version: "cuDriverGetVersion" (*mut c_int);
            get_error_name: "cuGetErrorName" (c_int, *mut *const c_char);
            get_error_string: "cuGetErrorString" (c_int, *mut *const c_char);
            device_get_count: "cuDeviceGetCount" (*mut c_int);
            device_get: "cuDeviceGet" (*mut c_int, c_int);
            device_get_name: "cuDeviceGetName" (*mut c_char, c_int, c_int);
            device_get_attribute: "cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
            primary_ctx_retain: "cuDevicePrimaryCtxRetain" (*mut Handle, c_int);
            primary_ctx_release: "cuDevicePrimaryCtxRelease_v2" (c_int);
            ctx_push_current: "cuCtxPushCurrent_v2" (Handle);
            ctx_pop_current: "cuCtxPopCurrent_v2" (*mut Handle);
            mem_get_info: "cuMemGetInfo_v2" (*mut usize, *mut usize);
            mem_alloc: "cuMemAlloc_v2" (*mut Address, usize);
            mem_free: "cuMemFree_v2" (Address);
            pointer_get_attributes: "cuPointerGetAttributes" (c_uint, *mut c_int, *mut *mut c_void, Address);
            memcpy_to_device: "cuMemcpyHtoDAsync_v2" (Address, *const c_void, usize, Handle);
            memcpy_to_host: "cuMemcpyDtoHAsync_v2" (*mut c_void, Address, usize, Handle);
            memcpy_on_device: "cuMemcpyDtoDAsync_v2" (Address, Address, usize, Handle);
            memset_words: "cuMemsetD32Async" (Address, c_uint, usize, Handle);
            stream_create: "cuStreamCreate" (*mut Handle, c_uint);
            stream_synchronize: "cuStreamSynchronize" (Handle);
            stream_destroy: "cuStreamDestroy_v2" (Handle);
            stream_is_capturing: "cuStreamIsCapturing" (Handle, *mut c_int);
            thread_exchange_capture_mode: "cuThreadExchangeStreamCaptureMode" (*mut c_int);
            stream_get_ctx: "cuStreamGetCtx" (Handle, *mut Handle);
            event_create: "cuEventCreate" (*mut Handle, c_uint);
            event_record: "cuEventRecord" (Handle, Handle);
            event_query: "cuEventQuery" (Handle);
            event_synchronize: "cuEventSynchronize" (Handle);
            event_elapsed_time: "cuEventElapsedTime" (*mut f32, Handle, Handle);
            event_destroy: "cuEventDestroy_v2" (Handle);
            module_load_data: "cuModuleLoadData" (*mut Handle, *const c_void);
            module_get_function: "cuModuleGetFunction" (*mut Handle, Handle, *const c_char);
            module_unload: "cuModuleUnload" (Handle);
            launch_kernel: "cuLaunchKernel" (
                Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void,
                *mut *mut c_void,
            );
        }
    }
}

/// A version of CUDA, as the driver and the compiler count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 12 of 12.4.
    pub major: u32,
    /// 4 of 12.4.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The oldest driver and compiler that are used: the first that share code among minor versions with today's.
pub(crate) const VERSION_MIN: Version = Version { major: 12, minor: 0 };

const REMEDY: &str =
    "install NVIDIA's driver R525 or later, or give the path of its libcuda.so.1 in UNISONO_CUDA_LIB";

/// The driver's library. Clones share it.
#[derive(Clone)]
pub struct Driver {
    pub(crate) table: Arc<Table>,
    version: Version,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Driver({}, CUDA {})", self.table.library.file(), self.version)
    }
}

impl Driver {
    /// Opens the library at `path`, or else the system's `libcuda.so.1`, and initialises it.
    ///
    /// # Errors
    /// [`Error::LibraryMissing`] when it is not there, lacks a function, or is older than CUDA 12.0.
    /// [`Error::Vendor`] when it cannot be initialised: `CUDA_ERROR_NO_DEVICE` on a machine without a card.
    pub fn open(path: Option<&Path>) -> Result<Driver> {
        let file = path.unwrap_or(Path::new("libcuda.so.1"));
        let table = Table::new(Library::open("CUDA driver", &[file], REMEDY)?)?;
        let mut number = 0;
        // SAFETY: it writes one number, and needs no initialisation.
        let code = unsafe { (table.driver_get_version)(&mut number) };
        let version = Version { major: number as u32 / 1000, minor: number as u32 % 1000 / 10 };
        let driver = Driver { table: Arc::new(table), version };
        driver.check("cuDriverGetVersion", code)?;
        if version < VERSION_MIN {
            return Err(driver
                .table
                .library
                .unusable(&format!("is of CUDA {version}, older than {VERSION_MIN}")));
        }
        // SAFETY: it takes no pointers, and may be called again.
        driver.check("cuInit", unsafe { (driver.table.init)(0) })?;
        Ok(driver)
    }

    /// The newest CUDA that it supports.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The file that was opened.
    pub fn file(&self) -> &str {
        self.table.library.file()
    }

    /// The number of devices.
    ///
    /// # Errors
    /// [`Error::Vendor`].
    pub fn devices(&self) -> Result<u32> {
        let mut count = 0;
        // SAFETY: it writes one number.
        self.check("cuDeviceGetCount", unsafe { (self.table.device_get_count)(&mut count) })?;
        Ok(count.max(0).unsigned_abs())
    }

    /// The context of device number `ordinal` that CUDA's run-time library and all others of this process share.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a device that there is not; [`Error::Vendor`].
    pub fn context(&self, ordinal: u32) -> Result<Context> {
        let devices = self.devices()?;
        if ordinal >= devices {
            return Err(Error::invalid("device", format!("{ordinal}, and the driver has {devices}")));
        }
        Context::new(self.clone(), ordinal)
    }

    /// An attribute of a device, by its number in `CUdevice_attribute`.
    pub(crate) fn attribute(&self, device: c_int, attribute: c_int) -> Result<c_int> {
        let mut value = 0;
        // SAFETY: it writes one number.
        let code = unsafe { (self.table.device_get_attribute)(&mut value, attribute, device) };
        self.check("cuDeviceGetAttribute", code)?;
        Ok(value)
    }

    /// The name of a device.
    pub(crate) fn device_name(&self, device: c_int) -> Result<String> {
        let mut name = [0 as c_char; 256];
        // SAFETY: it writes at most as many bytes as it is told, with a zero at the end.
        let code = unsafe { (self.table.device_get_name)(name.as_mut_ptr(), name.len() as c_int, device) };
        self.check("cuDeviceGetName", code)?;
        // SAFETY: the array was full of zeros, and the driver leaves one at the end.
        Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// Makes an error of the code that `call` returned, unless it is the code of success.
    pub(crate) fn check(&self, call: &str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let names = [self.table.get_error_name, self.table.get_error_string].map(|function| {
            let mut text = ptr::null();
            // SAFETY: it makes `text` null, or a string that lives as long as the library.
            let code = unsafe { function(code, &mut text) };
            if code != 0 || text.is_null() {
                return "a code that this driver does not know".to_owned();
            }
            // SAFETY: see above.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        });
        let [name, text] = names;
        Err(Error::Vendor {
            library: self.file().into(),
            call: call.into(),
            code,
            text: if name == text { name.into() } else { format!("{name}: {text}").into() },
            remedy: remedy(code).into(),
        })
    }
}

/// The remedy for a `CUresult`.
fn remedy(code: c_int) -> &'static str {
    match code {
        2 => "free memory of the device, or give it a smaller vector",
        100 => "check with nvidia-smi that the system has a device, and that CUDA_VISIBLE_DEVICES shows it",
        200 | 209 | 218 | 222 => {
            "the code is not for this card or newer than its driver: compile it with NVRTC of the driver's version"
        }
        700..=719 => {
            "the device's context is lost: restart the process; compute-sanitizer says which access it was"
        }
        900..=908 => "end the capture of the stream's work into a graph first",
        802 | 803 | 999 => "check the driver with nvidia-smi, and reboot if it does not answer",
        _ => "see CUresult in the CUDA driver's documentation",
    }
}
