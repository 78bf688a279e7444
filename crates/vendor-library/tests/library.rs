//! Small libraries, made by the system's compiler: their opening, the faults of files that are none, and their
//! functions.

#![expect(unsafe_code, reason = "calls small libraries in C")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::ffi::{CStr, c_char, c_int};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use unisono_communicator::Error;
use unisono_tests::compiled::shared_library;
use unisono_vendor_library::{Library, functions};

functions! {
    /// The functions of the library of [`SOURCE`].
    Sums {
        required {
            sum: "vendor_sum" (c_int, c_int);
            name: "vendor_name" () -> *const c_char;
        }
        optional {
            since "2.1": twice: "vendor_twice" (f64) -> f64;
            since "3.0": thrice: "vendor_thrice" (f64) -> f64;
        }
    }
}

functions! {
    /// The function that needs another library.
    Needing {
        required {
            sum_of_three: "needing_sum" (c_int, c_int, c_int);
        }
    }
}

const SOURCE: &str = r#"
int vendor_sum(int a, int b) { return a + b; }
const char *vendor_name(void) { return "sums"; }
#ifdef NEWER
double vendor_twice(double x) { return 2 * x; }
#endif
"#;

const NEEDING_SOURCE: &str = r"
int vendor_sum(int, int);
int needing_sum(int a, int b, int c) { return vendor_sum(vendor_sum(a, b), c); }
";

const REMEDY: &str = "install it";

fn compile(folder: &TempDir, name: &str, text: &str, options: &[&str]) -> Option<PathBuf> {
    shared_library(folder.path(), &format!("lib{name}.so"), text, options)
}

fn open(file: &Path) -> Result<Library, Error> {
    Library::open("Sums", &[file], REMEDY)
}

/// The fault of this file, the only candidate.
fn problem(file: &Path) -> String {
    let error = open(file).unwrap_err();
    let Error::LibraryMissing { library, tried, remedy } = error else { panic!("{error}") };
    assert_eq!((&*library, &*remedy), ("Sums", REMEDY));
    let [tried] = &tried[..] else { panic!("{tried:?}") };
    tried.strip_prefix(&format!("{}: ", file.display())).unwrap_or_else(|| panic!("{tried}")).to_owned()
}

#[test]
fn functions_are_found_and_give_what_they_are_declared_to() {
    let folder = TempDir::new().unwrap();
    let Some(file) = compile(&folder, "new", SOURCE, &["-DNEWER"]) else { return };
    let table = Sums::new(open(&file).unwrap()).unwrap();
    assert_eq!(table.library.file(), file.to_str().unwrap());
    let twice = table.twice.require("Sums", "2.1", "a sum").unwrap();
    // SAFETY: the signatures come from the text, which returns a string that lives as long as the library.
    unsafe {
        assert_eq!((table.sum)(3, 4), 7);
        assert_eq!(CStr::from_ptr((table.name)()), c"sums");
        assert_eq!(twice(1.25), 2.5);
    }
}

#[test]
fn an_old_library_lacks_what_is_optional() {
    let folder = TempDir::new().unwrap();
    let Some(file) = compile(&folder, "old", SOURCE, &[]) else { return };
    let table = Sums::new(open(&file).unwrap()).unwrap();
    assert!(table.twice.function.is_none() && table.thrice.function.is_none());
    let error = table.twice.require("Sums", "2.0", "vendor_sum").unwrap_err();
    let words =
        "Sums does not support vendor_twice, which needs version 2.1: this is 2.0; instead: vendor_sum";
    assert_eq!(error.to_string(), words);
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let error = table.thrice.require("Sums", "2.0", "vendor_sum").unwrap_err();
    assert!(error.to_string().contains("vendor_thrice, which needs version 3.0"), "{error}");
    let error = table.library.unusable("is of version 2.0, older than 2.1");
    let words =
        format!("Sums cannot be used: {} is of version 2.0, older than 2.1; install it", file.display());
    assert_eq!(error.to_string(), words);
}

#[test]
fn a_missing_function_is_named() {
    let folder = TempDir::new().unwrap();
    let text = SOURCE.replace("vendor_name", "another_name");
    let Some(file) = compile(&folder, "lacking", &text, &[]) else { return };
    let error = Sums::new(open(&file).unwrap()).err().unwrap();
    assert!(matches!(error, Error::LibraryMissing { .. }), "{error}");
    let words = format!("Sums cannot be used: {} has no vendor_name; install it", file.display());
    assert_eq!(error.to_string(), words);
}

#[test]
fn all_candidates_are_tried_in_order() {
    let folder = TempDir::new().unwrap();
    let (none, text) = (folder.path().join("none.so"), folder.path().join("text.so"));
    fs::write(&text, "GROUP ( libsums.so )".repeat(10)).unwrap();
    let error = Library::open("Sums", &[&none, &text], REMEDY).unwrap_err();
    let Error::LibraryMissing { tried, .. } = &error else { panic!("{error}") };
    let [first, second] = &tried[..] else { panic!("{error}") };
    assert!(first.starts_with(none.to_str().unwrap()) && first.contains("No such file"), "{error}");
    assert!(second.starts_with(text.to_str().unwrap()) && second.contains("not an ELF file"), "{error}");
    let Some(file) = compile(&folder, "third", SOURCE, &[]) else { return };
    let library = Library::open("Sums", &[&none, &text, &file], REMEDY).unwrap();
    assert_eq!(library.file(), file.to_str().unwrap());
}

#[test]
fn what_is_no_file_is_refused() {
    let folder = TempDir::new().unwrap();
    assert_eq!(problem(folder.path()), "it is not a regular file");
    let (empty, loops) = (folder.path().join("empty.so"), folder.path().join("loop.so"));
    fs::write(&empty, "").unwrap();
    assert_eq!(problem(&empty), "not an ELF file");
    symlink(&loops, &loops).unwrap();
    assert!(problem(&loops).contains("symbolic links"));
    let pipe = folder.path().join("pipe.so");
    if Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()) {
        assert_eq!(problem(&pipe), "it is not a regular file");
    }
    // As root everything can be read, so a name beyond the system's limit stands for a file that cannot be looked at.
    assert!(problem(&folder.path().join("x".repeat(300))).contains("too long"));
}

/// The working directory of a test is the folder of its package.
#[test]
fn nothing_is_found_by_way_of_the_working_directory() {
    for file in ["./libsums.so", "Cargo.toml/..", "target/libsums.so"] {
        assert!(problem(Path::new(file)).contains("give an absolute path"), "{file}");
    }
    // Not in the system's folders, though it is in this one.
    assert!(Path::new("Cargo.toml").exists());
    assert!(problem(Path::new("Cargo.toml")).contains("cannot open shared object file"));
    // To the loader, no name is the program itself.
    assert_eq!(problem(Path::new("")), "no name");
    assert!(problem(Path::new("a\0b")).contains("zero"));
}

/// Without the check of its length, opening one of these ends the process.
#[test]
fn a_library_that_is_cut_off_is_refused() {
    let folder = TempDir::new().unwrap();
    let Some(file) = compile(&folder, "whole", SOURCE, &[]) else { return };
    let bytes = fs::read(&file).unwrap();
    let mut stripped = bytes.clone();
    // Where the table of sections begins: 0 says that there is none.
    stripped[40..48].fill(0);
    for (bytes, refused_min) in [(&bytes, 50), (&stripped, 30)] {
        let lengths = (1..bytes.len()).step_by(bytes.len() / 50);
        let refused = lengths.filter(|length| {
            let cut = folder.path().join(format!("libcut-{length}.so"));
            fs::write(&cut, &bytes[..*length]).unwrap();
            // The last segment ends before the table of sections.
            let Err(error) = open(&cut) else { return false };
            assert!(matches!(error, Error::LibraryMissing { .. }), "{error}");
            assert!(error.to_string().contains("cut off") || *length < 16, "{error}");
            true
        });
        let refused = refused.count();
        assert!(refused >= refused_min, "{refused}");
    }
}

/// A place beyond all files, in the header and in a segment.
#[test]
fn damaged_numbers_are_refused() {
    let folder = TempDir::new().unwrap();
    let Some(file) = compile(&folder, "damaged", SOURCE, &[]) else { return };
    let bytes = fs::read(&file).unwrap();
    for place in [32..39, 32..40, 40..47, 40..48, 72..80, 96..104] {
        let mut damaged = bytes.clone();
        damaged[place.clone()].fill(0xff);
        fs::write(&file, damaged).unwrap();
        // A table of sections is nothing to the loader.
        assert!(open(&file).is_err() || place == (40..48), "{place:?}");
    }
}

#[test]
fn a_library_of_another_machine_is_refused() {
    let folder = TempDir::new().unwrap();
    let Some(file) = compile(&folder, "other", SOURCE, &[]) else { return };
    let mut bytes = fs::read(&file).unwrap();
    // The number of AVR, for which this is never built.
    bytes[18..20].copy_from_slice(&[83, 0]);
    fs::write(&file, &bytes).unwrap();
    assert_eq!(problem(&file), "for another machine, number 83 of ELF");
    // 32 bits.
    bytes[4] = 1;
    fs::write(&file, &bytes).unwrap();
    assert!(problem(&file).contains("ELFCLASS32"));
}

/// A library that needs another one by name, which lies where the loader does not look.
#[test]
fn a_library_finds_those_that_were_opened_for_all() {
    let folder = TempDir::new().unwrap();
    let soname = "-Wl,-soname,libunisono-needed.so.1";
    let Some(needed) = compile(&folder, "needed", SOURCE, &[soname]) else { return };
    let options = ["-Wl,--no-as-needed", needed.to_str().unwrap()];
    let needing = compile(&folder, "needing", NEEDING_SOURCE, &options).unwrap();
    let error = problem(&needing);
    assert!(error.contains("libunisono-needed.so.1: cannot open shared object file"), "{error}");
    let _needed = Library::open_global("Sums", &[&needed], REMEDY).unwrap();
    let table = Needing::new(open(&needing).unwrap()).unwrap();
    // SAFETY: the signature comes from the text.
    assert_eq!(unsafe { (table.sum_of_three)(1, 2, 3) }, 6);
}
