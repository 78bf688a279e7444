//! The meanings of oneCCL's codes, and their remedies.

#![expect(unsafe_code, reason = "calls oneCCL")]

use std::ffi::c_int;
use std::ptr;

use unisono_communicator::{Error, Result};
use unisono_vendor_library::{VendorCode, text_at};

use crate::discovery::Ccl;

/// The text of `onecclGetErrorString` for codes that it does not know, of which oneCCL returns one, 11.
const UNKNOWN: &str = "Unknown error code";

impl Ccl {
    /// Makes an error of the code that `call` has just returned, unless it is the code of success.
    ///
    /// # Errors
    /// [`Error::Vendor`] with the code's name, oneCCL's words for it, and its words for the last error of this process.
    /// oneCCL keeps only one last error, for all threads and communicators.
    pub(crate) fn check(&self, call: &'static str, code: c_int) -> Result<()> {
        if code == 0 { Ok(()) } else { Err(self.error(call, code)) }
    }

    fn error(&self, call: &'static str, code: c_int) -> Error {
        // SAFETY: they take any code, and a communicator or null, and give a string or null. The first lives as long as
        // the library. The second lives until the next call fails: it is copied at once, and a call fails about once
        // in the life of a communicator.
        let [meaning, last] = unsafe {
            let table = &self.table;
            [text_at((table.get_error_string)(code)), text_at((table.get_last_error)(ptr::null_mut()))]
        };
        let meaning = if meaning == UNKNOWN { String::new() } else { meaning };
        let library = format!("oneCCL {} ({})", self.version(), self.file());
        let (texts, remedy) = (vec![meaning, last], &self.remedy(call, code));
        VendorCode { library, call, code, name: name(code), texts, remedy }.into()
    }

    fn remedy(&self, call: &str, code: c_int) -> String {
        let meets = call.starts_with("onecclCommInit");
        match (&self.providers, code) {
            // oneCCL's own lines end in "fi_getinfo error: ret -61".
            (Some(folder), 11) if meets => format!(
                "libfabric has found no way to the other ranks: start the process with FI_PROVIDER_PATH={}",
                folder.display()
            ),
            (None, 11) if meets => {
                "libfabric has found no way to the other ranks: fi_info -p tcp must list one".to_owned()
            }
            _ => remedy(code).to_owned(),
        }
    }
}

/// The name of an `onecclResult_t`.
fn name(code: c_int) -> &'static str {
    match code {
        0 => "onecclSuccess",
        1 => "onecclError",
        2 => "onecclSystemError",
        3 => "onecclInternalError",
        4 => "onecclInvalidArgument",
        5 => "onecclInvalidUsage",
        6 => "onecclInProgress",
        7 => "onecclFailureGPU",
        8 => "onecclFailureCPU",
        9 => "onecclAllocFailureCPU",
        10 => "onecclAllocFailureGPU",
        11 => "onecclPluginException",
        12 => "onecclNotImplemented",
        _ => "a code that the header of 2022.2 does not have",
    }
}

/// The remedy for an `onecclResult_t`.
fn remedy(code: c_int) -> &'static str {
    match code {
        2 => "check the limits of the process (ulimit -n, -l) and the room in /dev/shm",
        4 | 5 => "unisono has called oneCCL wrongly: report this, with what oneCCL writes to standard error",
        7 | 10 => "check the device with sycl-ls, and its memory",
        9 => "free memory, or give it a smaller vector",
        11 => {
            "its plugin does not have this call for this type and operation, or has lost a rank: what it writes to \
             standard error with CCL_LOG_LEVEL=info says which"
        }
        12 => "take a newer oneCCL, or UNISONO_BACKEND=tcp",
        _ => "start the process with CCL_LOG_LEVEL=info, and see what oneCCL writes to standard error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_the_header_has_a_name_and_a_remedy() {
        let names: Vec<&str> = (0..=12).map(name).collect();
        assert!(names.iter().all(|name| name.starts_with("oneccl")), "{names:?}");
        assert_eq!((name(-1), name(13)), (name(14), name(14)));
        assert!(!name(13).starts_with("oneccl"));
        assert!((1..=13).all(|code| remedy(code).len() > 20));
    }
}
