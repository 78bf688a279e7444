//! Codes of HCCL (`HcclResult`) and of ACL (`aclError`), and their texts.

use std::ffi::c_char;
use std::sync::Mutex;

use unisono_double_common::fault::VendorError;
use unisono_double_common::mesh::Broken;
use unisono_double_common::root::JoinError;
use unisono_double_common::{Out, export, lock, text};

/// An error of HCCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HcclError(pub(crate) i32);

impl HcclError {
    pub(crate) const PARA: HcclError = HcclError(1);
    pub(crate) const PTR: HcclError = HcclError(2);
    pub(crate) const MEMORY: HcclError = HcclError(3);
    pub(crate) const INTERNAL: HcclError = HcclError(4);
    pub(crate) const NOT_SUPPORT: HcclError = HcclError(5);
    pub(crate) const UNAVAIL: HcclError = HcclError(7);
    pub(crate) const TCP_CONNECT: HcclError = HcclError(11);
    pub(crate) const TCP_TRANSFER: HcclError = HcclError(13);
    pub(crate) const RUNTIME: HcclError = HcclError(15);
}

/// An error of ACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AclError(pub(crate) i32);

impl AclError {
    pub(crate) const INVALID_PARAM: AclError = AclError(100_000);
    pub(crate) const STREAM_CONTEXT: AclError = AclError(107_003);
    pub(crate) const UNINITIALIZED: AclError = AclError(100_001);
    pub(crate) const REPEATED_INITIALIZE: AclError = AclError(100_002);
    pub(crate) const INVALID_DEVICE: AclError = AclError(107_001);
    pub(crate) const CONTEXT_NULL: AclError = AclError(107_002);
    pub(crate) const STREAM_SYNC_TIMEOUT: AclError = AclError(107_020);
    pub(crate) const OUT_OF_MEMORY: AclError = AclError(207_001);
    pub(crate) const NO_DEVICE: AclError = AclError(207_004);
    /// ACL_ERROR_RT_INTERNAL_ERROR: work on a device has failed.
    pub(crate) const RUNTIME_INTERNAL: AclError = AclError(507_000);
}

/// An error of an operator: `aclnnStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OperatorError(pub(crate) i32);

impl OperatorError {
    pub(crate) const NULL: OperatorError = OperatorError(161_001);
    pub(crate) const INVALID: OperatorError = OperatorError(161_002);
    pub(crate) const RUNTIME: OperatorError = OperatorError(361_001);
}

static LAST: Mutex<String> = Mutex::new(String::new());

fn note(library: &str, code: i32) -> i32 {
    *lock(&LAST) = format!("test double of {library}: error {code}");
    code
}

impl VendorError for HcclError {
    const ENDED: i32 = HcclError::INTERNAL.0;

    fn code(&self) -> i32 {
        note("HCCL", self.0)
    }
}

impl VendorError for AclError {
    const ENDED: i32 = AclError::RUNTIME_INTERNAL.0;

    fn code(&self) -> i32 {
        note("ACL", self.0)
    }
}

impl VendorError for OperatorError {
    const ENDED: i32 = OperatorError::RUNTIME.0;

    fn code(&self) -> i32 {
        note("aclnn", self.0)
    }
}

impl From<AclError> for HcclError {
    fn from(_: AclError) -> HcclError {
        HcclError::RUNTIME
    }
}

impl From<JoinError> for HcclError {
    fn from(error: JoinError) -> HcclError {
        match error {
            JoinError::Ranks => HcclError::PARA,
            JoinError::Stopped => HcclError::INTERNAL,
            JoinError::Socket => HcclError::TCP_CONNECT,
        }
    }
}

impl From<Broken> for HcclError {
    fn from(broken: Broken) -> HcclError {
        match broken {
            Broken::Lost(_) => HcclError::TCP_TRANSFER,
            Broken::Memory => HcclError::MEMORY,
            Broken::Aborted | Broken::Mismatch(_) => HcclError::INTERNAL,
        }
    }
}

/// Writes a result of HCCL.
pub(crate) fn put<T>(to: Out<T>, value: T) -> Result<(), HcclError> {
    if to.put(value) { Ok(()) } else { Err(HcclError::PTR) }
}

/// Writes a result of ACL.
pub(crate) fn put_acl<T>(to: Out<T>, value: T) -> Result<(), AclError> {
    if to.put(value) { Ok(()) } else { Err(AclError::INVALID_PARAM) }
}

export! {
    plain fn HcclGetErrorString(code: i32) -> *const c_char {
        let says = match code {
            0 => "no error",
            1 => "parameter error",
            2 => "empty pointer",
            3 => "memory error",
            4 => "internal error",
            5 => "not support feature",
            6 => "not found specific resource",
            7 => "resource unavailable",
            8 => "call system interface error",
            9 => "timeout",
            10 => "open file fail",
            11 => "tcp connect fail",
            12 => "roce connect fail",
            13 => "tcp transfer fail",
            14 => "roce transfer fail",
            15 => "call runtime api fail",
            16 => "call driver api fail",
            17 => "call profiling api fail",
            18 => "call cce api fail",
            19 => "call network api fail",
            20 => "operation again",
            21 => "error cqe",
            22 => "suspending",
            23 => "retry fail",
            24 => "out of memory",
            _ => "unknown error",
        };
        text::for_ever(&format!("{says} (test double)"))
    }

    plain fn aclGetRecentErrMsg() -> *const c_char {
        text::for_ever(&lock(&LAST))
    }
}
