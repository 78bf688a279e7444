//! The name of a call that was enqueued on a device's stream.

use std::fmt;

/// What [`crate::Communicator::execute`] gives for a call that it has enqueued on a stream. The communicator resolves
/// it to the call's end or to its late error ([`crate::Communicator::resolve`]), any number of times, on any thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    issuer: u64,
    number: u64,
}

impl Ticket {
    /// The ticket of that number; `issuer` tells the communicators of a process apart. For backends.
    pub const fn new(issuer: u64, number: u64) -> Ticket {
        Ticket { issuer, number }
    }

    /// Which communicator of this process has issued it.
    pub const fn issuer(self) -> u64 {
        self.issuer
    }

    /// Its number among those of its issuer.
    pub const fn number(self) -> u64 {
        self.number
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ticket {} of issuer {}", self.number, self.issuer)
    }
}
