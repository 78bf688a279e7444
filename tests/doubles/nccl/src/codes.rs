//! NCCL's codes (`ncclResult_t`) and texts.

use std::ffi::c_char;
use std::sync::Mutex;

use unisono_double_common::fault::VendorError;
use unisono_double_common::root::JoinError;
use unisono_double_common::{Out, export, lock, settings, text};

use crate::group;

pub(crate) const UNHANDLED_CUDA_ERROR: i32 = 1;
pub(crate) const SYSTEM_ERROR: i32 = 2;
pub(crate) const INTERNAL_ERROR: i32 = 3;
pub(crate) const INVALID_ARGUMENT: i32 = 4;
pub(crate) const INVALID_USAGE: i32 = 5;
pub(crate) const REMOTE_ERROR: i32 = 6;
pub(crate) const IN_PROGRESS: i32 = 7;

/// An error of NCCL, with what `ncclGetLastError` says of it.
#[derive(Clone, Debug)]
pub(crate) struct NcclError {
    pub(crate) code: i32,
    text: String,
}

static LAST: Mutex<String> = Mutex::new(String::new());

impl NcclError {
    pub(crate) fn new(code: i32, text: impl Into<String>) -> NcclError {
        NcclError { code, text: text.into() }
    }

    pub(crate) fn argument(text: impl Into<String>) -> NcclError {
        NcclError::new(INVALID_ARGUMENT, text)
    }

    /// A null pointer for a result.
    pub(crate) fn null(call: &str, name: &str) -> NcclError {
        NcclError::argument(format!("{call} : {name} argument is NULL"))
    }

    /// No error: the operation goes on after the call.
    pub(crate) fn in_progress() -> NcclError {
        NcclError::new(IN_PROGRESS, "")
    }

    /// Keeps its text for `ncclGetLastError`.
    pub(crate) fn note(&self) {
        if self.code != IN_PROGRESS {
            *lock(&LAST) = format!("test double: {}", self.text);
        }
    }
}

impl VendorError for NcclError {
    // What NCCL's sockets return when the abort flag is set.
    const ENDED: i32 = INTERNAL_ERROR;

    fn code(&self) -> i32 {
        self.note();
        self.code
    }

    fn note_injected(call: &str, code: i32) {
        group::note_injected(call, NcclError::new(code, "injected"));
    }
}

impl From<JoinError> for NcclError {
    fn from(error: JoinError) -> NcclError {
        match error {
            JoinError::Ranks => {
                NcclError::argument("ranks do not agree on their number, or two have the same rank")
            }
            JoinError::Stopped => NcclError::new(INTERNAL_ERROR, "aborted"),
            JoinError::Socket => NcclError::new(REMOTE_ERROR, "a connection was closed"),
        }
    }
}

/// The version that it calls itself, as `ncclGetVersion` counts.
pub(crate) fn version() -> u32 {
    settings::number("version", 23004) as u32
}

/// Writes a result.
pub(crate) fn put<T>(to: Out<T>, value: T, call: &str, name: &str) -> Result<(), NcclError> {
    if to.put(value) { Ok(()) } else { Err(NcclError::null(call, name)) }
}

export! {
    fn ncclGetVersion(version_out: Out<i32>) -> NcclError {
        put(version_out, version() as i32, "GetVersion", "version")
    }

    plain fn ncclGetErrorString(code: i32) -> *const c_char {
        let says = match code {
            0 => "no error",
            UNHANDLED_CUDA_ERROR => "unhandled cuda error",
            SYSTEM_ERROR => "unhandled system error",
            INTERNAL_ERROR => "internal error",
            INVALID_ARGUMENT => "invalid argument",
            INVALID_USAGE => "invalid usage",
            REMOTE_ERROR => "remote process exited or there was a network error",
            IN_PROGRESS => "NCCL operation in progress",
            _ => "unknown result code",
        };
        text::for_ever(&format!("{says} (test double)"))
    }

    plain fn ncclGetLastError(_comm: usize) -> *const c_char {
        text::for_ever(&lock(&LAST))
    }
}
