//! The meanings of the codes of HCCL and ACL, and their remedies.

#![expect(unsafe_code, reason = "calls HCCL and ACL")]

use std::ffi::c_int;

use unisono_communicator::{Error, Result};
use unisono_vendor_library::{VendorCode, text_at};

use crate::discovery::HcclLibrary;

/// `ACL_ERROR_REPEAT_INITIALIZE`: somebody else in this process has initialised ACL.
pub(crate) const REPEAT_INITIALIZE: c_int = 100_002;

/// `ACL_ERROR_RT_CONTEXT_NULL`: no context is current on this thread.
pub(crate) const CONTEXT_NULL: c_int = 107_002;

/// `ACL_ERROR_RT_STREAM_CONTEXT`: the stream is not of the current context.
pub(crate) const STREAM_CONTEXT: c_int = 107_003;

impl HcclLibrary {
    /// Makes an error of the `HcclResult` that `call` has just returned, unless it is the code of success.
    ///
    /// # Errors
    /// [`Error::Vendor`] with the code's name, HCCL's words for it, and ACL's words for the last error of this thread.
    pub(crate) fn check(&self, call: &'static str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: it takes any code, and gives a string that lives as long as the library, or null.
        let meaning = self.management.get_error_string.function.map(|text| unsafe { text_at(text(code)) });
        let (name, remedy) = hccl(code);
        let texts = vec![meaning.unwrap_or_default(), self.recent()];
        let library = format!("HCCL ({})", self.file());
        Err(Error::from(VendorCode { library, call, code, name, texts, remedy }))
    }

    /// The same of an `aclError` or an `aclnnStatus`.
    ///
    /// # Errors
    /// [`Error::Vendor`] with the code's name, and ACL's words for the last error of this thread.
    pub(crate) fn check_acl(&self, call: &'static str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let (name, remedy) = acl(code);
        let library = format!("ACL ({})", self.acl.library.file());
        Err(Error::from(VendorCode { library, call, code, name, texts: vec![self.recent()], remedy }))
    }

    /// ACL's text about the last error of this thread, which it then forgets.
    fn recent(&self) -> String {
        // SAFETY: it gives a string that lives until the next call on this thread, or null: it is copied at once.
        unsafe { text_at((self.acl.get_recent_err_msg)()) }
    }
}

const LOGS: &str = "see the logs of CANN, in ~/ascend/log unless ASCEND_PROCESS_LOG_PATH says otherwise";
const WRONG_CALL: &str = "unisono has called it wrongly: report this, with the logs of CANN (~/ascend/log)";
const OTHER_RANK: &str = "another rank has ended, or the network between devices fails: see that rank's own error, and \
                          hccn_tool -i DEVICE -link -g";
const DEVICE: &str = "check the device with npu-smi info, and restart the process";
const LATE: &str =
    "a rank was too late, or is stuck: see the other ranks' errors, or raise HCCL_CONNECT_TIMEOUT";
const NO_DEVICE: &str = "this machine has no Ascend device: see npu-smi info, or take UNISONO_BACKEND=tcp";
/// The likely place of a device that is not there.
pub(crate) const HIDDEN: &str = "npu-smi info lists the devices; ASCEND_RT_VISIBLE_DEVICES hides some";
const FINALISED: &str = "ACL was finalised by somebody else in this process: close communicators first";
const OF_ANOTHER: &str = "the stream is of another device: give one of the communicator's device";
const NOT_HERE: &str = "this device or driver does not have it: UNISONO_BACKEND=tcp has";
const FULL: &str = "free memory of the device, give it a smaller vector, or lower HCCL_BUFFSIZE";

/// The name of an `HcclResult`, and its remedy.
fn hccl(code: c_int) -> (&'static str, &'static str) {
    match code {
        0 => ("HCCL_SUCCESS", ""),
        1 => ("HCCL_E_PARA", WRONG_CALL),
        2 => ("HCCL_E_PTR", WRONG_CALL),
        3 => ("HCCL_E_MEMORY", FULL),
        4 => ("HCCL_E_INTERNAL", LOGS),
        5 => (
            "HCCL_E_NOT_SUPPORT",
            "this device does not have the call for this type: UNISONO_BACKEND=tcp has it",
        ),
        6 => ("HCCL_E_NOT_FOUND", LOGS),
        7 => ("HCCL_E_UNAVAIL", DEVICE),
        8 => ("HCCL_E_SYSCALL", "check the limits of the process (ulimit -n, -l) and the room in /dev/shm"),
        9 => ("HCCL_E_TIMEOUT", LATE),
        10 => ("HCCL_E_OPEN_FILE_FAILURE", LOGS),
        11 => (
            "HCCL_E_TCP_CONNECT",
            "check HCCL_SOCKET_IFNAME and HCCL_IF_IP, and the firewall between the hosts",
        ),
        12 => ("HCCL_E_ROCE_CONNECT", OTHER_RANK),
        13 => ("HCCL_E_TCP_TRANSFER", OTHER_RANK),
        14 => ("HCCL_E_ROCE_TRANSFER", OTHER_RANK),
        15 => ("HCCL_E_RUNTIME", DEVICE),
        16 => ("HCCL_E_DRV", DEVICE),
        17 => ("HCCL_E_PROFILING", LOGS),
        18 => ("HCCL_E_CCE", DEVICE),
        19 => ("HCCL_E_NETWORK", OTHER_RANK),
        20 => ("HCCL_E_AGAIN", "try again: a resource is in use"),
        21 => ("HCCL_E_REMOTE", OTHER_RANK),
        22 => (
            "HCCL_E_SUSPENDING",
            "somebody has suspended the communicator: it is of no use until it is resumed",
        ),
        23 => ("HCCL_E_OPRETRY_FAIL", OTHER_RANK),
        24 => ("HCCL_E_OOM", FULL),
        1041 => ("HCCL_E_IN_STATUS", LOGS),
        _ => ("a code that the header of CANN 9 does not have", LOGS),
    }
}

/// The name of an `aclError`, and its remedy.
fn acl(code: c_int) -> (&'static str, &'static str) {
    match code {
        100_000 => ("ACL_ERROR_INVALID_PARAM", WRONG_CALL),
        100_001 => ("ACL_ERROR_UNINITIALIZE", FINALISED),
        REPEAT_INITIALIZE => {
            ("ACL_ERROR_REPEAT_INITIALIZE", "a process can initialise ACL once: start another")
        }
        107_000 => ("ACL_ERROR_RT_PARAM_INVALID", WRONG_CALL),
        107_001 => ("ACL_ERROR_RT_INVALID_DEVICEID", HIDDEN),
        CONTEXT_NULL => ("ACL_ERROR_RT_CONTEXT_NULL", WRONG_CALL),
        STREAM_CONTEXT => ("ACL_ERROR_RT_STREAM_CONTEXT", OF_ANOTHER),
        107_004 => ("ACL_ERROR_RT_MODEL_CONTEXT", WRONG_CALL),
        107_005 => ("ACL_ERROR_RT_STREAM_MODEL", "end the capture of the stream's work first"),
        161_001 => ("ACLNN_ERR_PARAM_NULLPTR", WRONG_CALL),
        161_002 => ("ACLNN_ERR_PARAM_INVALID", WRONG_CALL),
        200_000 => ("ACL_ERROR_BAD_ALLOC", FULL),
        207_000 => ("ACL_ERROR_RT_FEATURE_NOT_SUPPORT", NOT_HERE),
        207_001 => ("ACL_ERROR_RT_MEMORY_ALLOCATION", FULL),
        207_004 => ("ACL_ERROR_RT_NO_DEVICE", NO_DEVICE),
        361_001 => ("ACLNN_ERR_RUNTIME_ERROR", DEVICE),
        500_000 => ("ACL_ERROR_INTERNAL_ERROR", LOGS),
        507_000..=507_999 => ("ACL_ERROR_RT_INTERNAL_ERROR", DEVICE),
        _ => ("a code that this table does not have", LOGS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_hccl_has_a_name_and_a_remedy() {
        let codes = || (1..=24).chain([1041]);
        assert!(codes().all(|code| hccl(code).0.starts_with("HCCL_E_")));
        assert!(codes().all(|code| hccl(code).1.len() > 20));
        let mut names: Vec<_> = codes().map(|code| hccl(code).0).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 25);
        assert!([-1, 25, 1040].iter().all(|code| hccl(*code).0.starts_with("a code")));
    }

    #[test]
    fn what_acl_returns_where_there_is_no_device_says_so() {
        assert!(
            acl(207_004).1.contains("no Ascend device") && acl(207_004).1.contains("UNISONO_BACKEND=tcp")
        );
        assert_eq!(acl(100_001).0, "ACL_ERROR_UNINITIALIZE");
        assert_eq!(acl(507_899).1, DEVICE);
    }
}
