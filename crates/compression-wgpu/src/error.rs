//! The failures of an adapter, as errors of this library.

use unisono_communicator::Error;

/// The codes of [`Error::Vendor`] from this crate; wgpu has no numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum WgpuCode {
    /// wgpu refused a shader, a buffer or a call.
    Validation = 1,
    /// The device has no memory left.
    OutOfMemory = 2,
    /// wgpu or the driver failed.
    Internal = 3,
    /// The device is lost: reset, removed or destroyed.
    Lost = 4,
}

const BACKEND: &str = "wgpu";

/// [`Error::Vendor`] for `call` on `adapter`.
pub(crate) fn failed(adapter: &str, call: &str, code: WgpuCode, text: impl Into<Box<str>>) -> Error {
    let remedy = match code {
        WgpuCode::Validation => "report it with this text: it is a defect of the kernels or of the driver",
        WgpuCode::OutOfMemory => "free memory of the device, or compress on the host (HostKernels)",
        WgpuCode::Internal => "update the driver, or compress on the host (HostKernels)",
        WgpuCode::Lost => {
            "what was on it is gone; open it again and restore the state from a checkpoint, or compress on the host"
        }
    };
    Error::Vendor {
        library: format!("{BACKEND} on {adapter}").into(),
        call: call.into(),
        code: code as i32,
        text: text.into(),
        remedy: remedy.into(),
    }
}

/// The same, from an error that an error scope has caught.
pub(crate) fn caught(adapter: &str, call: &str, error: &wgpu::Error) -> Error {
    let code = match error {
        wgpu::Error::Validation { .. } => WgpuCode::Validation,
        wgpu::Error::OutOfMemory { .. } => WgpuCode::OutOfMemory,
        wgpu::Error::Internal { .. } => WgpuCode::Internal,
    };
    failed(adapter, call, code, error.to_string())
}

/// A device's limit that is too small, as an error.
pub(crate) fn limited(adapter: &str, what: &str, limit: &str, needed: u64, has: u64) -> Error {
    let what = format!("{what}, which needs {limit} = {needed}; {adapter} has {has}");
    let instead = "another adapter, or HostKernels on the host".to_owned();
    Error::Unsupported { what, backend: BACKEND, instead: Some(instead) }
}

/// Memory that these kernels do not reach.
pub(crate) fn unreachable(adapter: &str, what: &str, instead: &str) -> Error {
    let what = format!("{what} in kernels on {adapter}");
    Error::Unsupported { what, backend: BACKEND, instead: Some(instead.to_owned()) }
}
