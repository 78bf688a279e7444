//! The settings of Intel's oneCCL: the place of its libraries, and the variables that it reads itself.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use unisono_communicator::Result;
use unisono_communicator::settings::{HOW_CALLS_ARE_DONE, KnobGroup, Source, check_absolute, knob};

/// The settings of oneCCL.
#[rustfmt::skip]
pub const SETTINGS: KnobGroup = KnobGroup { title: HOW_CALLS_ARE_DONE, knobs: &[
    knob("UNISONO_CCL_DIR", "path", "", &[],
        "folder with the libraries of Intel's oneCCL, an absolute path; else the system's loader finds them"),
] };

/// The variables of oneCCL and its libfabric that make it quick where ranks share cores. Without them a call of 4 KiB
/// takes some 30 ms in place of some 20 us.
const QUICK: [(&str, &str); 2] = [("CCL_WORKER_OFFLOAD", "0"), ("CCL_YIELD", "sched_yield")];

/// The place at which libfabric looks for providers in files of their own.
const PROVIDER_PATH: &str = "FI_PROVIDER_PATH";
/// The provider that comes with the libfabric of oneCCL.
const PROVIDER: &str = "libtcp-fi.so";

/// The variables that a process with oneCCL of this folder must find in its environment.
fn variables(directory: Option<&Path>) -> Vec<(&'static str, OsString)> {
    let quick = QUICK.map(|(name, value)| (name, OsString::from(value)));
    let has_provider = |folder: &&Path| folder.is_absolute() && folder.join(PROVIDER).exists();
    let providers =
        directory.filter(has_provider).map(|folder| (PROVIDER_PATH, folder.as_os_str().to_owned()));
    quick.into_iter().chain(providers).collect()
}

/// The place of oneCCL's libraries, and its variables in the environment.
#[derive(Clone, Debug, Default)]
pub struct CclSettings {
    /// The folder with its libraries; an absolute path.
    pub directory: Option<PathBuf>,
    /// The variables that oneCCL reads itself and that are set; see [`CclSettings::missing_variables`].
    pub variables_set: Vec<&'static str>,
}

impl CclSettings {
    /// The settings in the environment of this process.
    pub fn of_environment() -> CclSettings {
        CclSettings::from_source(&Source::of_environment(&[SETTINGS]))
    }

    /// The settings in a source with the rows of [`SETTINGS`].
    pub fn from_source(source: &Source<'_>) -> CclSettings {
        let names = QUICK.iter().map(|(name, _)| *name).chain([PROVIDER_PATH]);
        CclSettings {
            directory: source.path("UNISONO_CCL_DIR"),
            variables_set: names.filter(|name| source.is_set(name)).collect(),
        }
    }

    /// Checks all that can be known without the library.
    ///
    /// # Errors
    /// As [`check_absolute`].
    pub fn check(&self) -> Result<()> {
        check_absolute("UNISONO_CCL_DIR", self.directory.as_deref())
    }

    /// The variables that oneCCL needs and that the environment of this process lacks: a launcher sets them, and a rank
    /// without them is slow, or cannot reach the others where libfabric's provider is one of these files.
    ///
    /// oneCCL reads its variables when it is opened, and a process must not change its environment while other threads
    /// may read it. So they must be there when the process starts.
    ///
    /// ```
    /// use unisono_offload_ccl::CclSettings;
    ///
    /// let settings = CclSettings { variables_set: vec!["CCL_YIELD"], ..CclSettings::default() };
    /// assert_eq!(settings.missing_variables(), [("CCL_WORKER_OFFLOAD", "0".into())]);
    /// ```
    pub fn missing_variables(&self) -> Vec<(&'static str, OsString)> {
        let mut wanted = variables(self.directory.as_deref());
        wanted.retain(|(name, _)| !self.variables_set.contains(name));
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(variables: &[(&str, &str)]) -> Vec<(&'static str, OsString)> {
        let lookup = |name: &str| Some(variables.iter().find(|(n, _)| *n == name)?.1.into());
        CclSettings::from_source(&Source::new(&lookup, &[SETTINGS])).missing_variables()
    }

    #[test]
    fn what_is_set_is_not_missing_and_an_empty_value_is_none() {
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
            missing(variables).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(&[directory]), ["CCL_WORKER_OFFLOAD", "CCL_YIELD"]);
        std::fs::write(folder.path().join(PROVIDER), "").unwrap();
        assert_eq!(names(&[directory]), ["CCL_WORKER_OFFLOAD", "CCL_YIELD", PROVIDER_PATH]);
        assert_eq!(missing(&[directory])[2].1, text);
        assert_eq!(names(&[directory, (PROVIDER_PATH, "/other")]), ["CCL_WORKER_OFFLOAD", "CCL_YIELD"]);
    }
}
