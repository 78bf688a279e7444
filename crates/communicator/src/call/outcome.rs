//! The outcome of a call that has ended, and the ticket of a call that was enqueued on a device's stream.

use std::fmt;

/// Names a call that [`crate::Executor::execute`] has enqueued on a stream. [`crate::Communicator::resolve`] waits
/// for the call's end, and gives its late error; any thread may ask, any number of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    issuer: u64,
    number: u64,
}

impl Ticket {
    /// The ticket of that number. `issuer` tells the communicators of a process apart. For backends.
    pub const fn new(issuer: u64, number: u64) -> Ticket {
        Ticket { issuer, number }
    }

    /// The number of the communicator that issued it, within this process.
    pub const fn issuer(self) -> u64 {
        self.issuer
    }

    /// The number of the ticket at its issuer.
    pub const fn number(self) -> u64 {
        self.number
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ticket {} of issuer {}", self.number, self.issuer)
    }
}

/// The state of a call at its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The result is in the buffer.
    Done,
    /// The operation is switched off; the buffers are untouched.
    Skipped,
    /// The call is enqueued on the device's stream: work behind it on the stream finds the result in the buffer. The
    /// ticket tells the call's end, and a late error.
    StreamOrdered(Ticket),
}

/// The outcome of a call that has ended, or that was enqueued on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The state of the call.
    pub completion: Completion,
    /// The rank that sent the message (receives).
    pub source: Option<u32>,
    /// The message's tag (receives).
    pub tag: u32,
    /// Bytes received (receives) or bytes of this rank's buffer (collectives).
    pub bytes: u64,
    /// The algorithm that ran.
    pub algorithm: &'static str,
}

impl Outcome {
    /// The outcome of a call that was enqueued on a stream.
    pub const fn enqueued(ticket: Ticket, bytes: u64, algorithm: &'static str) -> Outcome {
        Outcome { completion: Completion::StreamOrdered(ticket), ..Outcome::done(bytes, algorithm) }
    }

    /// The ticket of an enqueued call; `None` when the call has ended.
    pub const fn ticket(&self) -> Option<Ticket> {
        match self.completion {
            Completion::StreamOrdered(ticket) => Some(ticket),
            Completion::Done | Completion::Skipped => None,
        }
    }

    /// The outcome of a call of an operation that is switched off, of this message's source.
    pub const fn skipped(source: Option<u32>, tag: u32) -> Outcome {
        Outcome { completion: Completion::Skipped, source, tag, bytes: 0, algorithm: "skipped" }
    }

    /// The outcome of a call that has moved `bytes` by `algorithm`.
    pub const fn done(bytes: u64, algorithm: &'static str) -> Outcome {
        Outcome { completion: Completion::Done, source: None, tag: 0, bytes, algorithm }
    }
}
