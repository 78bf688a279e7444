//! The meanings of NCCL's codes, and their remedies.

#![expect(unsafe_code, reason = "calls NCCL")]

use std::ffi::c_int;
use std::ptr;

use unisono_communicator::{Error, Result};
use unisono_vendor_library::{VendorCode, text_at};

use crate::discovery::NcclLibrary;

/// `ncclInProgress`, with which a function of a communicator that does not block says that it goes on.
pub(crate) const IN_PROGRESS: c_int = 7;

/// The text of `ncclGetErrorString` for codes that it does not know: for 2.19, code 8 of later versions.
const UNKNOWN: &str = "unknown result code";

/// The text that NCCL has from CUDA's run-time library on a machine without a device, or with a driver that is too old.
const NO_DEVICE: [&str; 3] = [
    "CUDA driver version is insufficient for CUDA runtime version",
    "no CUDA-capable device is detected",
    "CUDA driver is a stub library",
];

impl NcclLibrary {
    /// Makes an error of the code that `call` has just returned, unless it is the code of success.
    ///
    /// # Errors
    /// [`Error::Vendor`] with the code's name, NCCL's words for it, and its words for the last error of this process,
    /// which NCCL keeps until another one comes: it may belong to an earlier call.
    pub(crate) fn check(&self, call: &'static str, code: c_int) -> Result<()> {
        if code == 0 { Ok(()) } else { Err(self.error(call, code)) }
    }

    fn error(&self, call: &'static str, code: c_int) -> Error {
        // SAFETY: they take any code, and a communicator or null, and give a string or null. The first lives as long as
        // the library. The second lives until another call fails: it is copied at once, and a call fails about once in
        // the life of a communicator.
        let [meaning, last] = unsafe {
            let table = &self.table;
            [text_at((table.get_error_string)(code)), text_at((table.get_last_error)(ptr::null_mut()))]
        };
        let meaning = if meaning == UNKNOWN { String::new() } else { meaning };
        let remedy = remedy(code, &last);
        let library = format!("{} {} ({})", self.name(), self.version(), self.file());
        VendorCode { library, call, code, name: name(code), texts: vec![meaning, last], remedy }.into()
    }
}

/// The name of an `ncclResult_t`.
fn name(code: c_int) -> &'static str {
    match code {
        0 => "ncclSuccess",
        1 => "ncclUnhandledCudaError",
        2 => "ncclSystemError",
        3 => "ncclInternalError",
        4 => "ncclInvalidArgument",
        5 => "ncclInvalidUsage",
        6 => "ncclRemoteError",
        IN_PROGRESS => "ncclInProgress",
        8 => "ncclTimeout",
        _ => "a code that the header of 2.32 does not have",
    }
}

/// The remedy for an `ncclResult_t`, of which `last` says more.
fn remedy(code: c_int, last: &str) -> &'static str {
    match code {
        1 if NO_DEVICE.iter().any(|words| last.contains(words)) => {
            "this machine has no device of NVIDIA's, or a driver that is older than NCCL's CUDA: see what nvidia-smi \
             lists, or take UNISONO_BACKEND=tcp, which needs none"
        }
        1 => {
            "check the device with nvidia-smi, and its free memory; NCCL_DEBUG=INFO names the function of CUDA"
        }
        2 => "check the limits of the process (ulimit -n, -l), the room in /dev/shm, and NCCL_SOCKET_IFNAME",
        3 => "start the processes with NCCL_DEBUG=INFO, and report what NCCL writes to its developers",
        4 => "unisono has called NCCL wrongly: report this, with what NCCL writes with NCCL_DEBUG=WARN",
        5 => {
            "each rank needs a device of its own and the same version of NCCL (ranks share a device since 2.30, with \
             NCCL_MULTI_RANK_GPU_ENABLE=1): NCCL_DEBUG=WARN says which of the two it is"
        }
        6 => {
            "another rank has ended, or the network between the devices' hosts fails: see that rank's own error"
        }
        IN_PROGRESS => "the communicator does not block, and was not waited for: report this",
        8 => "a rank was too late, or is stuck: see the other ranks' errors",
        _ => "start the processes with NCCL_DEBUG=INFO, and see what NCCL writes to standard output",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_the_header_has_a_name_and_a_remedy() {
        let names: Vec<&str> = (0..=8).map(name).collect();
        assert!(names.iter().all(|name| name.starts_with("nccl")), "{names:?}");
        assert_eq!((name(-1), name(9)), (name(10), name(10)));
        assert!(!name(9).starts_with("nccl"));
        let remedies: Vec<&str> = (1..=9).map(|code| remedy(code, "")).collect();
        assert!(remedies.iter().all(|remedy| remedy.len() > 20), "{remedies:?}");
    }

    #[test]
    fn no_device_is_told_from_other_errors_of_cuda() {
        for words in NO_DEVICE {
            let last = format!("Cuda failure '{words}'");
            assert!(remedy(1, &last).contains("no device"), "{last}");
            assert_eq!(remedy(2, &last), remedy(2, ""), "an older text beside another code");
        }
        assert!(!remedy(1, "Cuda failure 'out of memory'").contains("no device"));
    }
}
