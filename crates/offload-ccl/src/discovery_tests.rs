//! Finding oneCCL: folders that are wrong, libraries of small texts that stand in for it, and, where it is there, the
//! real one.

#![expect(unsafe_code, reason = "calls oneCCL")]

use std::ffi::c_int;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::ptr;
use std::sync::Mutex;

use tempfile::TempDir;
use unisono_communicator::{Error, Result};
use unisono_tests::ccl::{ccl_directory, ccl_variables};
use unisono_tests::compiled::shared_library;
use unisono_tests::program;
use unisono_vendor_library::Process;

use crate::discovery::{Ccl, CclOptions, Version};
use crate::sys::{UNIQUE_ID_BYTES, UniqueId};

/// A front whose version is `VERSION`, with all required functions, of which most do nothing.
const FRONT: &str = r#"
int onecclGetVersion(int *version) { *version = VERSION; return CODE; }
const char *onecclGetErrorString(int code) { return code == 4 ? "Invalid argument" : "Unknown error code"; }
const char *onecclGetLastError(void *comm) { return LAST; }
#define NOTHING(name) int name(void) { return 0; }
NOTHING(onecclGetUniqueId) NOTHING(onecclCommInitRank) NOTHING(onecclCommFinalize) NOTHING(onecclCommDestroy)
NOTHING(onecclAllReduce) NOTHING(onecclReduce) NOTHING(onecclReduceScatter) NOTHING(onecclBroadcast)
NOTHING(onecclAllGather) NOTHING(onecclAllToAll) NOTHING(onecclSend) NOTHING(onecclRecv)
NOTHING(onecclGroupStart) NOTHING(onecclGroupEnd) NOTHING(onecclRedOpCreatePreMulSum) NOTHING(onecclRedOpDestroy)
"#;

/// A folder with files that look like oneCCL, but for the front.
fn folder_without_front() -> Option<TempDir> {
    let folder = TempDir::new().unwrap();
    let empty = shared_library(folder.path(), "libccl.so.1", "int nothing;", &[])?;
    for file in ["libccl_legacy_cpu.so", "libfabric.so.1"] {
        fs::copy(&empty, folder.path().join(file)).unwrap();
    }
    Some(folder)
}

/// A folder with files that look like oneCCL of this version, which `options` of the compiler change.
fn folder(version: u32, options: &[&str]) -> Option<TempDir> {
    let folder = folder_without_front()?;
    let version = format!("-DVERSION={version}");
    let defaults = [("-DCODE=", "-DCODE=0"), ("-DLAST=", "-DLAST=\"comm cannot be nullptr\"")];
    let absent = defaults.iter().filter(|(name, _)| !options.iter().any(|option| option.starts_with(name)));
    let options: Vec<&str> = [&*version]
        .into_iter()
        .chain(absent.map(|(_, value)| *value))
        .chain(options.iter().copied())
        .collect();
    shared_library(folder.path(), "libccl.so.2", FRONT, &options)?;
    Some(folder)
}

fn options(directory: &Path) -> CclOptions {
    CclOptions { directory: Some(directory.to_owned()) }
}

/// oneCCL of this folder, in a process that has opened none.
fn open(directory: &Path) -> Result<&'static Ccl> {
    Process::Fresh.open(&options(directory))
}

/// The error of opening this folder: every file that was tried, and the whole text.
fn missing(directory: &Path) -> (Vec<String>, String) {
    let error = open(directory).unwrap_err();
    let Error::LibraryMissing { tried, .. } = &error else { panic!("{error}") };
    assert!(error.to_string().contains("UNISONO_CCL_DIR"), "{error}");
    assert!(error.to_string().contains("cargo xtask fetch-vendor ccl"), "{error}");
    (tried.clone(), error.to_string())
}

fn vendor(error: &Error) -> (&str, i32, &str, &str) {
    let Error::Vendor { call, code, text, remedy, .. } = error else { panic!("{error}") };
    (call, *code, text, remedy)
}

#[test]
fn a_folder_by_a_relative_path_is_refused() {
    let error = open(Path::new("target/vendor/ccl")).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "directory", .. }), "{error}");
    assert!(error.to_string().contains("absolute path"), "{error}");
}

#[test]
fn all_files_that_are_missing_are_named() {
    let empty = TempDir::new().unwrap();
    for directory in [empty.path(), Path::new("/nowhere")] {
        let (tried, text) = missing(directory);
        let files = ["libccl.so.2", "libccl.so.1", "libccl_legacy_cpu.so"];
        let starts = files.map(|file| format!("{}: No such file", directory.join(file).display()));
        assert_eq!(tried.len(), starts.len(), "{text}");
        assert!(tried.iter().zip(&starts).all(|(tried, start)| tried.starts_with(start)), "{text}");
    }
}

#[test]
fn one_file_that_is_missing_or_wrong_is_named() {
    let Some(whole) = folder(20_220_200, &[]) else { return };
    for file in ["libccl.so.2", "libccl.so.1", "libccl_legacy_cpu.so", "libfabric.so.1"] {
        let path = whole.path().join(file);
        let kept = fs::read(&path).unwrap();
        fs::write(&path, "not a library").unwrap();
        let (tried, text) = missing(whole.path());
        assert_eq!(tried, [format!("{}: not an ELF file", path.display())], "{text}");
        fs::write(&path, &kept[..kept.len() / 4]).unwrap();
        let (tried, text) = missing(whole.path());
        assert!(tried.len() == 1 && tried[0].starts_with(&format!("{}: cut off", path.display())), "{text}");
        fs::remove_file(&path).unwrap();
        // Some systems have a libfabric.
        if file != "libfabric.so.1" || open(whole.path()).is_err() {
            let (tried, text) = missing(whole.path());
            assert!(tried[0].starts_with(&format!("{}: No such file", path.display())), "{text}");
            let of_system = "libfabric.so.1: cannot open shared object file";
            assert_eq!(
                tried.get(1).is_some_and(|tried| tried.starts_with(of_system)),
                file == "libfabric.so.1"
            );
        }
        fs::write(&path, kept).unwrap();
    }
    assert_eq!(open(whole.path()).unwrap().version(), Version { major: 2022, minor: 2 });
}

#[test]
fn a_missing_function_is_named() {
    let Some(lacking) = folder(20_220_200, &["-DonecclBroadcast=another"]) else { return };
    let (tried, text) = missing(lacking.path());
    assert!(tried.len() == 1 && tried[0].ends_with("libccl.so.2 has no onecclBroadcast"), "{text}");
}

#[test]
fn an_old_version_is_refused() {
    let Some(old) = folder(20_211_700, &[]) else { return };
    let (tried, text) = missing(old.path());
    assert!(tried[0].ends_with("libccl.so.2 is of version 2021.17, older than 2022.1"), "{text}");
}

#[test]
fn what_the_oldest_version_lacks_is_optional() {
    let Some(oldest) = folder(20_220_100, &[]) else { return };
    let ccl = open(oldest.path()).unwrap();
    assert!(ccl.table.all_to_all_v.function.is_none());
    let version = ccl.version().to_string();
    let error = ccl.table.scatter.require("ccl", &version, "a broadcast").unwrap_err();
    let words = "ccl does not support onecclScatter, which needs version 2022.2: this is 2022.1; instead: a broadcast";
    assert_eq!(error.to_string(), words);
}

#[test]
fn without_a_plugin_it_cannot_be_used() {
    let Some(alone) = folder(20_220_200, &["-DCODE=1"]) else { return };
    let (tried, text) = missing(alone.path());
    assert!(tried[0].contains("could not load a plugin, such as libccl_legacy_cpu.so"), "{text}");
}

#[test]
fn codes_are_errors_with_names_and_remedies() {
    let Some(broken) = folder(20_220_200, &["-DCODE=2", "-DLAST=0"]) else { return };
    let error = open(broken.path()).unwrap_err();
    let (call, code, text, remedy) = vendor(&error);
    assert_eq!((call, code, text), ("onecclGetVersion", 2, "onecclSystemError"));
    assert!(remedy.contains("ulimit"), "{error}");

    let Some(whole) = folder(20_220_200, &[]) else { return };
    let ccl = open(whole.path()).unwrap();
    ccl.check("onecclAllReduce", 0).unwrap();
    let error = ccl.check("onecclAllReduce", 4).unwrap_err();
    assert_eq!(vendor(&error).2, "onecclInvalidArgument: Invalid argument: comm cannot be nullptr");
    assert!(error.to_string().contains(&format!("oneCCL 2022.2 ({}", whole.path().display())), "{error}");
    let error = ccl.check("onecclAllReduce", 11).unwrap_err();
    assert_eq!(vendor(&error).2, "onecclPluginException: comm cannot be nullptr");
    assert!(vendor(&error).3.contains("CCL_LOG_LEVEL=info"), "{error}");
    let error = ccl.check("onecclCommInitRank", 11).unwrap_err();
    assert!(vendor(&error).3.contains("fi_info -p tcp"), "{error}");
}

#[test]
fn a_libfabric_with_providers_of_its_own_needs_a_variable() {
    let Some(whole) = folder(20_220_200, &[]) else { return };
    fs::copy(whole.path().join("libccl.so.1"), whole.path().join("libtcp-fi.so")).unwrap();
    let error = open(whole.path()).unwrap().check("onecclCommInitRank", 11).unwrap_err();
    let words = format!("FI_PROVIDER_PATH={}", whole.path().display());
    assert!(vendor(&error).3.ends_with(&words), "{error}");
}

#[test]
fn a_process_opens_one_for_all_its_threads() {
    let (Some(one), Some(other)) = (folder(20_220_200, &[]), folder(20_220_100, &[])) else { return };
    let process = Mutex::new(Process::<Ccl>::Fresh);
    let opened = || process.lock().unwrap().open(&options(one.path())).unwrap();
    let all = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(opened)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(all.iter().all(|ccl| ptr::eq(*ccl, all[0])));
    let mut process = process.lock().unwrap();
    assert!(ptr::eq(process.open(&CclOptions::default()).unwrap(), all[0]));
    let error = process.open(&options(other.path())).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "directory", .. }), "{error}");
    assert!(error.to_string().contains(one.path().to_str().unwrap()), "{error}");
}

/// A folder that cannot be right says so every time anew; a folder that was opened and is of no use stays.
#[test]
fn errors_stay_when_parts_of_oneccl_do() {
    let (Some(old), Some(good)) = (folder(20_210_100, &[]), folder(20_220_200, &[])) else { return };
    let mut process = Process::<Ccl>::Fresh;
    let front = good.path().join("libccl.so.2");
    let kept = fs::read(&front).unwrap();
    fs::remove_file(&front).unwrap();
    assert!(process.open(&options(good.path())).unwrap_err().to_string().contains("No such file"));
    fs::write(&front, kept).unwrap();
    process.open(&options(good.path())).unwrap();

    let mut process = Process::<Ccl>::Fresh;
    let first = process.open(&options(old.path())).unwrap_err();
    assert!(first.to_string().contains("older than 2022.1"), "{first}");
    let second = process.open(&options(good.path())).unwrap_err();
    assert_eq!(second.to_string(), first.to_string());
}

/// The real library, in processes of their own: it stays in the process that opens it.
mod real {
    use super::*;

    fn real() -> &'static Ccl {
        let directory = ccl_directory().expect("whoever starts this has found it");
        Ccl::open(&options(&directory)).unwrap()
    }

    #[test]
    fn program_of_this_process() {
        program::run(&[
            ("codes", process_knows_the_codes),
            ("ids", process_makes_ids),
            ("mixed", mixed_process),
            ("system", system_process),
            ("version", process_has_the_version_and_its_functions),
            ("wrong", process_tells_what_is_wrong),
        ]);
    }

    /// The process that runs this program, with oneCCL of this folder.
    fn process(directory: &Path, program: &str) -> Command {
        let mut command = Command::new("env");
        command.args(program::words(program)).envs(ccl_variables(directory)).env_remove("LD_LIBRARY_PATH");
        command
    }

    fn succeeds(command: &mut Command) {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Rows: D1
    #[test]
    fn the_real_library_is_opened_and_tells_its_errors() {
        let Some(directory) = ccl_directory() else { return };
        for program in ["version", "ids", "wrong", "codes"] {
            succeeds(&mut process(&directory, program));
        }
        // As after oneAPI's script.
        succeeds(process(&directory, "system").env("LD_LIBRARY_PATH", &directory));
    }

    fn system_process() {
        let ccl = Ccl::open(&CclOptions::default()).unwrap();
        assert_eq!(ccl.file(), "libccl.so.2");
        assert!(ccl.version() >= Version { major: 2022, minor: 1 }, "{ccl:?}");
    }

    fn process_has_the_version_and_its_functions() {
        let ccl = real();
        assert!(ccl.version() >= Version { major: 2022, minor: 1 }, "{ccl:?}");
        let is_newer = ccl.version() >= Version { major: 2022, minor: 2 };
        assert_eq!(ccl.table.scatter.function.is_some(), is_newer, "{ccl:?}");
        assert_eq!(ccl.table.all_to_all_v.function.is_some(), is_newer, "{ccl:?}");
        assert!(ptr::eq(ccl, Ccl::open(&CclOptions::default()).unwrap()));
    }

    fn process_makes_ids() {
        let ids: Vec<UniqueId> = (0..2)
            .map(|_| {
                let mut id = UniqueId { bytes: [0; UNIQUE_ID_BYTES] };
                // SAFETY: it fills an id.
                let code = unsafe { (real().table.get_unique_id)(&mut id) };
                real().check("onecclGetUniqueId", code).unwrap();
                id
            })
            .collect();
        assert!(ids.iter().all(|id| id.bytes.iter().any(|byte| *byte != 0)));
        assert!(ids[0].bytes != ids[1].bytes, "two communicators would be taken for one");
    }

    fn process_tells_what_is_wrong() {
        let ccl = real();
        // SAFETY: it looks at the communicator first, and refuses a null pointer.
        let code = unsafe { (ccl.table.comm_destroy)(ptr::null_mut()) };
        let error = ccl.check("onecclCommDestroy", code).unwrap_err();
        let (call, code, text, _) = vendor(&error);
        assert_eq!((call, code), ("onecclCommDestroy", 4));
        assert_eq!(text, "onecclInvalidArgument: Invalid argument: comm cannot be nullptr");
        let error = ccl.check("onecclCommInitRank", 11).unwrap_err();
        assert!(vendor(&error).2.starts_with("onecclPluginException"), "{error}");
        let other = Ccl::open(&options(Path::new("/nowhere"))).unwrap_err();
        assert!(matches!(other, Error::InvalidArgument { .. }), "{other}");
    }

    /// The meaning of the codes that `error.rs` has names for.
    fn process_knows_the_codes() {
        let ccl = real();
        let text = |code: c_int| {
            let error = ccl.check("onecclAllReduce", code).unwrap_err();
            vendor(&error).2.to_owned()
        };
        for (code, words) in [(2, "onecclSystemError: System error"), (7, "onecclFailureGPU: GPU failure")] {
            assert!(text(code).starts_with(words), "{}", text(code));
        }
        assert!(text(12).starts_with("onecclNotImplemented: Not implemented"), "{}", text(12));
        assert!(text(13).starts_with("a code that the header"), "{}", text(13));
    }

    /// A `libccl.so.1` of an older version lacks the functions that the plugin needs; this one lacks everything.
    #[test]
    fn files_of_different_versions_are_refused() {
        let Some(directory) = ccl_directory() else { return };
        let mixed = TempDir::new().unwrap();
        for file in ["libccl.so.2", "libccl_legacy_cpu.so", "libfabric.so.1"] {
            // Else it is the system's.
            if directory.join(file).exists() {
                symlink(directory.join(file), mixed.path().join(file)).unwrap();
            }
        }
        let soname = ["-Wl,-soname,libccl.so.1"];
        if shared_library(mixed.path(), "libccl.so.1", "int nothing;", &soname).is_some() {
            succeeds(&mut process(mixed.path(), "mixed"));
        }
    }

    fn mixed_process() {
        let options = CclOptions { directory: ccl_directory() };
        let error = Ccl::open(&options).unwrap_err();
        assert!(matches!(error, Error::LibraryMissing { .. }), "{error}");
        assert!(error.to_string().contains("libccl_legacy_cpu.so: undefined symbol: "), "{error}");
        assert!(error.to_string().contains("of one version of oneCCL"), "{error}");
        assert_eq!(Ccl::open(&options).unwrap_err().to_string(), error.to_string());
    }
}
