//! What can go wrong in the comparison itself. What goes wrong in a system that is measured is a finding, not one of
//! these.

use std::io;

pub(crate) type Result<T> = std::result::Result<T, Problem>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    /// Something that had to be done and what the machine said.
    #[error("{what}: {error}")]
    Failed { what: String, error: io::Error },
    /// What the user asked for cannot be honoured.
    #[error("{0}")]
    Refused(String),
    /// A file that is not what it should be.
    #[error("{file}: line {line}: {problem}")]
    Malformed { file: String, line: usize, problem: String },
    /// Ctrl-C or a request to end.
    #[error("interrupted")]
    Interrupted,
}

/// Says what was being done.
pub(crate) trait While<T> {
    fn during(self, what: impl Into<String>) -> Result<T>;
}

impl<T, E: Into<io::Error>> While<T> for std::result::Result<T, E> {
    fn during(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|error| Problem::Failed { what: what.into(), error: error.into() })
    }
}
