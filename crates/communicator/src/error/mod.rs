//! The errors of a communicator. Each names the expected and the actual event, and the rank from which it came.

pub(crate) mod code;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use unisono_schedule::Refused;

use crate::call::info::CallInfo;
use crate::call::parent::ParentCall;
use crate::group::process::Process;
use crate::group::rank::{GroupRank, JobRank};

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The certainty of a failure report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// The peer's process has ended, or its host has closed or reset the connection.
    Confirmed,
    /// The peer has been silent for longer than the detector allows.
    Suspected,
}

/// One rank that is gone.
#[derive(Clone, Debug, PartialEq)]
pub struct Culprit {
    /// The rank.
    pub rank: JobRank,
    /// Its process, if that is known. Ranks that are threads of one process have none.
    pub process: Option<Process>,
    /// The last collective of the failed communicator in which the reporting rank received something from the lost
    /// rank; `None` if it received nothing. Other ranks may have received more.
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

/// One rank that a call still waits for at its deadline: directly, or through another awaited rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Awaited {
    /// The rank.
    pub rank: JobRank,
    /// Its known state: "has not called", "is in call 7 all_reduce(...) at x.rs:3 and waits for rank 2", ...
    pub status: String,
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} {}", self.rank, self.status)
    }
}

/// Any failure of a communicator. Ranks in errors are ranks of the job, also for a subgroup, because a log belongs to a
/// job. Only three are ranks of the group, as the caller gave them: root, peer, and the source of a message.
///
/// One failure is the same error on all ranks: the same kind, culprits, and calls of a mismatch. A rank that learns of
/// a failure from another rank returns that rank's error. When several ranks notice a failure at once, `reported_by`,
/// the evidence and the noticing call may differ. `Debug` prints the text of `Display`, because `main() ->
/// unisono::Result<()>` shows `Debug`.
///
/// If [`Error::is_before_start`] is true, the communicator stays usable. After any other error it is revoked on every
/// rank: inputs are intact, outputs and in-place buffers are indeterminate.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument is not valid; nothing was sent.
    #[error("invalid {argument}: {problem}{}", after(", in ", call))]
    InvalidArgument {
        /// The argument's name.
        argument: &'static str,
        /// The fault, with the given value and the allowed values.
        problem: String,
        /// The call and its line, such as `all_reduce(8 x f32, sum) at src/main.rs:7`; `None` outside a call.
        call: Option<String>,
    },
    /// An algorithm from outside is refused: it is wrong, differs between ranks, or does not fit the call. The
    /// communicator is as it was.
    #[error("algorithm refused: {reason}")]
    AlgorithmRefused {
        /// Its qualified name, such as `all_reduce/ring`.
        algorithm: String,
        /// Why, with the counterexample if there is one.
        reason: String,
    },
    /// The backend cannot do the call; nothing was sent.
    #[error("{backend} does not support {what}{}", after("; instead: ", instead))]
    Unsupported {
        /// The unsupported request.
        what: String,
        /// The backend.
        backend: &'static str,
        /// An alternative, if there is one.
        instead: Option<String>,
    },
    /// Two threads issued calls on one communicator at once; nothing was sent.
    #[error(
        "{call} was issued while another thread was inside a call or a scope on the same communicator; \
         duplicate() gives each thread its own"
    )]
    ConcurrentUse {
        /// The call that was refused, and its line.
        call: String,
    },
    /// Ranks made different calls.
    #[error(
        "mismatch: rank {} called {}; rank {} called {} ({difference})",
        calls[0].0, calls[0].1, calls[1].0, calls[1].1
    )]
    Mismatch {
        /// Two ranks and their calls. The first rank reports the mismatch.
        calls: Box<[(JobRank, CallInfo); 2]>,
        /// The fields that differ, in the order of the calls.
        difference: String,
    },
    /// Ranks died or went silent.
    #[error(
        "lost {}, reported by rank {reported_by} ({certainty:?}: {evidence}){}",
        joined(culprits, ", "),
        after(" in ", call)
    )]
    PeerLost {
        /// The ranks that are gone; after one failure the same on every survivor.
        culprits: Vec<Culprit>,
        /// The call that noticed the loss.
        call: Option<Box<CallInfo>>,
        /// The rank that noticed first.
        reported_by: JobRank,
        /// Whether the connection ended, or the rank is only silent.
        certainty: Certainty,
        /// The evidence of the loss.
        evidence: String,
    },
    /// Bytes changed between two ranks that both live, as their checksum shows. No changed byte was returned as data.
    #[error("bytes from rank {from} to rank {to} were changed on their way: {reason}{}", after(" in ", call))]
    Corrupted {
        /// The sending rank.
        from: JobRank,
        /// The rank that noticed.
        to: JobRank,
        /// The call of the bytes, if it is a collective.
        call: Option<Box<CallInfo>>,
        /// The check that failed.
        reason: String,
    },
    /// The other ranks have taken this rank for dead, because it was stopped or cut off for too long. They go on
    /// without it, and it cannot come back: only a new process can join a new job.
    #[error(
        "this rank was taken for dead by rank {reported_by} ({evidence}), and the others go on without it"
    )]
    Evicted {
        /// The rank that noticed first.
        reported_by: JobRank,
        /// The evidence for its death.
        evidence: String,
    },
    /// Too many ranks of other hosts seem lost, and no rank on those hosts confirms the loss. They may go on without
    /// this rank, on the other side of a network partition.
    #[error(
        "no quorum: {} may go on without this rank, which is left with {}",
        ranks_text(silent),
        ranks_text(survivors)
    )]
    NoQuorum {
        /// The ranks on this side.
        survivors: Vec<JobRank>,
        /// The lost ranks that may live.
        silent: Vec<JobRank>,
    },
    /// The deadline passed.
    #[error(
        "{call} timed out on rank {reported_by} after {waited:.1?}; still awaited: {}",
        joined(not_arrived, "; ")
    )]
    Timeout {
        /// The call.
        call: Box<CallInfo>,
        /// The rank whose deadline it was.
        reported_by: JobRank,
        /// The time that the call had run.
        waited: Duration,
        /// The awaited ranks, and the ranks for which these wait in turn. Ranks that wait for no rank come first, since
        /// they hold up the others.
        not_arrived: Vec<Awaited>,
    },
    /// A rank has revoked the communicator, by [`crate::Communicator::revoke`] or by cancelling its work.
    #[error("revoked by rank {by}: {cause}")]
    Revoked {
        /// The rank that revoked it.
        by: JobRank,
        /// The cause that it gave.
        cause: Arc<Error>,
    },
    /// A rank has aborted the communicator by [`crate::Communicator::abort`].
    #[error("rank {by} aborted the communicator")]
    Aborted {
        /// The rank that aborted it.
        by: JobRank,
    },
    /// A receive was too small for its message. The message is dropped; nothing else is affected.
    #[error(
        "message of {sent_bytes} bytes from rank {source_rank}, tag {tag}, does not fit into {room_bytes} bytes"
    )]
    Truncated {
        /// The sender, as a rank of the group.
        source_rank: GroupRank,
        /// The tag.
        tag: u32,
        /// Size of the message.
        sent_bytes: u64,
        /// Size of the receive.
        room_bytes: u64,
    },
    /// Not all ranks of the job arrived, or they could not join.
    #[error("rendezvous failed: {problem}{}", missing_text(missing))]
    Rendezvous {
        /// The ranks that did not arrive.
        missing: Vec<JobRank>,
        /// The reason.
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
        /// The fault of the value.
        problem: String,
    },
    /// The communicator was closed.
    #[error("the communicator is closed{}", after(", in ", call))]
    Closed {
        /// The call that came after the close, and its line; `None` for calls in progress.
        call: Option<String>,
    },
    /// A rank cancelled its work. All ranks get this error as the cause of an [`Error::Revoked`].
    #[error("rank {by} cancelled {call}")]
    Cancelled {
        /// The rank that cancelled.
        by: JobRank,
        /// The cancelled work.
        call: Box<CallInfo>,
    },
    /// A buffer of a compressed call, or the sum of all buffers, has a NaN, an infinity, or a number that is too large
    /// for the codec. Such a value would stay in the residuals for ever, so the call is refused: no residual and no
    /// buffer of any rank has changed. One exception: in an exact call (a warm-up, or a state that has declined to
    /// compress) the buffer holds the sum.
    #[error(
        "a NaN, an infinity or too large a number on rank {rank}, in block {block} (from element {} on), in {call}; no \
         rank's residual has changed",
        block.saturating_mul(*block_elements)
    )]
    NonFinite {
        /// The rank whose buffer, or whose sum, has the value.
        rank: JobRank,
        /// The first block with such a value, counted from 0.
        block: u64,
        /// Elements of a block; the last one may be shorter.
        block_elements: u64,
        /// The call.
        call: Box<CallInfo>,
    },
    /// A user function panicked.
    #[error("a user function panicked on rank {rank} in {call}: {text}")]
    Panicked {
        /// On which rank.
        rank: JobRank,
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
        /// The action that failed.
        what: String,
        /// The system's message.
        text: String,
    },
    /// A vendor's library, or a function in it, is not there; nothing was sent.
    #[error("{library} cannot be used: {}; {remedy}", tried.join("; "))]
    LibraryMissing {
        /// The library's name, such as `CUDA driver`.
        library: Box<str>,
        /// Each file that was tried, and its fault, in the order of the attempts.
        tried: Vec<String>,
        /// The remedy: an action of the user.
        remedy: Box<str>,
    },
    /// A function of a vendor's library failed.
    #[error("{call} of {library} failed with {code} ({text}); {remedy}")]
    Vendor {
        /// The library's name and file.
        library: Box<str>,
        /// The function.
        call: Box<str>,
        /// The error code that it returned.
        code: i32,
        /// The library's text for this code.
        text: Box<str>,
        /// The remedy: an action of the user.
        remedy: Box<str>,
    },
    /// The deadline of a call of the key-value store passed. No communicator is revoked. A call that changes the store
    /// may have its effect all the same.
    #[error("{call} timed out after {waited:.1?}: {problem}")]
    StoreTimeout {
        /// The call, such as `store.get("epoch")`.
        call: Box<str>,
        /// The key, with the prefix of the handle.
        key: Box<str>,
        /// The time that the call had run.
        waited: Duration,
        /// The awaited event, and the rank that holds the store.
        problem: Box<str>,
    },
    /// The key-value store, or the list of this rank's calls of it, has no room; nothing has changed.
    #[error("{call} was refused: {problem}")]
    StoreFull {
        /// The call, such as `store.set("epoch")`.
        call: Box<str>,
        /// The limit, and who has it.
        problem: Box<str>,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// An [`Error::InvalidArgument`].
    pub fn invalid(argument: &'static str, problem: impl Into<String>) -> Error {
        Error::InvalidArgument { argument, problem: problem.into(), call: None }
    }

    /// An [`Error::Closed`] of no call.
    pub fn closed() -> Error {
        Error::Closed { call: None }
    }

    /// This error with the text of `call`, if its kind names a call and it names none yet.
    #[must_use]
    pub fn in_call(mut self, call: &dyn fmt::Display) -> Error {
        if let Error::InvalidArgument { call: named, .. } | Error::Closed { call: named } = &mut self {
            named.get_or_insert_with(|| call.to_string());
        }
        self
    }

    /// The [`Error::InvalidArgument`] of a call past the scope of `parent`, which the calling thread has open.
    pub fn past_scope(parent: &ParentCall) -> Error {
        let problem = format!(
            "this thread has the scope of {} open, and a call outside it would wait for itself; issue the call on the \
             scope, or end the scope first (Scope::hand_over if another thread ends it)",
            parent.with_site()
        );
        Error::invalid("scope", problem)
    }

    /// The [`Error::Unsupported`] of a backend for host memory.
    pub fn no_device(backend: &'static str) -> Error {
        let instead = Some("a vendor's backend, or copy to the host".to_owned());
        Error::Unsupported { what: "device memory and streams".to_owned(), backend, instead }
    }

    /// An [`Error::AlgorithmRefused`].
    pub fn refused(refused: Refused) -> Error {
        let reason = refused.to_string();
        Error::AlgorithmRefused { algorithm: refused.algorithm, reason }
    }

    /// An [`Error::System`] from an I/O error.
    pub fn system(what: impl Into<String>, error: &std::io::Error) -> Error {
        Error::System { what: what.into(), text: error.to_string() }
    }

    /// Whether the communicator is as usable as before the call. Nothing was sent; or only a message that was too long
    /// is lost; or all ranks have agreed that nothing changes ([`Error::NonFinite`]); or the call was one of the
    /// key-value store.
    pub fn is_before_start(&self) -> bool {
        matches!(
            self,
            Error::InvalidArgument { .. }
                | Error::AlgorithmRefused { .. }
                | Error::Unsupported { .. }
                | Error::ConcurrentUse { .. }
                | Error::Truncated { .. }
                | Error::NonFinite { .. }
                | Error::LibraryMissing { .. }
                | Error::StoreTimeout { .. }
                | Error::StoreFull { .. }
        )
    }

    /// The lost ranks if the root cause is [`Error::PeerLost`]; else none.
    pub fn lost_ranks(&self) -> Vec<JobRank> {
        match self.root_cause() {
            Error::PeerLost { culprits, .. } => culprits.iter().map(|culprit| culprit.rank).collect(),
            _ => Vec::new(),
        }
    }

    /// The lowest awaited rank if the root cause is an [`Error::Timeout`].
    pub fn first_missing(&self) -> Option<JobRank> {
        match self.root_cause() {
            Error::Timeout { not_arrived, .. } => not_arrived.iter().map(|awaited| awaited.rank).min(),
            _ => None,
        }
    }

    /// The innermost cause: [`Error::Revoked`] carries the error that caused it; any other error is its own cause.
    pub fn root_cause(&self) -> &Error {
        match self {
            Error::Revoked { cause, .. } => cause.root_cause(),
            other => other,
        }
    }
}

fn joined<T: fmt::Display>(list: &[T], separator: &str) -> String {
    list.iter().map(T::to_string).collect::<Vec<_>>().join(separator)
}

fn ranks_text(ranks: &[JobRank]) -> String {
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, joined(ranks, ", "))
}

/// `before` and the text, or nothing.
fn after(before: &str, text: &Option<impl fmt::Display>) -> String {
    text.as_ref().map(|text| format!("{before}{text}")).unwrap_or_default()
}

fn missing_text(missing: &[JobRank]) -> String {
    if missing.is_empty() { String::new() } else { format!("; missing: {}", ranks_text(missing)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_libraries_say_what_was_tried_and_what_to_do() {
        let missing = Error::LibraryMissing {
            library: "CUDA driver".into(),
            tried: vec!["libcuda.so.1: no file".to_owned(), "libcuda.so: no cuInit".to_owned()],
            remedy: "install the driver".into(),
        };
        let expected =
            "CUDA driver cannot be used: libcuda.so.1: no file; libcuda.so: no cuInit; install the driver";
        assert_eq!(missing.to_string(), expected);
        assert!(missing.is_before_start());
        let failed = Error::Vendor {
            library: "libcuda.so.1".into(),
            call: "cuMemAlloc_v2".into(),
            code: 2,
            text: "out of memory".into(),
            remedy: "free memory".into(),
        };
        let expected = "cuMemAlloc_v2 of libcuda.so.1 failed with 2 (out of memory); free memory";
        assert_eq!(failed.to_string(), expected);
        assert!(!failed.is_before_start());
    }
}
