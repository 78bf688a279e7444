//! The name of an algorithm that a caller forces.

use unisono_schedule::{NotInterned, intern};

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
