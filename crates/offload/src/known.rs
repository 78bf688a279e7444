//! The calls on streams as the board knows them: collectives by their numbers, messages by their entries.

use smallvec::SmallVec;
use unisono_backend::{Board, EnteredMessage};
use unisono_communicator::{Descriptor, Operation, RecordedCall, RecordedEnd, Site};

/// A message of two ranks that is on a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnStreamMessage {
    pub(crate) descriptor: Descriptor,
    pub(crate) site: Site,
    pub(crate) entered: EnteredMessage,
}

/// The messages of one group. A typed send or receive is one message, which needs no allocation.
pub(crate) type OnStreamMessages = SmallVec<[OnStreamMessage; 1]>;

/// A call on a stream as the board knows it.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// A collective.
    Collective {
        number: u64,
        /// Its record for the log. The board remembers fewer calls than a stream can hold.
        recorded: Option<RecordedCall>,
    },
    /// Messages. Two ranks do not count them alike, so they have no number that others could be asked about.
    Messages(OnStreamMessages),
}

impl Known {
    /// The number that all ranks know.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Known::Collective { number, .. } => Some(*number),
            Known::Messages(_) => None,
        }
    }
}

/// Notes the end of messages. Messages end in any order, so they do not wait for earlier calls, as collectives do.
pub(crate) fn end_messages(board: &Board, messages: &[OnStreamMessage], is_done: bool) {
    for OnStreamMessage { descriptor, site, entered } in messages {
        let end = match descriptor.operation {
            _ if !is_done => RecordedEnd::Failed,
            Operation::Recv => RecordedEnd::Done(Some(descriptor.count * descriptor.dtype.bytes() as u64)),
            Operation::Send | Operation::Collective(_) => RecordedEnd::Done(None),
        };
        board.leave_message(*entered, (descriptor, *site), end);
    }
}
