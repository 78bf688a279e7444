//! What a process is told about Intel's oneCCL: where its libraries are, and the variables that it reads itself.

use std::ffi::OsString;
use std::path::Path;

use super::Config;
use crate::settings::Values;

/// The variables of oneCCL and its libfabric that make it quick where ranks share cores. Without them a call of 4 KiB
/// takes some 30 ms in place of some 20 us.
const QUICK: [(&str, &str); 2] = [("CCL_WORKER_OFFLOAD", "0"), ("CCL_YIELD", "sched_yield")];

/// Where libfabric looks for providers in files of their own.
const PROVIDER_PATH: &str = "FI_PROVIDER_PATH";
/// The provider that comes with the libfabric of oneCCL.
const PROVIDER: &str = "libtcp-fi.so";

/// What a process with oneCCL of this folder is to find in its environment.
fn ccl_variables(directory: Option<&Path>) -> Vec<(&'static str, OsString)> {
    let quick = QUICK.map(|(name, value)| (name, OsString::from(value)));
    let has_provider = |folder: &&Path| folder.is_absolute() && folder.join(PROVIDER).exists();
    let providers =
        directory.filter(has_provider).map(|folder| (PROVIDER_PATH, folder.as_os_str().to_owned()));
    quick.into_iter().chain(providers).collect()
}

/// The names of all of them.
pub(super) fn ccl_names() -> impl Iterator<Item = &'static str> {
    QUICK.iter().map(|(name, _)| *name).chain([PROVIDER_PATH])
}

/// The variables of oneCCL that are set.
pub(super) fn ccl_variables_set(set: Values<'_>) -> Vec<&'static str> {
    ccl_names().filter(|name| set(name).is_some()).collect()
}

impl Config {
    /// The variables that oneCCL needs and that the environment of this process lacks: a launcher sets them, and a rank
    /// without them is slow, or cannot reach the others where libfabric's provider is one of these files.
    ///
    /// oneCCL reads its variables when it is opened, and a process must not change its environment while other threads
    /// may read it. So they must be there when the process starts.
    ///
    /// ```
    /// # mod unisono { pub use unisono_job::config::*; }
    /// use unisono::Config;
    ///
    /// let config = Config::from_lookup(&|name| (name == "CCL_YIELD").then(|| "sleep".to_owned()))?;
    /// assert_eq!(config.missing_ccl_variables(), [("CCL_WORKER_OFFLOAD", "0".into())]);
    /// # Ok::<(), unisono_communicator::Error>(())
    /// ```
    pub fn missing_ccl_variables(&self) -> Vec<(&'static str, OsString)> {
        let mut wanted = ccl_variables(self.ccl_directory.as_deref());
        wanted.retain(|(name, _)| !self.ccl_variables_set.contains(name));
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(variables: &[(&str, &str)]) -> Config {
        let lookup =
            |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string());
        Config::from_lookup(&lookup).unwrap()
    }

    #[test]
    fn what_is_set_is_not_missing_and_an_empty_value_is_none() {
        let missing = |variables: &[(&str, &str)]| config(variables).missing_ccl_variables();
        let [offload, quick] = QUICK.map(|(name, value)| (name, OsString::from(value)));
        assert_eq!(missing(&[]), [offload.clone(), quick.clone()]);
        assert_eq!(missing(&[("CCL_WORKER_OFFLOAD", "1")]), *std::slice::from_ref(&quick));
        assert_eq!(missing(&[("CCL_WORKER_OFFLOAD", "1"), ("CCL_YIELD", "")]), [quick]);
        assert_eq!(missing(&[("CCL_WORKER_OFFLOAD", "1"), ("CCL_YIELD", "pause")]), []);
    }

    #[test]
    fn the_provider_is_looked_for_where_the_libraries_are_if_it_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().to_str().unwrap();
        let directory = ("UNISONO_CCL_DIR", text);
        let names = |variables: &[(&str, &str)]| {
            let missing = config(variables).missing_ccl_variables();
            missing.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(&[directory]), ["CCL_WORKER_OFFLOAD", "CCL_YIELD"]);
        std::fs::write(folder.path().join(PROVIDER), "").unwrap();
        assert_eq!(names(&[directory]), ["CCL_WORKER_OFFLOAD", "CCL_YIELD", PROVIDER_PATH]);
        assert_eq!(config(&[directory]).missing_ccl_variables()[2].1, text);
        assert_eq!(names(&[directory, (PROVIDER_PATH, "/other")]), ["CCL_WORKER_OFFLOAD", "CCL_YIELD"]);
    }
}
