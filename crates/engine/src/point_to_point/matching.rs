//! Matches messages with receives by source and tag, each in their order. A match takes the same time however many
//! messages and receives wait.

use std::collections::HashMap;
use std::sync::Arc;

use unisono_backend::{Board, Doing, UnreadMessages};
use unisono_communicator::GroupRank;

use super::frame::Message;
use super::queues::Queues;
use super::transfer::{Borrowed, Transfer, peer_of};
use super::unexpected::{Arrived, Unexpected, Unread, Wanted};

/// Receives that wait for a message, and arrived messages that no receive has asked for yet.
pub(super) struct Matching {
    receives: Queues<Wanted, Transfer>,
    /// By group rank: how many receives wait for a message of this rank alone.
    awaited: Vec<usize>,
    /// The number of receives that wait for a message of any rank.
    awaited_of_any: usize,
    /// The number of receives that wait for a message with any tag.
    awaited_any_tag: usize,
    unexpected: Unexpected,
    /// Messages that a probe has taken out, by the number of the probe.
    held: HashMap<u64, Unread>,
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
            awaited_any_tag: 0,
            unexpected: Unexpected::new(),
            held: HashMap::new(),
            next_number: 0,
            board,
            is_shown: true,
        }
    }

    fn note_unread(&mut self) {
        self.board.unfinished().set_unread(self.unexpected.len() as u64);
        if std::mem::take(&mut self.is_shown) {
            self.board.messages().set_unread(Vec::new());
        }
    }

    /// Shows the messages without a receive, because this rank is about to wait. The oldest come first.
    pub(super) fn show_unread(&mut self) {
        if std::mem::replace(&mut self.is_shown, true) {
            return;
        }
        let oldest = self.unexpected.oldest().take(Doing::UNREAD_MAX);
        let shown = oldest.map(|(from, tag, messages)| UnreadMessages { from, tag, messages });
        self.board.messages().set_unread(shown.collect());
    }

    /// The next number.
    pub(super) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Posts a receive. If a message fits, returns the first such message and the receive instead.
    pub(super) fn post(&mut self, receive: Transfer, lent: &[Borrowed<'_>]) -> Option<(Unread, Transfer)> {
        let wanted = wanted(&receive, lent);
        if let Some(unread) = self.take(wanted) {
            return Some((unread, receive));
        }
        let number = self.number();
        self.note_receives(wanted, 1);
        self.receives.insert(wanted, number, receive);
        None
    }

    /// Takes the oldest message that is wanted.
    pub(super) fn take(&mut self, wanted: Wanted) -> Option<Unread> {
        let unread = self.unexpected.take(wanted)?;
        self.note_unread();
        Some(unread)
    }

    /// Counts this many receives more, or fewer.
    fn note_receives(&mut self, Wanted { source, tag }: Wanted, more: isize) {
        let of_source = match source {
            Some(source) => &mut self.awaited[source.index()],
            None => &mut self.awaited_of_any,
        };
        *of_source = of_source.wrapping_add_signed(more);
        if tag.is_none() {
            self.awaited_any_tag = self.awaited_any_tag.wrapping_add_signed(more);
        }
    }

    /// Takes the first receive that a message fits, if there is one and it `may` have it.
    fn take_first(
        &mut self,
        source: GroupRank,
        tag: u32,
        may: impl FnOnce(&Transfer) -> bool,
    ) -> Option<Transfer> {
        let (this, one) = (Some(source), Some(tag));
        let mut wanted = Wanted { source: this, tag: one };
        // Without these questions, each message would look up four queues.
        let (of_any, any_tag) = (self.awaited_of_any > 0, self.awaited_any_tag > 0);
        if of_any || any_tag {
            let all = [
                Some((this, one)),
                of_any.then_some((None, one)),
                any_tag.then_some((this, None)),
                (of_any && any_tag).then_some((None, None)),
            ];
            let numbered = all.into_iter().flatten().filter_map(|(source, tag)| {
                let wanted = Wanted { source, tag };
                Some((self.receives.first_number(wanted)?, wanted))
            });
            wanted = numbered.min_by_key(|(number, _)| *number)?.1;
        }
        let receive = self.receives.pop_if(wanted, may)?;
        self.note_receives(wanted, -1);
        Some(receive)
    }

    /// Takes the first receive that fits a message.
    pub(super) fn match_receive(&mut self, source: GroupRank, message: &Message) -> Option<Transfer> {
        self.take_first(source, message.tag, |_| true)
    }

    /// Whether a receive waits for a message.
    pub(super) fn has_receive_for(&mut self, unread: &Unread) -> bool {
        let mut waits = false;
        self.take_first(unread.source, unread.arrived.message().tag, |_| {
            waits = true;
            false
        });
        waits
    }

    /// Takes the first receive that fits a message whose bytes begin to arrive, unless this receive is a probe, which
    /// takes whole messages.
    pub(super) fn match_bytes(&mut self, source: GroupRank, message: &Message) -> Option<Transfer> {
        self.take_first(source, message.tag, |receive| receive.probe().is_none())
    }

    /// The message, with its place in the order of arrival.
    pub(super) fn arrive(&mut self, source: GroupRank, arrived: Arrived) -> Unread {
        Unread { source, number: self.number(), arrived }
    }

    /// Keeps a message until its receive is posted.
    pub(super) fn keep(&mut self, unread: Unread) {
        self.unexpected.put(unread);
        self.note_unread();
    }

    /// Keeps a message for the probe of this number alone.
    pub(super) fn hold(&mut self, probe: u64, unread: Unread) {
        self.held.insert(probe, unread);
    }

    /// The message of this probe.
    pub(super) fn take_held(&mut self, probe: u64) -> Option<Unread> {
        self.held.remove(&probe)
    }

    /// Forgets the long messages of a rank that has said goodbye, since they will not come.
    pub(super) fn forget_requests(&mut self, peer: GroupRank) {
        if self.unexpected.forget_requests(peer) {
            self.note_unread();
        }
    }

    pub(super) fn has_receives(&self) -> bool {
        self.receives.len() > 0
    }

    /// Whether a new receive from `peer` gets the next message that arrives from it, if this has its tag.
    #[inline]
    pub(super) fn is_next_for_new(&self, peer: GroupRank) -> bool {
        !self.awaits(peer) && self.unexpected.len() == 0
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

    /// The lent receive of this index that waits, if it does.
    pub(super) fn lent_mut(&mut self, index: usize, lent: &[Borrowed<'_>]) -> Option<&mut Transfer> {
        let wanted = wanted(&Transfer::Lent(index), lent);
        self.receives.of_mut(wanted).find(|receive| receive.is_lent(index))
    }

    /// The receives that wait, in no order.
    pub(super) fn receives_mut(&mut self) -> impl Iterator<Item = &mut Transfer> {
        self.receives.iter_mut()
    }

    /// Takes out the receives from `source` alone, or from any rank, for whose end nobody waits any more.
    pub(super) fn take_abandoned(&mut self, source: Option<GroupRank>) -> Vec<Transfer> {
        let taken = self.receives.take(|wanted, receive| wanted.source == source && receive.is_abandoned());
        taken.iter().for_each(|(wanted, _)| self.note_receives(*wanted, -1));
        taken.into_iter().map(|(_, receive)| receive).collect()
    }

    /// Whether somebody waits for the end of a receive from any rank.
    pub(super) fn has_awaited_of_any(&mut self) -> bool {
        let mut receives = self.receives.keyed_mut().filter(|(wanted, _)| wanted.source.is_none());
        receives.any(|(_, receive)| receive.is_awaited())
    }

    /// Takes every receive out, in order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Transfer> + use<> {
        self.awaited.fill(0);
        (self.awaited_of_any, self.awaited_any_tag) = (0, 0);
        self.receives.take(|_, _| true).into_iter().map(|(_, receive)| receive)
    }
}

/// The messages that a receive asks for.
fn wanted(receive: &Transfer, lent: &[Borrowed<'_>]) -> Wanted {
    let descriptor = receive.descriptor(lent);
    Wanted { source: peer_of(descriptor), tag: descriptor.tag.one() }
}
