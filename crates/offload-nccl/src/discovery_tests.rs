//! Finding NCCL: files that are wrong, libraries of small texts that stand in for it, and, where it is there, the real
//! one.

#![expect(unsafe_code, reason = "calls NCCL")]

use std::path::{Path, PathBuf};
use std::ptr;

use tempfile::TempDir;
use unisono_communicator::{Error, Result};
use unisono_tests::compiled::shared_library;
use unisono_tests::vendor_files::nccl_library;
use unisono_vendor_library::Process;

use crate::discovery::{NcclLibrary, Version};
use crate::sys::{CommHandle, Config, DataType, ReductionOp, UNIQUE_ID_BYTES, UniqueId};

/// A library whose version is `VERSION`, with all required functions, of which most do nothing.
const SOURCE: &str = r#"
int ncclGetVersion(int *version) { *version = VERSION; return CODE; }
const char *ncclGetErrorString(int code) { return code == 4 ? "invalid argument" : "unknown result code"; }
const char *ncclGetLastError(void *comm) { return "comm argument is NULL"; }
#define NOTHING(name) int name(void) { return 0; }
NOTHING(ncclGetUniqueId) NOTHING(ncclCommInitRankConfig) NOTHING(ncclCommDestroy) NOTHING(ncclCommAbort)
NOTHING(ncclCommGetAsyncError) NOTHING(ncclRedOpCreatePreMulSum) NOTHING(ncclRedOpDestroy)
NOTHING(ncclAllReduce) NOTHING(ncclReduce) NOTHING(ncclReduceScatter) NOTHING(ncclBroadcast) NOTHING(ncclAllGather)
NOTHING(ncclSend) NOTHING(ncclRecv) NOTHING(ncclGroupStart) NOTHING(ncclGroupEnd)
#ifdef RCCL
NOTHING(ncclAllToAllv)
#endif
"#;

/// A file that looks like NCCL of this version, which `options` of the compiler change.
fn library(folder: &TempDir, version: u32, options: &[&str]) -> Option<PathBuf> {
    let version = format!("-DVERSION={version}");
    let code = if options.iter().any(|option| option.starts_with("-DCODE=")) { "-DOK" } else { "-DCODE=0" };
    let options = [&[&*version, code], options].concat();
    shared_library(folder.path(), "libnccl.so.2", SOURCE, &options)
}

fn named(file: &Path) -> Option<PathBuf> {
    Some(file.to_owned())
}

/// NCCL of this file, in a process that has opened none.
fn open(file: &Path) -> Result<&'static NcclLibrary> {
    Process::<NcclLibrary>::Fresh.open(&named(file))
}

/// The error of opening this file, which names a remedy.
fn missing(file: &Path) -> Vec<String> {
    let error = open(file).unwrap_err();
    let Error::LibraryMissing { tried, .. } = &error else { panic!("{error}") };
    assert!(error.to_string().contains("UNISONO_NCCL_LIB"), "{error}");
    tried.clone()
}

fn vendor(error: &Error) -> (&str, i32, &str, &str) {
    let Error::Vendor { call, code, text, remedy, .. } = error else { panic!("{error}") };
    (call, *code, text, remedy)
}

/// Rows: E1
#[test]
fn every_name_that_was_tried_is_in_the_error() {
    let Err(error) = Process::<NcclLibrary>::Fresh.open(&None) else {
        return unisono_tests::skip("nccl-absent", "this system has NCCL");
    };
    let Error::LibraryMissing { tried, .. } = &error else { panic!("{error}") };
    let names = ["libnccl.so.2", "libnccl.so", "librccl.so.1", "librccl.so"];
    assert_eq!(tried.len(), names.len(), "{error}");
    assert!(tried.iter().zip(names).all(|(tried, name)| tried.starts_with(&format!("{name}: "))), "{error}");
}

#[test]
fn a_file_that_is_no_library_is_named() {
    for file in ["/nowhere/libnccl.so.2", "target/libnccl.so.2"] {
        let tried = missing(Path::new(file));
        assert!(tried.len() == 1 && tried[0].starts_with(&format!("{file}: ")), "{tried:?}");
    }
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("libnccl.so.2");
    std::fs::write(&file, "not a library").unwrap();
    assert_eq!(missing(&file), [format!("{}: not an ELF file", file.display())]);
}

#[test]
fn a_missing_function_is_named() {
    let folder = TempDir::new().unwrap();
    let Some(lacking) = library(&folder, 21_903, &["-DncclCommAbort=another"]) else { return };
    let tried = missing(&lacking);
    assert!(tried.len() == 1 && tried[0].ends_with("libnccl.so.2 has no ncclCommAbort"), "{tried:?}");
}

#[test]
fn an_old_version_is_refused() {
    // 2.18.6 is the last version that can lose a call which does not block.
    for (code, version) in [(21_701, "2.17.1"), (21_806, "2.18.6")] {
        let folder = TempDir::new().unwrap();
        let Some(old) = library(&folder, code, &[]) else { return };
        let tried = missing(&old);
        let words = format!("libnccl.so.2 is of version {version}, older than 2.19.0");
        assert!(tried[0].ends_with(&words), "{tried:?}");
    }
}

#[test]
fn a_version_that_cannot_be_told_is_an_error() {
    let folder = TempDir::new().unwrap();
    let Some(broken) = library(&folder, 21_903, &["-DCODE=3"]) else { return };
    let error = open(&broken).unwrap_err();
    let (call, code, text, remedy) = vendor(&error);
    assert_eq!((call, code, text), ("ncclGetVersion", 3, "ncclInternalError: comm argument is NULL"));
    assert!(remedy.contains("NCCL_DEBUG=INFO"), "{error}");
}

#[test]
fn rccl_is_told_from_nccl() {
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let Some(rccl) = library(&folders[0], 22_205, &["-DRCCL"]) else { return };
    let rccl = open(&rccl).unwrap();
    assert!(rccl.is_rccl() && format!("{rccl:?}").contains("RCCL 2.22.5"), "{rccl:?}");
    let nccl = open(&library(&folders[1], 22_205, &[]).unwrap()).unwrap();
    assert!(!nccl.is_rccl() && format!("{nccl:?}").contains("(NCCL 2.22.5"), "{nccl:?}");
}

#[test]
fn codes_are_errors_with_names_and_remedies() {
    let folder = TempDir::new().unwrap();
    let Some(oldest) = library(&folder, 21_903, &[]) else { return };
    let nccl = open(&oldest).unwrap();
    nccl.check("ncclAllReduce", 0).unwrap();
    let error = nccl.check("ncclAllReduce", 4).unwrap_err();
    assert_eq!(vendor(&error).2, "ncclInvalidArgument: invalid argument: comm argument is NULL");
    assert!(error.to_string().contains(&format!("NCCL 2.19.3 ({})", oldest.display())), "{error}");
    // A code that this version has no words for.
    let error = nccl.check("ncclAllReduce", 8).unwrap_err();
    assert_eq!(vendor(&error).2, "ncclTimeout: comm argument is NULL");
}

#[test]
fn a_process_has_one() {
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let (Some(one), Some(other)) = (library(&folders[0], 22_809, &[]), library(&folders[1], 21_903, &[]))
    else {
        return;
    };
    let mut process = Process::<NcclLibrary>::Fresh;
    // A refused file leaves nothing behind.
    process.open(&named(Path::new("/nowhere/libnccl.so.2"))).unwrap_err();
    let nccl = process.open(&named(&one)).unwrap();
    assert!(ptr::eq(nccl, process.open(&None).unwrap()));
    assert!(ptr::eq(nccl, process.open(&named(&one)).unwrap()));
    let error = process.open(&named(&other)).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "library", .. }), "{error}");
    assert!(error.to_string().contains(one.to_str().unwrap()), "{error}");
}

/// The real library on a machine that need not have a device.
mod real {
    use super::*;

    fn real() -> Option<&'static NcclLibrary> {
        Some(NcclLibrary::open(&named(&nccl_library()?)).unwrap())
    }

    #[test]
    fn it_has_the_functions_of_its_version() {
        let Some(nccl) = real() else { return };
        assert!(!nccl.is_rccl());
        let (version, table) = (nccl.version(), &nccl.table);
        let since = |minor, patch| version >= Version { major: 2, minor, patch };
        for (is_there, symbol, expected) in [
            (table.all_to_all.function.is_some(), "ncclAlltoAll", since(28, 0)),
            (table.gather.function.is_some(), "ncclGather", since(28, 0)),
            (table.scatter.function.is_some(), "ncclScatter", since(28, 0)),
        ] {
            assert_eq!(is_there, expected, "{symbol} in {nccl:?}");
        }
    }

    fn unique_id(nccl: &NcclLibrary) -> UniqueId {
        let mut id = UniqueId { bytes: [0; UNIQUE_ID_BYTES] };
        // SAFETY: it fills an id.
        let code = unsafe { (nccl.table.get_unique_id)(&mut id) };
        nccl.check("ncclGetUniqueId", code).unwrap();
        id
    }

    /// Rows: E1
    #[test]
    fn it_makes_ids() {
        let Some(nccl) = real() else { return };
        let [one, other] = [unique_id(nccl), unique_id(nccl)];
        assert!(one.bytes.iter().any(|byte| *byte != 0));
        assert!(one.bytes != other.bytes, "two communicators would be taken for one");
    }

    /// The meaning of the codes that `error.rs` has names for.
    #[test]
    fn it_knows_the_codes() {
        let Some(nccl) = real() else { return };
        let words = [
            (1, "ncclUnhandledCudaError: unhandled cuda error"),
            (2, "ncclSystemError: unhandled system error"),
            (3, "ncclInternalError: internal error"),
            (4, "ncclInvalidArgument: invalid argument"),
            (5, "ncclInvalidUsage: invalid usage"),
            (6, "ncclRemoteError: remote process exited or there was a network error"),
            (7, "ncclInProgress: NCCL operation in progress"),
            (8, if nccl.version().minor < 31 { "ncclTimeout" } else { "ncclTimeout: timeout" }),
            (9, "a code that the header of 2.32 does not have"),
        ];
        for (code, words) in words {
            let error = nccl.check("ncclAllReduce", code).unwrap_err();
            assert!(vendor(&error).2.starts_with(words), "{error}");
        }
    }

    #[test]
    fn it_tells_what_is_wrong_with_a_call() {
        let Some(nccl) = real() else { return };
        // SAFETY: it looks at the communicator first, and refuses a null pointer.
        let code = unsafe {
            let (null, sum) = (ptr::null_mut(), ReductionOp::SUM);
            (nccl.table.all_reduce)(null, null, 0, DataType::Float32, sum, null, null)
        };
        let error = nccl.check("ncclAllReduce", code).unwrap_err();
        let (call, code, text, remedy) = vendor(&error);
        assert_eq!((call, code), ("ncclAllReduce", 4));
        assert!(text.ends_with("AllReduce : comm argument is NULL"), "{error}");
        assert!(remedy.contains("report this"), "{error}");
    }

    /// On a machine with a device it makes a communicator of one rank; on others it says that there is none.
    #[test]
    fn without_a_device_init_says_so() {
        let Some(nccl) = real() else { return };
        let mut comm: CommHandle = ptr::null_mut();
        let (id, mut config) = (unique_id(nccl), Config::new(true));
        // SAFETY: it reads the configuration, and writes one handle.
        let code = unsafe { (nccl.table.comm_init_rank_config)(&mut comm, 1, id, 0, &mut config) };
        if code == 0 {
            // SAFETY: the handle was just made, and is used once.
            return nccl.check("ncclCommDestroy", unsafe { (nccl.table.comm_destroy)(comm) }).unwrap();
        }
        assert!(comm.is_null());
        let error = nccl.check("ncclCommInitRankConfig", code).unwrap_err();
        let (call, code, text, remedy) = vendor(&error);
        assert_eq!((call, code), ("ncclCommInitRankConfig", 1));
        assert!(text.contains("CUDA driver version is insufficient"), "{error}");
        assert!(remedy.contains("no device") && remedy.contains("UNISONO_BACKEND=tcp"), "{error}");
    }
}
