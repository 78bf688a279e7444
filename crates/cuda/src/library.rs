//! A vendor's library, opened at run time.

#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::path::Path;

use unisono_communicator::{Error, Result};

/// An open library. It stays open as long as this value.
#[derive(Debug)]
pub(crate) struct Library {
    library: libloading::Library,
    /// The file, as it was asked for.
    pub(crate) file: String,
}

impl Library {
    /// Opens the file at `path`, or else the first of `candidates` that the system's loader finds.
    ///
    /// # Errors
    /// [`Error::LibraryMissing`] with what is wrong with each.
    pub(crate) fn open(
        name: &'static str,
        path: Option<&Path>,
        candidates: &[String],
        remedy: &str,
    ) -> Result<Library> {
        let files: Vec<&OsStr> = match path {
            Some(path) => vec![path.as_os_str()],
            None => candidates.iter().map(OsStr::new).collect(),
        };
        let mut tried = Vec::new();
        for file in files {
            // SAFETY: a vendor's library may run code when it is opened; the caller has named it for that.
            match unsafe { libloading::Library::new(file) } {
                Ok(library) => return Ok(Library { library, file: file.to_string_lossy().into_owned() }),
                Err(error) => tried.push(format!("{}: {}", file.to_string_lossy(), reason(&error))),
            }
        }
        Err(Error::LibraryMissing { library: name.into(), tried, remedy: remedy.into() })
    }

    /// The function of this name.
    ///
    /// # Safety
    /// `F` must be the type of a pointer to the function of this name. It must not be called after the library is
    /// closed.
    ///
    /// # Errors
    /// What is missing.
    pub(crate) unsafe fn function<F: Copy>(&self, symbol: &str) -> std::result::Result<F, String> {
        // SAFETY: the caller knows the type of the function, and keeps the library.
        let found = unsafe { self.library.get::<F>(symbol) };
        found.map(|function| *function).map_err(|_| format!("{} has no {symbol}", self.file))
    }
}

/// What the loader says, without the name of the call.
fn reason(error: &libloading::Error) -> String {
    match error {
        libloading::Error::DlOpen { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}

/// A struct of the functions of a library, one field for each: `name: "symbol" (arguments)`. All return an `i32` that
/// is zero for success.
macro_rules! functions {
    ($(#[$attribute:meta])* $table:ident { $($field:ident: $symbol:literal ($($argument:ty),* $(,)?);)* }) => {
        $(#[$attribute])*
        pub(crate) struct $table {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> i32,)*
            /// Kept open as long as the pointers above.
            pub(crate) library: $crate::library::Library,
        }

        impl $table {
            /// Finds all functions; what is missing, else.
            pub(crate) fn new(library: $crate::library::Library) -> std::result::Result<$table, String> {
                Ok($table {
                    $(
                        // SAFETY: the signature is that of the vendor's header, and the library stays beside it.
                        $field: unsafe { library.function($symbol) }?,
                    )*
                    library,
                })
            }
        }
    };
}

pub(crate) use functions;
