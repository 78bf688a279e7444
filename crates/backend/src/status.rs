//! What a rank says of its calls: the answer to a question about one of them, and the history that it reports when it
//! closes or leaves.

use unisono_communicator::{CallInfo, GroupRank};

use crate::stream_order::CallAhead;

/// What a rank answers when asked about its call `number`.
#[derive(Clone, Debug, PartialEq)]
pub enum CallStatus {
    /// It has not entered this call; this is the last one it entered.
    NotYet {
        /// The last call it entered, if any.
        last: Option<CallInfo>,
        /// The rank that it waits for, in that call or in a message, if it waits.
        awaited: Option<GroupRank>,
    },
    /// It is in this call.
    Running {
        /// The call.
        call: CallInfo,
        /// The rank that it waits for, if it waits.
        awaited: Option<GroupRank>,
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
