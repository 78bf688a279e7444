//! The real oneCCL, where there is one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use unisono_offload_ccl::CclSettings;

use crate::processes::Environment;
use crate::vendor_files::vendor_folder;

/// The folder with oneCCL's files: that of `UNISONO_CCL_DIR`, else what `cargo xtask fetch-vendor ccl` has made.
/// `None`, after [`crate::skip`], without one.
pub fn ccl_directory() -> Option<PathBuf> {
    vendor_folder("ccl", "UNISONO_CCL_DIR", "libccl.so.2")
}

/// [`ccl_variables`] of [`ccl_directory`], if there is one.
pub fn ccl_environment() -> Option<Environment> {
    static VARIABLES: OnceLock<Vec<(&'static str, OsString)>> = OnceLock::new();
    let directory = ccl_directory()?;
    Some(VARIABLES.get_or_init(|| ccl_variables(&directory)))
}

/// What a process is to find in its environment to use oneCCL of this folder: as `unisono run --vendor-dir` sets it.
pub fn ccl_variables(directory: &Path) -> Vec<(&'static str, OsString)> {
    const FOLDER: &str = "UNISONO_CCL_DIR";
    let settings = CclSettings { directory: Some(directory.to_owned()), ..CclSettings::default() };
    [vec![(FOLDER, directory.into())], settings.missing_variables()].concat()
}
