//! The ranks that have closed a communicator, and the threads that must read the last messages of these ranks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use unisono_communicator::GroupRank;

use crate::Waker;
use crate::lock;

/// The ranks that have closed a communicator.
pub struct Closings {
    rank: GroupRank,
    closed: Box<[AtomicBool]>,
    /// For each rank, whether there is a stream for its messages.
    message_streams: Box<[AtomicBool]>,
    wakers: Mutex<Vec<Waker>>,
}

impl Closings {
    pub(crate) fn new(rank: GroupRank, ranks: u32) -> Closings {
        let none = || (0..ranks).map(|_| AtomicBool::new(false)).collect();
        Closings { rank, closed: none(), message_streams: none(), wakers: Mutex::default() }
    }

    /// Notes that a rank has closed or left the communicator. Calls the wakers if the rank may have sent messages.
    pub fn note_closed(&self, rank: GroupRank) {
        if rank != self.rank {
            self.set_and_wake(&self.closed, rank);
        }
    }

    /// Notes that there is a stream for messages to and from a rank.
    pub fn note_message_stream(&self, rank: GroupRank) {
        self.set_and_wake(&self.message_streams, rank);
    }

    /// Whether a rank has closed or left the communicator.
    pub fn has_closed(&self, rank: GroupRank) -> bool {
        self.closed.get(rank.index()).is_some_and(|closed| closed.load(Ordering::SeqCst))
    }

    /// Adds a waker for the close of a rank that may have sent messages. Calls it at once if there is such a rank.
    pub fn on_close(&self, waker: Waker) {
        lock(&self.wakers).push(waker.clone());
        if GroupRank::all(self.closed.len() as u32).any(|rank| self.may_have_sent(rank)) {
            waker();
        }
    }

    fn set_and_wake(&self, flags: &[AtomicBool], rank: GroupRank) {
        let Some(flag) = flags.get(rank.index()) else { return };
        if !flag.swap(true, Ordering::SeqCst) && self.may_have_sent(rank) {
            let wakers = lock(&self.wakers).clone();
            wakers.iter().for_each(|wake| wake());
        }
    }

    /// Whether a rank has closed and has a stream for messages.
    fn may_have_sent(&self, rank: GroupRank) -> bool {
        self.has_closed(rank) && self.message_streams[rank.index()].load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn who_wants_to_know_is_woken_once_and_only_for_ranks_that_may_have_sent() {
        let [own, one, two] = [0, 1, 2].map(GroupRank::new);
        let closings = Closings::new(own, 3);
        let woken = Arc::new(AtomicU32::new(0));
        let count = woken.clone();
        closings.on_close(Arc::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        }));
        closings.note_closed(own);
        closings.note_closed(one);
        assert_eq!(woken.load(Ordering::SeqCst), 0, "no message has come from rank 1");
        // First the rank closes, then its stream appears.
        closings.note_message_stream(one);
        closings.note_message_stream(two);
        assert_eq!(woken.load(Ordering::SeqCst), 1);
        closings.note_closed(two);
        closings.note_closed(two);
        assert_eq!(woken.load(Ordering::SeqCst), 2);
        assert!(closings.has_closed(one) && !closings.has_closed(own));
    }
}
