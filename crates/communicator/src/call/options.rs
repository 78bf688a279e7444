//! The names of algorithms: of the one that a caller forces, and of the one that a call runs.

use std::borrow::Cow;
use std::fmt;

use unisono_schedule::{INTERNED_BYTES_MAX, NotInterned, intern};

use crate::error::{Error, Result};

/// The name of an algorithm that a caller forces. It is copied with every call; its text is kept as long as the process
/// lives.
///
/// One that cannot be kept can be made, so that options need no `unwrap`; a call with it is refused
/// ([`Error::InvalidArgument`]).
///
/// ```
/// use unisono_communicator::AlgorithmName;
/// assert_eq!(AlgorithmName::new("ring").text()?, "ring");
/// assert!(AlgorithmName::new(&"x".repeat(257)).text().is_err());
/// # Ok::<(), unisono_communicator::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlgorithmName(std::result::Result<&'static str, NotInterned>);

impl AlgorithmName {
    /// The name. Cost: a lock and a search, once for the options and not for each call.
    pub fn new(name: &str) -> AlgorithmName {
        AlgorithmName(intern(name))
    }

    /// Its text.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a name of more than [`unisono_schedule::INTERNED_BYTES_MAX`] bytes, and when the
    /// process keeps [`unisono_schedule::INTERNED_MAX`] names already.
    pub fn text(self) -> Result<&'static str> {
        self.0.map_err(|problem| Error::invalid("algorithm", problem.to_string()))
    }
}

/// The algorithm that a call runs, as ranks compare it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallAlgorithm {
    /// Its name.
    pub name: Cow<'static, str>,
    /// A hash of its schedules, for one that does not come with the library; 0 for the others, whose name says as much.
    pub schedules: u32,
}

impl CallAlgorithm {
    /// The most bytes of a name.
    pub const NAME_BYTES_MAX: usize = INTERNED_BYTES_MAX;
}

impl From<&'static str> for CallAlgorithm {
    fn from(name: &'static str) -> CallAlgorithm {
        CallAlgorithm { name: Cow::Borrowed(name), schedules: 0 }
    }
}

impl fmt::Display for CallAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
