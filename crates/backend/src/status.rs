//! A rank's answers to questions about a call, and its report when it closes or leaves.

use std::fmt;

use unisono_communicator::{CallInfo, GroupRank, JobRank};

/// The answer of a rank about its call of one number.
#[derive(Clone, Debug, PartialEq)]
pub enum CallStatus {
    /// The rank has not entered the call.
    NotYet {
        /// The last call that the rank has entered, if any.
        last: Option<CallInfo>,
        /// The activity of the rank instead.
        doing: Box<Doing>,
    },
    /// The rank is in the call.
    Running {
        /// The call.
        call: CallInfo,
        /// The activity of the rank, in the call and besides.
        doing: Box<Doing>,
        /// The call of another communicator for which the call waits on its stream or device, if any.
        ahead: Option<Box<CallAhead>>,
    },
    /// The call has returned on the rank.
    Done {
        /// The call.
        call: CallInfo,
        /// The activity of the rank since then.
        doing: Box<Doing>,
    },
    /// The rank has made so many later calls that its ring has forgotten this one.
    Forgotten,
}

/// One communicator in one epoch, the same on all its ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommunicatorKey {
    /// Its id: 0 for the world.
    pub id: u64,
    /// Its epoch.
    pub epoch: u32,
}

impl fmt::Display for CommunicatorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            CommunicatorKey { id: 0, epoch: 0 } => f.write_str("world"),
            CommunicatorKey { id, epoch } => write!(f, "{id:016x}-{epoch}"),
        }
    }
}

/// The call of another communicator for which a call waits: the first unfinished call on its stream, or the call that
/// uses its device.
#[derive(Clone, Debug, PartialEq)]
pub struct CallAhead {
    /// The other communicator, for a call on the stream; `None` for the call that uses the device.
    pub communicator: Option<CommunicatorKey>,
    /// The call.
    pub call: CallInfo,
}

/// The call of another communicator in which a thread of a rank waits.
#[derive(Clone, Debug, PartialEq)]
pub struct CallElsewhere {
    /// The other communicator.
    pub communicator: CommunicatorKey,
    /// The list of its ranks, as a person reads it.
    pub ranks: String,
    /// The call.
    pub call: CallInfo,
    /// The rank that it waits for, as far as the answering rank knows.
    pub awaited: Option<JobRank>,
    /// The collective about which that rank can be asked.
    pub number: u64,
}

impl CallElsewhere {
    /// About that rank.
    pub(crate) fn asked(&self) -> Option<Asked> {
        let CallElsewhere { communicator, number, .. } = *self;
        Some(Asked { rank: self.awaited?, communicator, number, is_message: is_message(&self.call) })
    }
}

/// Whether a call is a send or a receive.
pub(crate) fn is_message(call: &CallInfo) -> bool {
    call.descriptor.operation.collective().is_none()
}

/// A rank, and the collective of a communicator about which it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The rank.
    pub rank: JobRank,
    /// The communicator.
    pub communicator: CommunicatorKey,
    /// The number of the collective.
    pub number: u64,
    /// Whether a message is awaited of the rank, and not its part in that collective.
    pub is_message: bool,
}

/// The rank and the message that a rank waits for, and its unread messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Doing {
    /// The rank that this rank waits for in this communicator, in a collective or a message.
    pub awaited: Option<JobRank>,
    /// The send or receive in which a thread of this rank waits.
    pub message: Option<Box<CallInfo>>,
    /// Arrived messages without a receive: at most [`Doing::UNREAD_MAX`] pairs of sender and tag.
    pub unread: Vec<UnreadMessages>,
    /// The call of another communicator in which a thread of this rank waits, if none waits in this one.
    pub elsewhere: Option<Box<CallElsewhere>>,
}

impl Doing {
    /// The most pairs of sender and tag that a rank reports.
    pub const UNREAD_MAX: usize = 4;
}

/// Messages of one sender and tag without a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadMessages {
    /// The sender.
    pub from: GroupRank,
    /// The tag.
    pub tag: u32,
    /// The number of these messages among the oldest thousand without a receive.
    pub messages: u64,
}

/// The report of a rank that closes. Ranks that have made the same calls give equal reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallHistory {
    /// The number of collectives that the rank has entered.
    pub calls: u64,
    /// The digest of the calls, over the fields that must be equal on all ranks.
    pub digest: u64,
}

impl CallHistory {
    /// The history of a rank that has called nothing.
    pub const UNUSED: CallHistory = CallHistory { calls: 0, digest: 0 };
}
