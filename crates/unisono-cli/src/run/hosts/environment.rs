//! The variables that ranks on other hosts get from the environment of the launcher: settings by the beginnings of
//! their names, and variables that the user names with `-x`.

use std::ffi::OsString;

use unisono_communicator::settings;
use unisono_job::environment::PLACES;

use crate::problem::{Problem, Result};

/// The beginnings of names that travel: settings of this library, and of libraries that ranks use.
const PREFIXES: [&str; 11] =
    ["UNISONO_", "NCCL_", "CCL_", "HCCL_", "OMP_", "MKL_", "MLFLOW", "MV2", "PYTHON", "RUST_", "UCX"];

/// Settings of one host or process, besides its place.
const OWN: [&str; 6] = [
    "UNISONO_HOST_ID",
    "UNISONO_STORE",
    "UNISONO_SECRET_FILE",
    "UNISONO_SECRET_GROUP_FILE",
    "UNISONO_SECRET_FD",
    "UNISONO_REPORT_FD",
];

fn is_own(name: &str) -> bool {
    PLACES.contains(&name) || OWN.contains(&name)
}

/// Whether a variable travels without being named.
fn travels(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !is_own(name) && name != "UNISONO_ADDRESS"
}

/// The variables that travel.
pub(crate) fn travelling() -> Vec<(OsString, OsString)> {
    let all = settings::environment().filter(|(name, _)| travels(name));
    all.map(|(name, value)| (name.into(), value.into())).collect()
}

/// The variables of `-x NAME` and `-x NAME=VALUE`.
///
/// # Errors
/// For a name that is not set here, for no name, and for a variable that each rank gets from its launcher.
pub(crate) fn named(words: &[String]) -> Result<Vec<(OsString, OsString)>> {
    let named = |word: &String| {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let refused = |problem: &str| Problem::usage(format!("-x {word}: {problem}"));
        if name.is_empty() {
            return Err(refused("the form is NAME or NAME=VALUE"));
        }
        if is_own(name) {
            return Err(refused("the launcher sets this variable"));
        }
        let here = || settings::environment().find(|(set, _)| set == name).map(|(_, value)| value);
        let value =
            value.or_else(here).ok_or_else(|| refused("it is not set here; NAME=VALUE gives a value"))?;
        Ok((name.into(), value.into()))
    };
    words.iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c10_settings_travel_but_not_the_place_of_a_process() {
        for name in ["UNISONO_LOG", "NCCL_DEBUG", "PYTHONPATH", "OMP_NUM_THREADS", "RUST_BACKTRACE"] {
            assert!(travels(name), "{name}");
        }
        for name in PLACES.iter().chain(&OWN).chain(&[
            "UNISONO_ADDRESS",
            "HOME",
            "PATH",
            "SSH_AUTH_SOCK",
            "AWS_SECRET_ACCESS_KEY",
        ]) {
            assert!(!travels(name), "{name}");
        }
    }

    #[test]
    fn c10_variables_are_named_with_or_without_a_value() {
        let given = named(&["A=b=c".to_owned(), "EMPTY=".to_owned()]).unwrap();
        assert_eq!(given, [("A".into(), "b=c".into()), ("EMPTY".into(), OsString::new())]);
        assert_eq!(named(&["PATH".to_owned()]).unwrap().len(), 1);
        for (word, expected) in [
            ("NO_SUCH_VARIABLE", "-x NO_SUCH_VARIABLE: it is not set here"),
            ("=1", "the form is"),
            ("UNISONO_STORE=x:1", "the launcher sets this variable"),
        ] {
            let text = named(&[word.to_owned()]).unwrap_err().text;
            assert!(text.contains(expected), "{text}");
        }
    }
}
