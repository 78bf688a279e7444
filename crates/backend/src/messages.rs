//! The ring of a communicator's last sends and receives, for the flight record. They have numbers of this rank only:
//! nothing orders them among ranks.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use unisono_communicator::{CallInfo, Descriptor, Site};

use crate::board::CALLS_REMEMBERED;
use crate::lock;

/// One send or receive in the ring.
#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u64,
    descriptor: Descriptor,
    site: &'static Location<'static>,
    is_done: bool,
}

/// The ring. Most communicators send no messages, so it takes no memory before the first.
#[derive(Default)]
pub(crate) struct Messages {
    entered: AtomicU64,
    entries: OnceLock<Box<[Mutex<Option<Entry>>]>>,
}

impl Messages {
    /// Notes the start of a send or receive, and gives it its number. Any thread may.
    pub(crate) fn enter(&self, descriptor: &Descriptor, site: &'static Location<'static>) -> u64 {
        let number = self.entered.fetch_add(1, Ordering::Relaxed);
        let entry = Entry { number, descriptor: *descriptor, site, is_done: false };
        *lock(self.slot(number)) = Some(entry);
        number
    }

    /// Notes that it has ended well.
    pub(crate) fn leave(&self, number: u64) {
        let mut slot = lock(self.slot(number));
        if let Some(entry) = slot.as_mut().filter(|entry| entry.number == number) {
            entry.is_done = true;
        }
    }

    /// What is remembered, oldest first, and whether each has ended well.
    pub(crate) fn recent(&self) -> Vec<(CallInfo, bool)> {
        let entered = self.entered.load(Ordering::Relaxed);
        let numbers = entered.saturating_sub(CALLS_REMEMBERED as u64)..entered;
        let entry = |number| lock(self.slot(number)).filter(|entry| entry.number == number);
        numbers.filter_map(entry).map(|entry| (info(&entry), entry.is_done)).collect()
    }

    fn slot(&self, number: u64) -> &Mutex<Option<Entry>> {
        let entries = self.entries.get_or_init(|| (0..CALLS_REMEMBERED).map(|_| Mutex::new(None)).collect());
        &entries[(number % CALLS_REMEMBERED as u64) as usize]
    }
}

fn info(entry: &Entry) -> CallInfo {
    let site = Some(Site::from(entry.site));
    CallInfo { number: entry.number, descriptor: entry.descriptor, algorithm: None, site, sizes: None }
}

#[cfg(test)]
mod tests {
    use unisono_communicator::{Collective, DType, Peer};

    use super::*;

    #[test]
    fn the_last_messages_are_remembered_whatever_their_order_of_ending() {
        let messages = Messages::default();
        assert!(messages.recent().is_empty());
        let send = |count| Descriptor {
            peer: Some(Peer::Rank(1)),
            ..Descriptor::new(Collective::Send, DType::U8, count)
        };
        let numbers: Vec<u64> =
            (0..1500).map(|count| messages.enter(&send(count), Location::caller())).collect();
        messages.leave(numbers[3]);
        messages.leave(numbers[1499]);
        messages.leave(numbers[1400]);
        let recent = messages.recent();
        assert_eq!((recent.len(), recent[0].0.number), (CALLS_REMEMBERED, 1500 - CALLS_REMEMBERED as u64));
        let done = recent.iter().filter(|one| one.1).map(|one| (one.0.number, one.0.descriptor.count));
        assert_eq!(done.collect::<Vec<_>>(), [(1400, 1400), (1499, 1499)]);
    }
}
