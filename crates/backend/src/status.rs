//! What a rank says of its calls and messages: the answer to a question about a call, and the history that it reports
//! when it closes or leaves.

use std::fmt;

use unisono_communicator::{CallInfo, GroupRank};

/// What a rank answers when asked about its call `number`.
#[derive(Clone, Debug, PartialEq)]
pub enum CallStatus {
    /// It has not entered this call; this is the last one it entered.
    NotYet {
        /// The last call it entered, if any.
        last: Option<CallInfo>,
        /// What it does instead.
        doing: Box<Doing>,
    },
    /// It is in this call.
    Running {
        /// The call.
        call: CallInfo,
        /// What it does in it, or besides.
        doing: Box<Doing>,
        /// The call that it is behind on its stream, if that is another communicator's.
        ahead: Option<Box<CallAhead>>,
    },
    /// It has returned.
    Done {
        /// The call.
        call: CallInfo,
    },
    /// The call was too long ago: the ring has forgotten it.
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

/// The call of another communicator behind which one waits: the first on its stream that is not finished, or the one
/// whose turn it is on its device.
#[derive(Clone, Debug, PartialEq)]
pub struct CallAhead {
    /// Whose it is, if it is on the stream; `None` for the one whose turn it is on the device.
    pub communicator: Option<CommunicatorKey>,
    /// The call.
    pub call: CallInfo,
}

/// What a rank waits for, and what it has not received.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Doing {
    /// The rank that it waits for, in a collective or in a message, if it waits.
    pub awaited: Option<GroupRank>,
    /// The send or receive in which a thread of it waits.
    pub message: Option<Box<CallInfo>>,
    /// The messages that have arrived and have no receive: at most [`Doing::UNREAD_MAX`] pairs of sender and tag.
    pub unread: Vec<UnreadMessages>,
}

impl Doing {
    /// More pairs of sender and tag are not told.
    pub const UNREAD_MAX: usize = 4;
}

/// Messages of one sender and tag that have no receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadMessages {
    /// The sender.
    pub from: GroupRank,
    /// The tag.
    pub tag: u32,
    /// How many of the oldest thousand there are.
    pub messages: u64,
}

/// What a rank reports when it closes; equal on all ranks whose calls agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallHistory {
    /// The number of collectives that it has entered.
    pub calls: u64,
    /// The digest of what all ranks' calls had in common.
    pub digest: u64,
}

impl CallHistory {
    /// The history of a rank that has called nothing.
    pub const UNUSED: CallHistory = CallHistory { calls: 0, digest: 0 };
}
