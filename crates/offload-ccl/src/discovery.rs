//! The search for oneCCL, and the check of its version. A process opens it once.

#![expect(unsafe_code, reason = "calls oneCCL")]

use std::ffi::c_int;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use unisono_communicator::{Error, Result};
use unisono_vendor_library::{Failure, Library, Process, Resident, check_file};

use crate::sys::Table;

/// The options for the search for oneCCL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CclOptions {
    /// The folder with `libccl.so.2`, `libccl.so.1` and `libccl_legacy_cpu.so`, by an absolute path. It may have
    /// `libfabric.so.1` too, which else is the system's. Without a folder the system's loader finds all of them, as it
    /// does after oneAPI's `setvars.sh`.
    pub directory: Option<PathBuf>,
}

/// A version of oneCCL. Its last number is not known: oneCCL does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 2022 of 2022.1.2.
    pub major: u32,
    /// 1 of 2022.1.2.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The oldest that is used: earlier ones have another C API.
const VERSION_MIN: Version = Version { major: 2022, minor: 1 };

const NAME: &str = "oneCCL";
const REMEDY: &str = "let UNISONO_CCL_DIR be a folder with libccl.so.2, libccl.so.1, libccl_legacy_cpu.so and \
                      libfabric.so.1 of one version of oneCCL, 2022.1 or later, such as `cargo xtask fetch-vendor ccl` \
                      makes, or source setvars.sh of oneAPI";

const FRONT: &str = "libccl.so.2";
const FABRIC: &str = "libfabric.so.1";
/// The files that the front opens by these names, in an order in which each finds the files that it needs.
const BEHIND: [&str; 2] = ["libccl.so.1", "libccl_legacy_cpu.so"];
/// A provider of the libfabric that oneCCL comes with, which finds such files only by `FI_PROVIDER_PATH`.
const PROVIDER: &str = "libtcp-fi.so";

/// oneCCL, open as long as the process: it has threads, and symbols that keep the system from unloading it.
pub struct Ccl {
    pub(crate) table: Table,
    /// Opened before the front asks for them, which finds them by their names then.
    _behind: Vec<Library>,
    version: Version,
    options: CclOptions,
    /// The place of libfabric's providers in files of their own.
    pub(crate) providers: Option<PathBuf>,
}

impl fmt::Debug for Ccl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ccl({}, version {})", self.file(), self.version)
    }
}

static PROCESS: Mutex<Process<Ccl>> = Mutex::new(Process::Fresh);

impl Resident for Ccl {
    type Options = CclOptions;

    const NAME: &'static str = NAME;
    const ARGUMENT: &'static str = "directory";

    fn load(options: &CclOptions) -> Result<Ccl, Failure> {
        let (front, fabric) = open_first(options).map_err(Failure::Absent)?;
        Ccl::load(front, fabric, options).map_err(Failure::Spoilt)
    }

    fn options(&self) -> &CclOptions {
        &self.options
    }

    fn file(&self) -> &str {
        Ccl::file(self)
    }
}

impl Ccl {
    /// oneCCL in this process, which is opened by the first call. Without a folder, it is the open library.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a folder by a relative path, and for another than the folder from which this
    /// process has opened oneCCL. [`Error::LibraryMissing`] when a file is missing or is no library; and when the files
    /// do not belong together or are older than 2022.1, or [`Error::Vendor`] when their version cannot be told: in
    /// these cases parts of oneCCL stay in the process, and every later call has the same error.
    ///
    /// # Cost
    /// Some 20 ms once.
    pub fn open(options: &CclOptions) -> Result<&'static Ccl> {
        Process::open_shared(&PROCESS, options)
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Its first file, as it was asked for.
    pub fn file(&self) -> &str {
        self.table.library.file()
    }

    /// Opens the files behind the front, and asks for the version.
    fn load(front: Library, fabric: Option<Library>, options: &CclOptions) -> Result<Ccl> {
        let table = Table::new(front)?;
        let mut behind: Vec<Library> = fabric.into_iter().collect();
        if let Some(directory) = &options.directory {
            for file in BEHIND {
                behind.push(Library::open_global(NAME, &[directory.join(file)], REMEDY)?);
            }
        }
        let providers = options.directory.clone().filter(|directory| directory.join(PROVIDER).exists());
        let (version, options) = (Version { major: 0, minor: 0 }, options.clone());
        let mut ccl = Ccl { table, _behind: behind, version, options, providers };
        ccl.version = ccl.ask_version()?;
        if ccl.version < VERSION_MIN {
            let problem = format!("is of version {}, older than {VERSION_MIN}", ccl.version);
            return Err(ccl.table.library.unusable(&problem));
        }
        Ok(ccl)
    }

    fn ask_version(&self) -> Result<Version> {
        let mut number: c_int = 0;
        // SAFETY: it writes one number. It is the first call, in which the front looks for a plugin.
        match unsafe { (self.table.get_version)(&mut number) } {
            1 => {
                let problem = format!("could not load a plugin, such as {}", BEHIND[1]);
                Err(self.table.library.unusable(&problem))
            }
            code => {
                self.check("onecclGetVersion", code)?;
                let number = number.unsigned_abs();
                Ok(Version { major: number / 10_000, minor: number / 100 % 100 })
            }
        }
    }
}

/// Opens the files that may fail without a trace: while the front is not open, nothing of oneCCL stays in the process.
/// Looks at all files of the folder before it opens the first.
fn open_first(options: &CclOptions) -> Result<(Library, Option<Library>)> {
    let Some(directory) = &options.directory else {
        return Ok((Library::open_global(NAME, &[FRONT], REMEDY)?, None));
    };
    if !directory.is_absolute() {
        let problem =
            format!("{} depends on the working directory; give an absolute path", directory.display());
        return Err(Error::invalid("directory", problem));
    }
    let wrong = |file: &Path| Some(format!("{}: {}", file.display(), check_file(file).err()?));
    let needed = [FRONT].into_iter().chain(BEHIND);
    let tried: Vec<String> = needed.filter_map(|file| wrong(&directory.join(file))).collect();
    if !tried.is_empty() {
        return Err(Error::LibraryMissing { library: NAME.into(), tried, remedy: REMEDY.into() });
    }
    let own = directory.join(FABRIC);
    // A file that is wrong is no reason to take another.
    let candidates = if own.exists() { vec![own] } else { vec![own, FABRIC.into()] };
    let fabric = Library::open_global("oneCCL's libfabric", &candidates, REMEDY)?;
    Ok((Library::open_global(NAME, &[directory.join(FRONT)], REMEDY)?, Some(fabric)))
}
