//! The search for NCCL, and the check of its version. A process opens it once.

#![expect(unsafe_code, reason = "calls NCCL")]

use std::ffi::c_int;
use std::fmt;
use std::path::PathBuf;
use std::sync::Mutex;

use unisono_communicator::Result;
use unisono_vendor_library::{Failure, Library, Process, Resident};

use crate::sys::Table;

/// A version of NCCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 2 of 2.32.3.
    pub major: u32,
    /// 32 of 2.32.3.
    pub minor: u32,
    /// 3 of 2.32.3.
    pub patch: u32,
}

impl Version {
    /// From `NCCL_VERSION_CODE`: 23203 is 2.32.3. Up to 2.8 it had one digit less, so that 2708 is 2.7.8.
    fn from_code(code: u32) -> Version {
        let of_minor = if code < 10_000 { 10 } else { 100 };
        Version { major: code / (100 * of_minor), minor: code / 100 % of_minor, patch: code % 100 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// The oldest that is used: in 2.18 a call on a communicator that does not block could be lost, since its work belongs
/// to the thread, and not yet to the communicator (`comm->groupJob`, 2.19).
const VERSION_MIN: Version = Version { major: 2, minor: 19, patch: 0 };

const NAME: &str = "NCCL";
const REMEDY: &str = "let UNISONO_NCCL_LIB be the absolute path of libnccl.so.2 of NCCL 2.19 or later, such as the one \
                      in the wheel nvidia-nccl-cu12 that PyTorch brings, or install the system's libnccl2";

/// The files that are tried when none is named. Wheels have only the first.
const FILES: [&str; 4] = ["libnccl.so.2", "libnccl.so", "librccl.so.1", "librccl.so"];

/// A function that only RCCL has.
const OF_RCCL: &str = "ncclAllToAllv";

/// NCCL, open as long as the process: it has threads, and memory of devices.
pub struct NcclLibrary {
    pub(crate) table: Table,
    version: Version,
    is_rccl: bool,
    named: Option<PathBuf>,
}

impl fmt::Debug for NcclLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NcclLibrary({} {}, {})", self.name(), self.version, self.file())
    }
}

static PROCESS: Mutex<Process<NcclLibrary>> = Mutex::new(Process::Fresh);

impl Resident for NcclLibrary {
    type Options = Option<PathBuf>;

    const NAME: &'static str = NAME;
    const ARGUMENT: &'static str = "library";

    fn load(named: &Option<PathBuf>) -> Result<NcclLibrary, Failure> {
        // A library that is of no use is closed: nothing of it has run but a function that returns a number.
        NcclLibrary::load(named).map_err(Failure::Absent)
    }

    fn options(&self) -> &Option<PathBuf> {
        &self.named
    }

    fn file(&self) -> &str {
        NcclLibrary::file(self)
    }
}

impl NcclLibrary {
    /// NCCL in this process, which is opened by the first call. It needs no device. `named` is the library's file, by
    /// an absolute path or by a bare name that the system's loader knows; without it, NCCL is the open library, else
    /// the first of its usual names, or of RCCL's, that the loader finds.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::LibraryMissing`] with every file that was tried: when there is none, it lacks a
    /// function, or is older than 2.19. [`unisono_communicator::Error::InvalidArgument`] for another file than this
    /// process has opened.
    ///
    /// # Cost
    /// Some 15 ms once, and less than 1 ms when it is not there.
    pub fn open(named: &Option<PathBuf>) -> Result<&'static NcclLibrary> {
        Process::open_shared(&PROCESS, named)
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Its file, as it was asked for.
    pub fn file(&self) -> &str {
        self.table.library.file()
    }

    /// Whether it is AMD's, whose streams and memory are HIP's.
    pub fn is_rccl(&self) -> bool {
        self.is_rccl
    }

    /// `NCCL` or `RCCL`.
    pub(crate) fn name(&self) -> &'static str {
        if self.is_rccl { "RCCL" } else { NAME }
    }

    fn load(named: &Option<PathBuf>) -> Result<NcclLibrary> {
        let library = match named {
            Some(file) => Library::open(NAME, &[file], REMEDY)?,
            None => Library::open(NAME, &FILES, REMEDY)?,
        };
        // SAFETY: it is not called; whether it is there is all that is asked for.
        let is_rccl = unsafe { library.function::<unsafe extern "C" fn()>(OF_RCCL) }.is_some();
        let named = named.clone();
        let mut nccl = NcclLibrary { table: Table::new(library)?, version: VERSION_MIN, is_rccl, named };
        let mut code: c_int = 0;
        // SAFETY: it writes one number.
        nccl.check("ncclGetVersion", unsafe { (nccl.table.get_version)(&mut code) })?;
        nccl.version = Version::from_code(code.unsigned_abs());
        if nccl.version < VERSION_MIN {
            let problem = format!("is of version {}, older than {VERSION_MIN}", nccl.version);
            return Err(nccl.table.library.unusable(&problem));
        }
        Ok(nccl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_all_of_nccl_write_them() {
        for (code, text) in [(23_203, "2.32.3"), (21_801, "2.18.1"), (2_708, "2.7.8"), (20_900, "2.9.0")] {
            assert_eq!(Version::from_code(code).to_string(), text);
        }
        assert!(Version::from_code(23_000) > Version::from_code(22_907));
    }
}
