//! What can go wrong: every variant says what was expected, what came and who.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::descriptor::Descriptor;
use crate::group::Process;
use crate::sizes::Sizes;

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The place in the caller's program that issued a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Source file.
    pub file: Cow<'static, str>,
    /// Line, from 1.
    pub line: u32,
}

impl From<&'static std::panic::Location<'static>> for Site {
    fn from(location: &'static std::panic::Location<'static>) -> Site {
        Site { file: Cow::Borrowed(location.file()), line: location.line() }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// One call of one rank, as errors name it.
#[derive(Clone, Debug, PartialEq)]
pub struct CallInfo {
    /// The how-manieth collective of its communicator, from 0.
    pub number: u64,
    /// What was called.
    pub descriptor: Descriptor,
    /// The algorithm it ran, if one was chosen already.
    pub algorithm: Option<Cow<'static, str>>,
    /// From where; `None` when only a header of the call has been seen.
    pub site: Option<Site>,
    /// The lengths that the descriptor leaves out; `None` when there are none, or they are not known.
    pub sizes: Option<Arc<Sizes>>,
}

impl fmt::Display for CallInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {} {}", self.number, self.descriptor)?;
        if let Some(algorithm) = &self.algorithm {
            write!(f, " by {algorithm}")?;
        }
        match &self.site {
            Some(site) => write!(f, " at {site}"),
            None => Ok(()),
        }
    }
}

/// How sure a failure report is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// The connection was closed or reset by the peer's host.
    Confirmed,
    /// The peer has been silent for longer than the detector allows.
    Suspected,
}

/// One rank that is gone.
#[derive(Clone, Debug, PartialEq)]
pub struct Culprit {
    /// The rank of the job.
    pub rank: u32,
    /// Where it ran, if that is known: ranks that are threads of one process have none.
    pub process: Option<Process>,
    /// The last collective of the failed communicator in which something of it has come to the rank that reports
    /// this, if anything has. Others may have heard more.
    pub last_call: Option<Box<CallInfo>>,
}

impl fmt::Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)?;
        match (&self.process, &self.last_call) {
            (Some(process), Some(call)) => write!(f, " ({process}, last heard of in {call})"),
            (Some(process), None) => write!(f, " ({process})"),
            (None, Some(call)) => write!(f, " (last heard of in {call})"),
            (None, None) => Ok(()),
        }
    }
}

/// One rank that a call still waits for when its deadline passes, itself or through others that wait for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Awaited {
    /// The rank.
    pub rank: u32,
    /// What is known of it: "has not called", "is in call 7 all_reduce(...) at x.rs:3 and waits for rank 2", ...
    pub status: String,
}

/// Any failure of a communicator. Ranks are group ranks, except where it says "of the job".
///
/// An error of argument or support ([`Error::is_before_start`]) is found before anything is sent and leaves the
/// communicator usable. After any other error the communicator is revoked on every rank, inputs are intact, outputs
/// and in-place buffers are indeterminate.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument that cannot be obeyed; nothing was sent.
    #[error("invalid {argument}: {problem}")]
    InvalidArgument {
        /// The argument's name.
        argument: &'static str,
        /// What is wrong with it, with the value and what is allowed.
        problem: String,
    },
    /// A call this backend cannot do; nothing was sent.
    #[error("{backend} does not support {what}{}", instead_text(instead.as_deref()))]
    Unsupported {
        /// What was asked for.
        what: String,
        /// Who was asked.
        backend: &'static str,
        /// What to do instead, if there is something.
        instead: Option<String>,
    },
    /// Two threads issued calls on one communicator at once; nothing was sent.
    #[error(
        "{call} was issued while another thread was inside a call on the same communicator; \
         duplicate() gives each thread its own"
    )]
    ConcurrentUse {
        /// The call that was refused.
        call: String,
    },
    /// The ranks called different things.
    #[error("mismatch with rank {rank}: ours is {ours}; theirs is {theirs} ({difference})")]
    Mismatch {
        /// Our call.
        ours: Box<CallInfo>,
        /// Their call.
        theirs: Box<CallInfo>,
        /// Who they are.
        rank: u32,
        /// The fields that differ.
        difference: String,
    },
    /// Ranks died or went silent.
    #[error(
        "lost {}, noticed by rank {noticed_by} ({certainty:?}: {reason}){}",
        culprits_text(culprits),
        call_text(call.as_deref())
    )]
    PeerLost {
        /// Who is gone; the same ranks on every survivor of one failure.
        culprits: Vec<Culprit>,
        /// The call in which it was noticed.
        call: Option<Box<CallInfo>>,
        /// Who noticed first, as a rank of the job.
        noticed_by: u32,
        /// Closed, or merely silent.
        certainty: Certainty,
        /// How it was noticed.
        reason: String,
    },
    /// Bytes were changed between two ranks that both live, as their checksum shows; none of them was returned as data.
    #[error("bytes from rank {from} to rank {to} were changed on their way: {reason}{}", call_text(call.as_deref()))]
    Corrupted {
        /// Who sent them, as a rank of the job.
        from: u32,
        /// Who noticed, as a rank of the job.
        to: u32,
        /// The call that they belong to, if it is a collective.
        call: Option<Box<CallInfo>>,
        /// What does not match.
        reason: String,
    },
    /// The others have taken this rank for dead and go on without it: it was stopped, or cut off, for too long. All
    /// it can do is start anew.
    #[error("this rank was taken for dead by rank {noticed_by} ({reason}), and the others go on without it")]
    Evicted {
        /// Who noticed first, as a rank of the job.
        noticed_by: u32,
        /// How it was noticed.
        reason: String,
    },
    /// The ranks that are silent are so many that it may be they who go on, on the other side of a cut.
    #[error(
        "no quorum: {} may go on without this rank, which is left with {}",
        ranks_text(silent),
        ranks_text(survivors)
    )]
    NoQuorum {
        /// The ranks on this side, as ranks of the job.
        survivors: Vec<u32>,
        /// The silent ranks, as ranks of the job.
        silent: Vec<u32>,
    },
    /// The deadline passed.
    #[error("{call} timed out after {waited:?}; still awaited: {}", awaited_text(not_arrived))]
    Timeout {
        /// The call.
        call: Box<CallInfo>,
        /// How long it ran.
        waited: Duration,
        /// Whom it still waited for, and whom those wait for in turn.
        not_arrived: Vec<Awaited>,
    },
    /// Another rank, or an earlier call, failed first; this is that first cause.
    #[error("revoked by rank {by}: {cause}")]
    Revoked {
        /// The rank that reported the cause.
        by: u32,
        /// The first cause.
        cause: Arc<Error>,
    },
    /// A receive was too small for the message that matched it; the message is dropped, nothing else is affected.
    #[error(
        "message of {sent_bytes} bytes from rank {source_rank}, tag {tag}, does not fit into {room_bytes} bytes"
    )]
    Truncated {
        /// The sender.
        source_rank: u32,
        /// The tag.
        tag: u32,
        /// Size of the message.
        sent_bytes: u64,
        /// Size of the receive.
        room_bytes: u64,
    },
    /// The job did not come together.
    #[error("rendezvous failed: {problem}{}", missing_text(missing))]
    Rendezvous {
        /// The ranks that never came.
        missing: Vec<u32>,
        /// What happened.
        problem: String,
    },
    /// A connection was refused, by us or by the other side.
    #[error("connection refused in the handshake: {problem}")]
    Refused {
        /// Why: wrong secret, world size, rank, job, epoch, ...
        problem: String,
    },
    /// An environment variable or setting that cannot be used.
    #[error("{name}={value}: {problem}")]
    Configuration {
        /// The setting.
        name: String,
        /// Its value.
        value: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The communicator was closed.
    #[error("the communicator is closed")]
    Closed,
    /// The work was cancelled.
    #[error("rank {by} cancelled {call}")]
    Cancelled {
        /// Who cancelled.
        by: u32,
        /// What was cancelled.
        call: Box<CallInfo>,
    },
    /// A user function panicked.
    #[error("a user function panicked on rank {rank} in {call}: {text}")]
    Panicked {
        /// On which rank.
        rank: u32,
        /// In which call.
        call: Box<CallInfo>,
        /// The panic's text.
        text: String,
    },
    /// A communicator of the parent process was used in a forked child.
    #[error("the process has forked: pid {pid} uses a communicator of pid {owner}")]
    Forked {
        /// The process that created the communicator.
        owner: u32,
        /// This process.
        pid: u32,
    },
    /// The operating system refused something.
    #[error("{what}: {text}")]
    System {
        /// What was attempted.
        what: String,
        /// What the system said.
        text: String,
    },
}

impl Error {
    /// An [`Error::InvalidArgument`].
    pub fn invalid(argument: &'static str, problem: impl Into<String>) -> Error {
        Error::InvalidArgument { argument, problem: problem.into() }
    }

    /// An [`Error::System`] from an I/O error.
    pub fn system(what: impl Into<String>, error: &std::io::Error) -> Error {
        Error::System { what: what.into(), text: error.to_string() }
    }

    /// Whether the communicator is as usable as before: nothing was sent, or only the one message that a receive
    /// could not take is gone.
    pub fn is_before_start(&self) -> bool {
        matches!(
            self,
            Error::InvalidArgument { .. }
                | Error::Unsupported { .. }
                | Error::ConcurrentUse { .. }
                | Error::Truncated { .. }
        )
    }

    /// The ranks of the job that are gone, if the first cause is such a loss; else none.
    pub fn lost_ranks(&self) -> Vec<u32> {
        match self.root_cause() {
            Error::PeerLost { culprits, .. } => culprits.iter().map(|culprit| culprit.rank).collect(),
            _ => Vec::new(),
        }
    }

    /// The first cause: of a revocation its cause, of anything else itself.
    pub fn root_cause(&self) -> &Error {
        match self {
            Error::Revoked { cause, .. } => cause.root_cause(),
            other => other,
        }
    }
}

fn ranks_text(ranks: &[u32]) -> String {
    let list: Vec<_> = ranks.iter().map(u32::to_string).collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, list.join(", "))
}

fn culprits_text(culprits: &[Culprit]) -> String {
    let list: Vec<_> = culprits.iter().map(Culprit::to_string).collect();
    list.join(", ")
}

fn missing_text(missing: &[u32]) -> String {
    if missing.is_empty() { String::new() } else { format!("; missing: {}", ranks_text(missing)) }
}

fn instead_text(instead: Option<&str>) -> String {
    instead.map(|instead| format!("; instead: {instead}")).unwrap_or_default()
}

fn call_text(call: Option<&CallInfo>) -> String {
    call.map(|call| format!(" in {call}")).unwrap_or_default()
}

fn awaited_text(awaited: &[Awaited]) -> String {
    let list: Vec<_> = awaited.iter().map(|one| format!("rank {} {}", one.rank, one.status)).collect();
    list.join("; ")
}
