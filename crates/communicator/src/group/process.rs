//! The process of a rank, as errors name it.

use std::fmt;
use std::sync::Arc;

/// The process of a rank, for a person who looks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The name of its host.
    pub host: Arc<str>,
    /// The process id inside the process's own container; the host may see another.
    pub pid: u32,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} on {}", self.pid, self.host)
    }
}
