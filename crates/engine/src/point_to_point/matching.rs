//! Matches messages with receives: by source and tag, both sides in order.

use std::collections::VecDeque;
use std::sync::Arc;

use unisono_backend::{Board, Doing, UnreadMessages};
use unisono_communicator::{GroupRank, Peer};

use super::frame::Message;
use super::transfer::{Borrowed, Transfer};

/// A message without a receive.
pub(super) enum Arrived {
    /// A short one, with its bytes.
    Whole { message: Message, bytes: Vec<u8> },
    /// A long one, which waits on the sender's side.
    Request { message: Message },
}

impl Arrived {
    /// What identifies it.
    pub(super) fn message(&self) -> &Message {
        match self {
            Arrived::Whole { message, .. } | Arrived::Request { message } => message,
        }
    }
}

/// Receives without a message, and messages without a receive; none of them match.
pub(super) struct Matching {
    receives: VecDeque<Transfer>,
    arrived: VecDeque<(GroupRank, Arrived)>,
    /// How many have arrived of each sender and tag.
    unread: Vec<UnreadMessages>,
    /// Shows the messages that have no receive: at once how many there are, and which when this rank waits.
    board: Arc<Board>,
    is_shown: bool,
}

impl Matching {
    /// Neither receives nor messages.
    pub(super) fn new(board: Arc<Board>) -> Matching {
        let (receives, arrived, unread) = (VecDeque::new(), VecDeque::new(), Vec::new());
        Matching { receives, arrived, unread, board, is_shown: true }
    }

    fn note_unread(&mut self) {
        self.board.unfinished().set_unread(self.arrived.len() as u64);
        if std::mem::take(&mut self.is_shown) {
            self.board.show_unread(Vec::new());
        }
    }

    /// Counts a message that has no receive.
    fn count(&mut self, from: GroupRank, tag: u32) {
        match self.unread.iter_mut().find(|unread| (unread.from, unread.tag) == (from, tag)) {
            Some(unread) => unread.messages += 1,
            None => self.unread.push(UnreadMessages { from, tag, messages: 1 }),
        }
    }

    /// Counts a message no more that has a receive now, or never will.
    fn uncount(&mut self, from: GroupRank, tag: u32) {
        let is_it = |unread: &UnreadMessages| (unread.from, unread.tag) == (from, tag);
        if let Some(position) = self.unread.iter().position(is_it) {
            self.unread[position].messages -= 1;
            if self.unread[position].messages == 0 {
                self.unread.remove(position);
            }
        }
    }

    /// Shows which messages have no receive, because this rank is about to wait.
    pub(super) fn show_unread(&mut self) {
        if !std::mem::replace(&mut self.is_shown, true) {
            self.board.show_unread(self.unread.iter().copied().take(Doing::UNREAD_MAX).collect());
        }
    }

    /// Posts a receive, or gives it back with the first message that fits.
    pub(super) fn post(
        &mut self,
        receive: Transfer,
        borrowed: &Borrowed<'_>,
    ) -> Option<(GroupRank, Arrived, Transfer)> {
        let fits =
            |(source, arrived): &(GroupRank, Arrived)| takes(&receive, borrowed, *source, arrived.message());
        match self.arrived.iter().position(fits).and_then(|position| self.arrived.remove(position)) {
            Some((source, arrived)) => {
                self.uncount(source, arrived.message().tag);
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
        self.count(source, arrived.message().tag);
        self.arrived.push_back((source, arrived));
        self.note_unread();
    }

    /// Forgets the long messages of a rank that has said goodbye: it will not send them any more.
    pub(super) fn forget_requests(&mut self, peer: GroupRank) {
        let is_request = |arrived: &Arrived| match arrived {
            Arrived::Request { .. } => true,
            Arrived::Whole { .. } => false,
        };
        let is_gone = |(source, arrived): &(GroupRank, Arrived)| *source == peer && is_request(arrived);
        let gone: Vec<u32> = self
            .arrived
            .iter()
            .filter(|one| is_gone(one))
            .map(|(_, arrived)| arrived.message().tag)
            .collect();
        self.arrived.retain(|one| !is_gone(one));
        gone.into_iter().for_each(|tag| self.uncount(peer, tag));
        self.note_unread();
    }

    /// Whether any receive waits.
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

    /// The receives that wait, to change.
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
