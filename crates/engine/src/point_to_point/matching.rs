//! Matches messages with receives by source and tag, each in their order.

use std::collections::VecDeque;
use std::sync::Arc;

use unisono_backend::{Board, Doing, UnreadMessages};
use unisono_communicator::{GroupRank, Peer};

use super::frame::Message;
use super::transfer::{Borrowed, Transfer};

/// How many of the oldest messages without a receive are counted for other ranks.
const UNREAD_LOOKED_AT: usize = 1000;

/// A message without a receive.
pub(super) enum Arrived {
    /// A short message, with its bytes.
    Whole { message: Message, bytes: Vec<u8> },
    /// A long message, which waits at its sender.
    Request { message: Message },
}

impl Arrived {
    /// The message's header.
    pub(super) fn message(&self) -> &Message {
        match self {
            Arrived::Whole { message, .. } | Arrived::Request { message } => message,
        }
    }
}

/// Receives that wait for a message, and arrived messages that no receive has asked for yet.
pub(super) struct Matching {
    receives: VecDeque<Transfer>,
    arrived: VecDeque<(GroupRank, Arrived)>,
    /// Shows the messages without a receive: their number at once, their senders and tags when this rank waits.
    board: Arc<Board>,
    is_shown: bool,
}

impl Matching {
    pub(super) fn new(board: Arc<Board>) -> Matching {
        Matching { receives: VecDeque::new(), arrived: VecDeque::new(), board, is_shown: true }
    }

    fn note_unread(&mut self) {
        self.board.unfinished().set_unread(self.arrived.len() as u64);
        if std::mem::take(&mut self.is_shown) {
            self.board.messages().set_unread(Vec::new());
        }
    }

    /// Shows the messages without a receive, because this rank is about to wait.
    pub(super) fn show_unread(&mut self) {
        if std::mem::replace(&mut self.is_shown, true) {
            return;
        }
        let mut shown: Vec<UnreadMessages> = Vec::new();
        for (from, arrived) in self.arrived.iter().take(UNREAD_LOOKED_AT) {
            let (from, tag) = (*from, arrived.message().tag);
            let known = shown.iter().position(|unread| (unread.from, unread.tag) == (from, tag));
            match known {
                Some(position) => shown[position].messages += 1,
                None if shown.len() < Doing::UNREAD_MAX => {
                    shown.push(UnreadMessages { from, tag, messages: 1 });
                }
                None => {}
            }
        }
        self.board.messages().set_unread(shown);
    }

    /// Posts a receive. If a message fits, returns the first such message and the receive instead.
    pub(super) fn post(
        &mut self,
        receive: Transfer,
        borrowed: &Borrowed<'_>,
    ) -> Option<(GroupRank, Arrived, Transfer)> {
        let fits =
            |(source, arrived): &(GroupRank, Arrived)| takes(&receive, borrowed, *source, arrived.message());
        match self.arrived.iter().position(fits).and_then(|position| self.arrived.remove(position)) {
            Some((source, arrived)) => {
                self.note_unread();
                Some((source, arrived, receive))
            }
            None => {
                self.receives.push_back(receive);
                None
            }
        }
    }

    /// Takes the first receive that fits a message.
    pub(super) fn match_receive(
        &mut self,
        source: GroupRank,
        message: &Message,
        borrowed: &Borrowed<'_>,
    ) -> Option<Transfer> {
        let position = self.receives.iter().position(|receive| takes(receive, borrowed, source, message))?;
        self.receives.remove(position)
    }

    /// Keeps a message until its receive is posted.
    pub(super) fn keep(&mut self, source: GroupRank, arrived: Arrived) {
        self.arrived.push_back((source, arrived));
        self.note_unread();
    }

    /// Forgets the long messages of a rank that has said goodbye, since they will not come.
    pub(super) fn forget_requests(&mut self, peer: GroupRank) {
        let is_request = |arrived: &Arrived| match arrived {
            Arrived::Request { .. } => true,
            Arrived::Whole { .. } => false,
        };
        self.arrived.retain(|(source, arrived)| *source != peer || !is_request(arrived));
        self.note_unread();
    }

    pub(super) fn has_receives(&self) -> bool {
        !self.receives.is_empty()
    }

    /// Whether a receive waits that `peer` could serve.
    pub(super) fn awaits(&self, peer: GroupRank, borrowed: &Borrowed<'_>) -> bool {
        self.receives.iter().any(|receive| match receive.descriptor(borrowed).peer {
            Some(Peer::Rank(rank)) => rank == peer.get(),
            Some(Peer::Any) | None => true,
        })
    }

    /// Whether a receive waits that only `peer` can serve.
    pub(super) fn awaits_only(&self, peer: GroupRank, borrowed: &Borrowed<'_>) -> bool {
        self.receives.iter().any(|receive| receive.descriptor(borrowed).peer == Some(Peer::Rank(peer.get())))
    }

    /// The receives that wait.
    pub(super) fn receives_mut(&mut self) -> impl Iterator<Item = &mut Transfer> {
        self.receives.iter_mut()
    }

    /// Takes every receive out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Transfer> {
        self.receives.drain(..)
    }
}

fn takes(receive: &Transfer, borrowed: &Borrowed<'_>, source: GroupRank, message: &Message) -> bool {
    let ours = receive.descriptor(borrowed);
    let from = match ours.peer {
        Some(Peer::Rank(rank)) => rank == source.get(),
        Some(Peer::Any) | None => true,
    };
    from && ours.tag == message.tag
}
