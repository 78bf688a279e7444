//! Finding HCCL: files that are wrong, and libraries of small texts that stand in for it. Its real files cannot be
//! downloaded.

use std::path::Path;

use tempfile::TempDir;
use unisono_communicator::{Error, Result};
use unisono_tests::compiled::shared_library;
use unisono_vendor_library::Process;

use crate::HcclLibrary;

const NOTHING: &str = "#define NOTHING(name) int name(void) { return 0; }\n";
const COLLECTIVES: &str = "
NOTHING(HcclAllReduce) NOTHING(HcclReduce) NOTHING(HcclReduceScatter) NOTHING(HcclBroadcast) NOTHING(HcclScatter)
NOTHING(HcclAllGather) NOTHING(HcclAlltoAll) NOTHING(HcclAlltoAllV) NOTHING(HcclSend) NOTHING(HcclRecv)
NOTHING(HcclBatchSendRecv)
";
const MANAGEMENT: &str = r#"
NOTHING(HcclGetRootInfo) NOTHING(HcclCommInitRootInfo) NOTHING(HcclCommDestroy)
const char *HcclGetErrorString(int code) { return code == 9 ? "timeout" : 0; }
"#;
const ACL: &str = r#"
NOTHING(aclInit) NOTHING(aclFinalize) NOTHING(aclrtGetVersion) NOTHING(aclrtGetSocName) NOTHING(aclrtGetDeviceCount)
NOTHING(aclrtSetDevice) NOTHING(aclrtResetDevice) NOTHING(aclrtGetCurrentContext) NOTHING(aclrtSetCurrentContext)
NOTHING(aclrtMalloc) NOTHING(aclrtFree) NOTHING(aclrtMemcpyAsync) NOTHING(aclrtCreateStream)
NOTHING(aclrtDestroyStream) NOTHING(aclrtSynchronizeStream) NOTHING(aclrtCreateEvent) NOTHING(aclrtDestroyEvent)
NOTHING(aclrtRecordEvent) NOTHING(aclrtQueryEventStatus) NOTHING(aclrtSynchronizeEvent)
const char *aclGetRecentErrMsg(void) { return "EI0006: rank 1 did not come"; }
"#;

/// A folder with libraries of these texts; `None` without a compiler.
fn folder(files: &[(&str, &[&str])]) -> Option<TempDir> {
    let folder = TempDir::new().unwrap();
    for (file, texts) in files {
        let text = [&[NOTHING], *texts].concat().concat();
        shared_library(folder.path(), file, &text, &[])?;
    }
    Some(folder)
}

/// HCCL of this folder, in a process that has opened none.
fn open(folder: &Path) -> Result<&'static HcclLibrary> {
    Process::<HcclLibrary>::Fresh.open(&Some(folder.to_owned()))
}

/// The error of opening this folder, which names a remedy.
fn missing(folder: &Path) -> Vec<String> {
    let error = open(folder).unwrap_err();
    let Error::LibraryMissing { tried, .. } = &error else { panic!("{error}") };
    assert!(error.to_string().contains("UNISONO_HCCL_DIR"), "{error}");
    tried.clone()
}

/// Rows: F1
#[test]
fn without_cann_the_first_file_is_named() {
    let Err(error) = Process::<HcclLibrary>::Fresh.open(&None) else {
        return unisono_tests::skip("hccl-absent", "this system has CANN");
    };
    let Error::LibraryMissing { tried, .. } = &error else { panic!("{error}") };
    assert!(tried.len() == 1 && tried[0].starts_with("libascendcl.so: "), "{error}");
    assert!(error.to_string().contains("set_env.sh"), "{error}");
    let empty = TempDir::new().unwrap();
    assert!(missing(empty.path())[0].starts_with(empty.path().join("libascendcl.so").to_str().unwrap()));
    let relative = missing(Path::new("ascend/lib64"));
    assert!(relative[0].contains("depends on the working directory"), "{relative:?}");
}

/// Rows: F1
#[test]
fn what_makes_communicators_may_be_in_the_second_file() {
    let acl = ("libascendcl.so", &[ACL][..]);
    let Some(one) = folder(&[acl, ("libhccl.so", &[COLLECTIVES, MANAGEMENT])]) else { return };
    let library = open(one.path()).unwrap();
    assert!(library.management.library.file().ends_with("/libhccl.so") && library.aclnn.is_none());

    let Some(two) = folder(&[acl, ("libhccl.so", &[COLLECTIVES]), ("libhcomm.so", &[MANAGEMENT])]) else {
        return;
    };
    let library = open(two.path()).unwrap();
    assert!(library.management.library.file().ends_with("/libhcomm.so"), "{library:?}");

    let Some(neither) = folder(&[acl, ("libhccl.so", &[COLLECTIVES])]) else { return };
    let tried = missing(neither.path());
    assert_eq!(tried.len(), 2, "{tried:?}");
    assert!(tried[0].ends_with("libhccl.so has no HcclGetRootInfo"), "{tried:?}");
    assert!(tried[1].contains("libhcomm.so: No such file"), "{tried:?}");
}

#[test]
fn a_missing_function_is_named() {
    let lacking = ACL.replace("NOTHING(aclrtRecordEvent)", "");
    let both: &[(&str, &[&str])] =
        &[("libascendcl.so", &[&lacking]), ("libhccl.so", &[COLLECTIVES, MANAGEMENT])];
    let Some(lacking) = folder(both) else { return };
    let tried = missing(lacking.path());
    assert!(tried.len() == 1 && tried[0].ends_with("libascendcl.so has no aclrtRecordEvent"), "{tried:?}");
}

#[test]
fn codes_are_errors_with_names_texts_and_remedies() {
    let both: &[(&str, &[&str])] = &[("libascendcl.so", &[ACL]), ("libhccl.so", &[COLLECTIVES, MANAGEMENT])];
    let Some(whole) = folder(both) else { return };
    let library = open(whole.path()).unwrap();
    library.check("HcclAllReduce", 0).unwrap();
    let error = library.check("HcclAllReduce", 9).unwrap_err();
    let Error::Vendor { call, code, text, remedy, .. } = &error else { panic!("{error}") };
    assert_eq!((&**call, *code), ("HcclAllReduce", 9));
    assert_eq!(&**text, "HCCL_E_TIMEOUT: timeout: EI0006: rank 1 did not come");
    assert!(remedy.contains("HCCL_CONNECT_TIMEOUT"), "{error}");
    let error = library.check_acl("aclrtSetDevice", 107_001).unwrap_err();
    let words = "aclrtSetDevice of ACL (";
    assert!(error.to_string().starts_with(words), "{error}");
    assert!(
        error.to_string().contains("failed with 107001 (ACL_ERROR_RT_INVALID_DEVICEID: EI0006"),
        "{error}"
    );
    // A code that HCCL has no words for.
    let error = library.check("HcclCommDestroy", 1041).unwrap_err();
    assert!(error.to_string().contains("(HCCL_E_IN_STATUS: EI0006"), "{error}");
}
