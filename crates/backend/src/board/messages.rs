//! The messages of a communicator on its board: the last sends and receives for the flight record, the sends and
//! receives in which threads wait, and arrived messages without a receive. Each rank numbers its own messages.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use unisono_communicator::{CallInfo, Descriptor, Site};

use super::Board;
use super::last::{LastCalls, remembered};
use crate::lock;
use crate::status::UnreadMessages;

#[derive(Clone, Copy, Debug)]
struct MessageEntry {
    descriptor: Descriptor,
    site: Site,
    is_done: bool,
}

/// Room in the list of waits before it must grow.
const WAITS_EXPECTED: usize = 4;

/// The messages of one communicator.
pub struct Messages {
    entered: AtomicU64,
    last: LastCalls<MessageEntry>,
    /// The sends and receives in which threads wait.
    waits: Mutex<Vec<(u64, Descriptor, Site)>>,
    waits_begun: AtomicU64,
    unread: Mutex<Vec<UnreadMessages>>,
}

/// Shows that a thread waits in a send or receive, until it is dropped.
pub struct MessageWait {
    board: Arc<Board>,
    number: u64,
}

impl MessageWait {
    /// Shows the wait on `board`.
    pub fn new(board: Arc<Board>, descriptor: &Descriptor, site: Site) -> MessageWait {
        let messages = board.messages();
        let number = messages.waits_begun.fetch_add(1, Ordering::Relaxed);
        lock(&messages.waits).push((number, *descriptor, site));
        MessageWait { board, number }
    }
}

impl Drop for MessageWait {
    fn drop(&mut self) {
        lock(&self.board.messages().waits).retain(|(number, ..)| *number != self.number);
    }
}

impl Default for Messages {
    fn default() -> Messages {
        Messages {
            entered: AtomicU64::new(0),
            last: LastCalls::default(),
            waits: Mutex::new(Vec::with_capacity(WAITS_EXPECTED)),
            waits_begun: AtomicU64::new(0),
            unread: Mutex::default(),
        }
    }
}

impl Messages {
    /// Records the start of a send or receive, and returns its number. Any thread may call it.
    pub fn enter(&self, descriptor: &Descriptor, site: Site) -> u64 {
        self.add(MessageEntry { descriptor: *descriptor, site, is_done: false })
    }

    /// Records a send or receive that has succeeded at once. Any thread may call it.
    pub fn pass(&self, descriptor: &Descriptor, site: Site) {
        self.add(MessageEntry { descriptor: *descriptor, site, is_done: true });
    }

    #[inline]
    fn add(&self, entry: MessageEntry) -> u64 {
        let number = self.entered.fetch_add(1, Ordering::Relaxed);
        self.last.set(number, entry);
        number
    }

    /// Records that the send or receive of this number has succeeded.
    #[inline]
    pub fn leave(&self, number: u64) {
        self.last.with(number, |entry| entry.is_done = true);
    }

    /// The number of sends and receives that there have been.
    pub fn entered(&self) -> u64 {
        self.entered.load(Ordering::Relaxed)
    }

    /// The messages in the ring, oldest first, and whether each has succeeded.
    pub fn recent(&self) -> Vec<(CallInfo, bool)> {
        let shown = |number| self.last.with(number, |entry| (info(number, entry), entry.is_done));
        remembered(self.entered()).filter_map(shown).collect()
    }

    /// The send or receive in which a thread has waited longest.
    pub(crate) fn waiting(&self) -> Option<CallInfo> {
        let (_, descriptor, site) = *lock(&self.waits).first()?;
        Some(CallInfo { site: Some(site.into()), ..CallInfo::new(0, descriptor) })
    }

    /// Sets the messages without a receive.
    pub fn set_unread(&self, unread: Vec<UnreadMessages>) {
        *lock(&self.unread) = unread;
    }

    /// The messages without a receive.
    pub(crate) fn unread(&self) -> Vec<UnreadMessages> {
        lock(&self.unread).clone()
    }
}

fn info(number: u64, entry: &MessageEntry) -> CallInfo {
    CallInfo { site: entry.site.text(), ..CallInfo::new(number, entry.descriptor) }
}

#[cfg(test)]
mod tests {
    use unisono_communicator::{DType, Operation, Peer};

    use super::*;
    use crate::board::CALLS_REMEMBERED;

    #[test]
    fn the_last_messages_are_remembered_whatever_their_order_of_ending() {
        let messages = Messages::default();
        assert!(messages.recent().is_empty());
        let send = |count| Descriptor {
            peer: Some(Peer::Rank(1)),
            ..Descriptor::new(Operation::Send, DType::U8, count)
        };
        let numbers: Vec<u64> = (0..1500).map(|count| messages.enter(&send(count), Site::caller())).collect();
        messages.leave(numbers[3]);
        messages.leave(numbers[1499]);
        messages.leave(numbers[1400]);
        let recent = messages.recent();
        assert_eq!((recent.len(), recent[0].0.number), (CALLS_REMEMBERED, 1500 - CALLS_REMEMBERED as u64));
        let done = recent.iter().filter(|one| one.1).map(|one| (one.0.number, one.0.descriptor.count));
        assert_eq!(done.collect::<Vec<_>>(), [(1400, 1400), (1499, 1499)]);
    }
}
