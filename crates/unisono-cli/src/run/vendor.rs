//! The environment of ranks in which a vendor's libraries are found, and are quick.

use std::ffi::OsString;
use std::path::PathBuf;

use unisono_offload_ccl::CclSettings;

/// The variables to set in every rank: variables of the launcher's environment stay as they are, but for the folder:
/// `directory` has priority.
///
/// They are set for every program: it may choose its backend in code.
pub(super) fn variables(directory: Option<PathBuf>) -> Vec<(&'static str, OsString)> {
    let mut settings = CclSettings::of_environment();
    let named = directory.iter().map(|folder| ("UNISONO_CCL_DIR", folder.clone().into_os_string())).collect();
    settings.directory = directory.or(settings.directory);
    [named, settings.missing_variables()].concat()
}
