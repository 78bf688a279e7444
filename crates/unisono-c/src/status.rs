//! The result of a function, as a number.

use unisono::{Error, ErrorCode};

/// The result of a function. 0 is success, a number above 0 the kind of an error, the same in every version
/// (docs/errors.md); unisono_last_error() has the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// A bug of the library: a panic was caught. Nothing is known about the call.
    Internal = -2,
    /// No error: the call has not ended within the time given, and goes on.
    Pending = -1,
    /// Success.
    Ok = 0,
    /// Ranks made different calls.
    Mismatch = 1,
    /// Ranks died or went silent.
    PeerLost = 2,
    /// The deadline passed.
    Timeout = 3,
    /// The work was cancelled.
    Cancelled = 4,
    /// A user function panicked.
    Panicked = 5,
    /// The communicator was closed.
    Closed = 6,
    /// A connection was refused in the handshake.
    Refused = 7,
    /// The operating system refused something.
    System = 8,
    /// The other ranks took this one for dead.
    Evicted = 9,
    /// Bytes were changed on their way.
    Corrupted = 10,
    /// A rank revoked the communicator; `root_status` of the error is the cause.
    Revoked = 11,
    /// An argument is not valid. Nothing was sent.
    InvalidArgument = 12,
    /// The backend cannot do this call. Nothing was sent.
    Unsupported = 13,
    /// Two threads issued calls at once. Nothing was sent.
    ConcurrentUse = 14,
    /// Too many silent ranks may go on without this one.
    NoQuorum = 15,
    /// A receive was too small for its message, which is gone.
    Truncated = 16,
    /// Not all ranks of the job arrived.
    Rendezvous = 17,
    /// A setting that cannot be used.
    Configuration = 18,
    /// A communicator of the parent process was used in a forked child.
    Forked = 19,
    /// A rank aborted the communicator.
    Aborted = 20,
    /// An algorithm does not fit the call.
    AlgorithmRefused = 21,
    /// A NaN, an infinity or too large a number in a compressed call.
    NonFinite = 22,
    /// A vendor's library is not there.
    LibraryMissing = 23,
    /// A function of a vendor's library failed.
    Vendor = 24,
    /// The deadline of a call of the key-value store passed.
    StoreTimeout = 25,
    /// The key-value store has no room.
    StoreFull = 26,
}

impl Status {
    /// The kind of an error. A kind that this version of the ABI does not know is an error of the system.
    pub(crate) fn of(error: &Error) -> Status {
        match error.code() {
            ErrorCode::Mismatch => Status::Mismatch,
            ErrorCode::PeerLost => Status::PeerLost,
            ErrorCode::Timeout => Status::Timeout,
            ErrorCode::Cancelled => Status::Cancelled,
            ErrorCode::Panicked => Status::Panicked,
            ErrorCode::Closed => Status::Closed,
            ErrorCode::Refused => Status::Refused,
            ErrorCode::Evicted => Status::Evicted,
            ErrorCode::Corrupted => Status::Corrupted,
            ErrorCode::Revoked => Status::Revoked,
            ErrorCode::InvalidArgument => Status::InvalidArgument,
            ErrorCode::Unsupported => Status::Unsupported,
            ErrorCode::ConcurrentUse => Status::ConcurrentUse,
            ErrorCode::NoQuorum => Status::NoQuorum,
            ErrorCode::Truncated => Status::Truncated,
            ErrorCode::Rendezvous => Status::Rendezvous,
            ErrorCode::Configuration => Status::Configuration,
            ErrorCode::Forked => Status::Forked,
            ErrorCode::Aborted => Status::Aborted,
            ErrorCode::AlgorithmRefused => Status::AlgorithmRefused,
            ErrorCode::NonFinite => Status::NonFinite,
            ErrorCode::LibraryMissing => Status::LibraryMissing,
            ErrorCode::Vendor => Status::Vendor,
            ErrorCode::StoreTimeout => Status::StoreTimeout,
            ErrorCode::StoreFull => Status::StoreFull,
            ErrorCode::System | _ => Status::System,
        }
    }
}
