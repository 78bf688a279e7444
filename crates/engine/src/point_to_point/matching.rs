//! Matches messages with receives by source and tag, each in their order. A match takes the same time however many
//! messages and receives wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use unisono_backend::{Board, Doing, UnreadMessages};
use unisono_communicator::{GroupRank, Peer};

use super::frame::Message;
use super::queues::Queues;
use super::transfer::{Borrowed, Transfer};

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

    fn is_request(&self) -> bool {
        match self {
            Arrived::Request { .. } => true,
            Arrived::Whole { .. } => false,
        }
    }
}

/// The source and the tag of a receive; no source if any rank will do.
type Wanted = (Option<GroupRank>, u32);

/// Receives that wait for a message, and arrived messages that no receive has asked for yet.
pub(super) struct Matching {
    receives: Queues<Wanted, Transfer>,
    /// By group rank: how many receives wait for a message of this rank alone.
    awaited: Vec<usize>,
    /// The number of receives that wait for a message of any rank.
    awaited_of_any: usize,
    arrived: Queues<(GroupRank, u32), Arrived>,
    /// The first message of each queue: by its number, and by its tag and number.
    firsts: BTreeMap<u64, (GroupRank, u32)>,
    firsts_by_tag: BTreeSet<(u32, u64)>,
    /// The number of the next receive or message.
    next_number: u64,
    /// Shows the messages without a receive: their number at once, their senders and tags when this rank waits.
    board: Arc<Board>,
    is_shown: bool,
}

impl Matching {
    pub(super) fn new(board: Arc<Board>, ranks: u32) -> Matching {
        Matching {
            receives: Queues::new(),
            awaited: vec![0; ranks as usize],
            awaited_of_any: 0,
            arrived: Queues::new(),
            firsts: BTreeMap::new(),
            firsts_by_tag: BTreeSet::new(),
            next_number: 0,
            board,
            is_shown: true,
        }
    }

    fn note_unread(&mut self) {
        self.board.unfinished().set_unread(self.arrived.len() as u64);
        if std::mem::take(&mut self.is_shown) {
            self.board.messages().set_unread(Vec::new());
        }
    }

    /// Shows the messages without a receive, because this rank is about to wait. The oldest come first.
    pub(super) fn show_unread(&mut self) {
        if std::mem::replace(&mut self.is_shown, true) {
            return;
        }
        let oldest = self.firsts.values().take(Doing::UNREAD_MAX);
        let shown = oldest.map(|&(from, tag)| {
            let messages = self.arrived.len_of((from, tag)) as u64;
            UnreadMessages { from, tag, messages }
        });
        self.board.messages().set_unread(shown.collect());
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Posts a receive. If a message fits, returns the first such message and the receive instead.
    pub(super) fn post(
        &mut self,
        receive: Transfer,
        borrowed: &Borrowed<'_>,
    ) -> Option<(GroupRank, Arrived, Transfer)> {
        let wanted @ (source, tag) = wanted(&receive, borrowed);
        let found = match source {
            Some(source) => self.take_arrived((source, tag)),
            None => self.first_of_any(tag).and_then(|key| self.take_arrived(key)),
        };
        if let Some((source, arrived)) = found {
            return Some((source, arrived, receive));
        }
        let number = self.number();
        *self.waiting(source) += 1;
        self.receives.push(wanted, number, receive);
        None
    }

    /// The number of receives that wait for this source.
    fn waiting(&mut self, source: Option<GroupRank>) -> &mut usize {
        match source {
            Some(source) => &mut self.awaited[source.index()],
            None => &mut self.awaited_of_any,
        }
    }

    /// The source and tag of the oldest message with this tag.
    fn first_of_any(&self, tag: u32) -> Option<(GroupRank, u32)> {
        let (_, number) = self.firsts_by_tag.range((tag, 0)..=(tag, u64::MAX)).next()?;
        self.firsts.get(number).copied()
    }

    fn take_arrived(&mut self, key: (GroupRank, u32)) -> Option<(GroupRank, Arrived)> {
        let (source, tag) = key;
        let first = self.arrived.first_number(key)?;
        let arrived = self.arrived.pop(key)?;
        self.firsts.remove(&first);
        self.firsts_by_tag.remove(&(tag, first));
        if let Some(next) = self.arrived.first_number(key) {
            self.note_first(key, next);
        }
        self.note_unread();
        Some((source, arrived))
    }

    fn note_first(&mut self, key: (GroupRank, u32), number: u64) {
        self.firsts.insert(number, key);
        self.firsts_by_tag.insert((key.1, number));
    }

    /// Takes the first receive that fits a message.
    pub(super) fn match_receive(&mut self, source: GroupRank, message: &Message) -> Option<Transfer> {
        let tag = message.tag;
        let named = self.receives.first_number((Some(source), tag));
        // Without this question, each message would look up its tag twice.
        let of_any = match self.awaited_of_any {
            0 => None,
            _ => self.receives.first_number((None, tag)),
        };
        let from = match (named, of_any) {
            (None, None) => return None,
            (Some(named), Some(of_any)) if of_any < named => None,
            (Some(_), _) => Some(source),
            (None, Some(_)) => None,
        };
        *self.waiting(from) -= 1;
        self.receives.pop((from, tag))
    }

    /// Keeps a message until its receive is posted.
    pub(super) fn keep(&mut self, source: GroupRank, arrived: Arrived) {
        let (number, key) = (self.number(), (source, arrived.message().tag));
        if self.arrived.push(key, number, arrived) {
            self.note_first(key, number);
        }
        self.note_unread();
    }

    /// Forgets the long messages of a rank that has said goodbye, since they will not come.
    pub(super) fn forget_requests(&mut self, peer: GroupRank) {
        if self.arrived.take(|(source, _), arrived| *source == peer && arrived.is_request()).is_empty() {
            return;
        }
        self.firsts.clear();
        self.firsts_by_tag.clear();
        let firsts: Vec<_> = self.arrived.firsts().collect();
        firsts.into_iter().for_each(|(key, number)| self.note_first(key, number));
        self.note_unread();
    }

    pub(super) fn has_receives(&self) -> bool {
        self.receives.len() > 0
    }

    /// Whether a receive waits that `peer` could serve.
    pub(super) fn awaits(&self, peer: GroupRank) -> bool {
        self.awaited_of_any > 0 || self.awaits_only(peer)
    }

    /// Whether a receive waits that only `peer` can serve.
    pub(super) fn awaits_only(&self, peer: GroupRank) -> bool {
        self.awaited[peer.index()] > 0
    }

    /// Whether a receive waits that any rank can serve.
    pub(super) fn awaits_any(&self) -> bool {
        self.awaited_of_any > 0
    }

    /// The borrowed receive that waits, if it does.
    pub(super) fn borrowed_mut(&mut self, borrowed: &Borrowed<'_>) -> Option<&mut Transfer> {
        let wanted = wanted(&Transfer::Borrowed, borrowed);
        self.receives.of_mut(wanted).find(|receive| receive.owned().is_none())
    }

    /// The receives that wait, in no order.
    pub(super) fn receives_mut(&mut self) -> impl Iterator<Item = &mut Transfer> {
        self.receives.iter_mut()
    }

    /// Takes out the receives from `source` alone, or from any rank, for whose end nobody waits any more.
    pub(super) fn take_abandoned(&mut self, source: Option<GroupRank>) -> Vec<Transfer> {
        let taken = self.receives.take(|(from, _), receive| *from == source && receive.is_abandoned());
        *self.waiting(source) -= taken.len();
        taken.into_iter().map(|(_, receive)| receive).collect()
    }

    /// Whether somebody waits for the end of a receive from any rank.
    pub(super) fn has_awaited_of_any(&mut self) -> bool {
        let mut receives = self.receives.keyed_mut().filter(|((source, _), _)| source.is_none());
        receives.any(|(_, receive)| receive.is_awaited())
    }

    /// Takes every receive out, in order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Transfer> + use<> {
        self.awaited.fill(0);
        self.awaited_of_any = 0;
        self.receives.take(|_, _| true).into_iter().map(|(_, receive)| receive)
    }
}

/// The message that a receive asks for.
fn wanted(receive: &Transfer, borrowed: &Borrowed<'_>) -> Wanted {
    let descriptor = receive.descriptor(borrowed);
    let source = match descriptor.peer {
        Some(Peer::Rank(rank)) => Some(GroupRank::new(rank)),
        Some(Peer::Any) | None => None,
    };
    (source, descriptor.tag)
}
