//! The search for HCCL and ACL. A process opens them once.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Mutex;

use unisono_communicator::{Error, Result};
use unisono_vendor_library::{Failure, Library, Process, Resident};

use crate::device::Users;
use crate::sys::{Acl, Collectives, Management, Norms, Operators, Pairs, Signs, Tensors};

const NAME: &str = "HCCL";
const REMEDY: &str = "let UNISONO_HCCL_DIR be the folder with libhccl.so and libascendcl.so of CANN, such as \
                      /usr/local/Ascend/ascend-toolkit/latest/lib64, or source its set_env.sh";

const HCCL: &str = "libhccl.so";
/// Newer versions may have the functions that make communicators here.
const HCOMM: &str = "libhcomm.so";
const ACL: &str = "libascendcl.so";
const TENSORS: &str = "libnnopbase.so";
/// Since CANN 8.5, and before.
const OPERATORS: [&str; 2] = ["libopapi_math.so", "libopapi.so"];
/// The operators of signs, and the norm, may be in another one of them.
const OTHERS: [&str; 3] = ["libopapi_nn.so", "libopapi_math.so", "libopapi.so"];

/// HCCL and ACL, open as long as the process: they have threads, and memory of devices.
pub struct HcclLibrary {
    pub(crate) collectives: Collectives,
    pub(crate) management: Management,
    pub(crate) acl: Acl,
    /// Without it nothing is multiplied or divided on the device.
    pub(crate) aclnn: Option<Aclnn>,
    pub(crate) users: Mutex<Users>,
    directory: Option<PathBuf>,
}

/// aclnn's operators, and their arguments.
pub(crate) struct Aclnn {
    pub(crate) tensors: Tensors,
    pub(crate) operators: Operators,
    /// Without them no schedule runs.
    pub(crate) pairs: Option<Pairs>,
    pub(crate) signs: Option<Signs>,
    pub(crate) norms: Option<Norms>,
}

impl fmt::Debug for HcclLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let aclnn = self.aclnn.as_ref().map_or("none", |aclnn| aclnn.operators.library.file());
        let [hccl, acl] = [self.file(), self.acl.library.file()];
        write!(f, "HcclLibrary({hccl}, {}, {acl}, aclnn: {aclnn})", self.management.library.file())
    }
}

static PROCESS: Mutex<Process<HcclLibrary>> = Mutex::new(Process::Fresh);

impl Resident for HcclLibrary {
    type Options = Option<PathBuf>;

    const NAME: &'static str = NAME;
    const ARGUMENT: &'static str = "directory";

    fn load(directory: &Option<PathBuf>) -> Result<HcclLibrary, Failure> {
        // A library that is of no use is closed: nothing of it has run.
        HcclLibrary::load(directory.clone()).map_err(Failure::Absent)
    }

    fn options(&self) -> &Option<PathBuf> {
        &self.directory
    }

    fn file(&self) -> &str {
        HcclLibrary::file(self)
    }
}

impl HcclLibrary {
    /// HCCL in this process, which is opened by the first call. It needs no device. `directory` is the folder with its
    /// files, by an absolute path; without it, HCCL is the open library, else the first that the system's loader finds.
    ///
    /// # Errors
    /// [`Error::LibraryMissing`] with every file that was tried: when one is not there, or lacks a function.
    /// [`Error::InvalidArgument`] for another folder than the folder from which this process has opened HCCL.
    pub fn open(directory: &Option<PathBuf>) -> Result<&'static HcclLibrary> {
        Process::open_shared(&PROCESS, directory)
    }

    /// Its first file, as it was asked for.
    pub fn file(&self) -> &str {
        self.collectives.library.file()
    }

    /// Its files, as they were asked for, each once.
    pub fn files(&self) -> Vec<String> {
        let aclnn = self.aclnn.iter().flat_map(|aclnn| [&aclnn.tensors.library, &aclnn.operators.library]);
        let own = [&self.collectives.library, &self.management.library, &self.acl.library];
        let mut files: Vec<_> =
            own.into_iter().chain(aclnn).map(|library| library.file().to_owned()).collect();
        files.dedup();
        files
    }

    fn load(directory: Option<PathBuf>) -> Result<HcclLibrary> {
        let path = |file: &str| -> OsString {
            directory.as_ref().map_or_else(|| file.into(), |folder| folder.join(file).into())
        };
        let open = |file: &str| Library::open(NAME, &[path(file)], REMEDY);
        // The libraries that HCCL needs come first, so that it finds them by their names.
        let acl = Acl::new(open(ACL)?)?;
        let collectives = Collectives::new(open(HCCL)?)?;
        let management = Management::new(open(HCCL)?).or_else(|first| {
            let both = |second| joined(&first, second);
            open(HCOMM).and_then(Management::new).map_err(both)
        })?;
        let operators = OPERATORS.map(path);
        let aclnn =
            Library::open("aclnn", &operators, REMEDY).and_then(Operators::new).and_then(|operators| {
                let tensors = Tensors::new(open(TENSORS)?)?;
                let pairs = OPERATORS.iter().find_map(|file| open(file).and_then(Pairs::new).ok());
                let signs = OTHERS.iter().find_map(|file| open(file).and_then(Signs::new).ok());
                let norms = OTHERS.iter().find_map(|file| open(file).and_then(Norms::new).ok());
                Ok(Aclnn { tensors, operators, pairs, signs, norms })
            });
        Ok(HcclLibrary {
            collectives,
            management,
            acl,
            aclnn: aclnn.ok(),
            users: Mutex::default(),
            directory,
        })
    }
}

/// The faults of both files in which a function may be.
fn joined(first: &Error, second: Error) -> Error {
    match (first, second) {
        (Error::LibraryMissing { tried: one, .. }, Error::LibraryMissing { library, tried, remedy }) => {
            Error::LibraryMissing { library, tried: one.iter().cloned().chain(tried).collect(), remedy }
        }
        (_, second) => second,
    }
}
