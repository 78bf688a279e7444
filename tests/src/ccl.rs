//! The real oneCCL, where there is one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use unisono_transport_tcp::config::Config;

use crate::processes::Environment;
use crate::skip;

/// The folder with oneCCL's files: that of `UNISONO_CCL_DIR`, else what `cargo xtask fetch-vendor ccl` has made.
/// `None`, after [`skip`], without one.
#[expect(clippy::disallowed_methods, reason = "a test that asks for what there is on this machine")]
pub fn ccl_directory() -> Option<PathBuf> {
    if let Some(named) = std::env::var("UNISONO_CCL_DIR").ok().filter(|named| !named.is_empty()) {
        return Some(named.into());
    }
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join("target/vendor/ccl");
    if fetched.join("libccl.so.2").exists() {
        return Some(fetched);
    }
    skip(
        "ccl",
        &format!("UNISONO_CCL_DIR is not set, and no {}: cargo xtask fetch-vendor ccl", fetched.display()),
    );
    None
}

/// [`ccl_variables`] of [`ccl_directory`], if there is one.
pub fn ccl_environment() -> Option<Environment> {
    static VARIABLES: LazyLock<Option<Vec<(&'static str, OsString)>>> =
        LazyLock::new(|| ccl_directory().map(|directory| ccl_variables(&directory)));
    if VARIABLES.is_none() {
        // Each test says why it is left out.
        ccl_directory();
    }
    VARIABLES.as_deref()
}

/// What a process is to find in its environment to use oneCCL of this folder: as `unisono run --vendor-dir` sets it.
///
/// # Panics
/// When the path of the folder is no text, or not absolute.
pub fn ccl_variables(directory: &Path) -> Vec<(&'static str, OsString)> {
    const FOLDER: &str = "UNISONO_CCL_DIR";
    let folder = directory.to_str().expect("a path that is text");
    let config = Config::from_lookup(&|name| (name == FOLDER).then(|| folder.to_owned())).unwrap();
    [vec![(FOLDER, directory.into())], config.missing_ccl_variables()].concat()
}
