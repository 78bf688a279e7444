//! An open library.

#![expect(unsafe_code, reason = "opens a library, and finds its functions by name")]

use std::ffi::{OsStr, c_int};
use std::path::Path;

use libloading::os::unix;
use unisono_communicator::{Error, Result};

use crate::elf::check_file;

/// A vendor's library. It stays open as long as this value.
#[derive(Debug)]
pub struct Library {
    library: unix::Library,
    name: &'static str,
    remedy: &'static str,
    file: String,
    is_test_double: bool,
}

/// The function that every test double of this repository has, and no vendor's library.
const OF_TEST_DOUBLE: &str = "unisono_double_live_handles";

impl Library {
    /// Opens the first of `candidates` that can be opened, and binds all that it needs at once. A candidate is an
    /// absolute path, or the bare name of a file, which the system's loader looks for; a path that depends on the
    /// working directory is refused. `name` is the library's in errors, `remedy` the advice when there is none.
    ///
    /// # Errors
    /// [`Error::LibraryMissing`] with the fault of each candidate: a file that is not there or cannot be read, is no
    /// library, is one of another machine, or needs a library that is not there.
    ///
    /// # Cost
    /// Runs the library's initialisation.
    pub fn open<C: AsRef<OsStr>>(
        name: &'static str,
        candidates: &[C],
        remedy: &'static str,
    ) -> Result<Library> {
        Library::open_with(unix::RTLD_LOCAL, name, candidates, remedy)
    }

    /// The same, for a library that others need: libraries that are opened later find it and its symbols, by its
    /// `DT_SONAME`, wherever it lies.
    ///
    /// # Errors
    /// As [`Library::open`].
    pub fn open_global<C: AsRef<OsStr>>(
        name: &'static str,
        candidates: &[C],
        remedy: &'static str,
    ) -> Result<Library> {
        Library::open_with(unix::RTLD_GLOBAL, name, candidates, remedy)
    }

    fn open_with<C: AsRef<OsStr>>(
        visibility: c_int,
        name: &'static str,
        candidates: &[C],
        remedy: &'static str,
    ) -> Result<Library> {
        let mut tried = Vec::new();
        for candidate in candidates.iter().map(AsRef::as_ref) {
            let file = candidate.to_string_lossy().into_owned();
            match load(candidate, visibility) {
                Ok(library) => {
                    // SAFETY: it is not called; whether it is there is all that is asked for.
                    let double = unsafe { library.get::<unsafe extern "C" fn()>(OF_TEST_DOUBLE) };
                    let is_test_double = double.is_ok();
                    return Ok(Library { library, name, remedy, file, is_test_double });
                }
                // The loader begins with the name of the file, in most cases.
                Err(problem) if problem.starts_with(&format!("{file}: ")) => tried.push(problem),
                Err(problem) => tried.push(format!("{file}: {problem}")),
            }
        }
        Err(Error::LibraryMissing { library: name.into(), tried, remedy: remedy.into() })
    }

    /// The file, as it was asked for.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The end of the library's version in the words of a user: ` (test double)` for a library that tests play, so that
    /// nobody takes its results and figures for a device's; else nothing.
    pub fn mark(&self) -> &'static str {
        if self.is_test_double { " (test double)" } else { "" }
    }

    /// The error of a library that was opened and is of no use, such as a library that is too old. `problem` follows
    /// the name of the file: `is of version 1.0, older than 2.0`.
    pub fn unusable(&self, problem: &str) -> Error {
        Error::LibraryMissing {
            library: self.name.into(),
            tried: vec![format!("{} {problem}", self.file)],
            remedy: self.remedy.into(),
        }
    }

    /// The function of this name, if there is one.
    ///
    /// # Safety
    /// `F` must be the type of a pointer to the function of this name, which must not be called after the library is
    /// closed.
    pub unsafe fn function<F: Copy>(&self, symbol: &str) -> Option<F> {
        // SAFETY: the caller knows the type of the function, and keeps the library. A symbol may be null, which no
        // pointer to a function is, so that `None` stands for it.
        unsafe { self.library.get::<Option<F>>(symbol) }.ok().and_then(|function| *function)
    }
}

/// Opens one candidate; its fault, else.
fn load(candidate: &OsStr, visibility: c_int) -> Result<unix::Library, String> {
    let path = Path::new(candidate);
    if candidate.is_empty() {
        return Err("no name".to_owned());
    }
    if path.is_absolute() {
        check_file(path)?;
    } else if candidate.as_encoded_bytes().contains(&b'/') {
        return Err("it depends on the working directory; give an absolute path".to_owned());
    }
    // SAFETY: a vendor's library may run code when it is opened; the caller has named it for that.
    unsafe { unix::Library::open(Some(candidate), unix::RTLD_NOW | visibility) }.map_err(
        |error| match error {
            libloading::Error::DlOpen { source, .. } => source.to_string(),
            other => other.to_string(),
        },
    )
}
