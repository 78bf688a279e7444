//! The real oneCCL, where there is one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::processes::Environment;
use crate::vendor_files::vendor_folder;

/// The folder with oneCCL's files: that of `UNISONO_CCL_DIR`, else what `cargo xtask fetch-vendor ccl` has made.
/// `None`, after [`crate::skip`], without one.
pub fn ccl_directory() -> Option<PathBuf> {
    vendor_folder("ccl", "UNISONO_CCL_DIR", "libccl.so.2")
}

/// [`ccl_variables`] of [`ccl_directory`], if there is one.
pub fn ccl_environment() -> Option<Environment> {
    static VARIABLES: LazyLock<Option<[(&'static str, OsString); 4]>> =
        LazyLock::new(|| ccl_directory().map(|directory| ccl_variables(&directory)));
    if VARIABLES.is_none() {
        // Each test says why it is left out.
        ccl_directory();
    }
    VARIABLES.as_ref().map(<[_; 4]>::as_slice)
}

/// What a process is to find in its environment to use oneCCL of this folder: ranks that share cores give way to each
/// other, and none has a thread for its transfers.
pub fn ccl_variables(directory: &Path) -> [(&'static str, OsString); 4] {
    [
        ("UNISONO_CCL_DIR", directory.into()),
        ("FI_PROVIDER_PATH", directory.into()),
        ("CCL_WORKER_OFFLOAD", "0".into()),
        ("CCL_YIELD", "sched_yield".into()),
    ]
}
