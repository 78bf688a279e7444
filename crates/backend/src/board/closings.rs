//! The ranks that have closed a communicator, and the threads that must read the last messages of these ranks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use unisono_communicator::GroupRank;

use crate::Waker;
use crate::lock;

/// The ranks that have closed a communicator, this one among them.
pub struct Closings {
    rank: GroupRank,
    closed: Box<[AtomicBool]>,
    /// For each rank, whether there is a stream for its messages.
    message_streams: Box<[AtomicBool]>,
    /// For each rank, whether no stream for its messages can come any more.
    complete: Box<[AtomicBool]>,
    watchers: Mutex<Vec<Watcher>>,
}

/// The functions to call when ranks close.
#[derive(Clone)]
struct Watcher {
    /// A thread that waits must look at its messages again.
    wake: Waker,
    /// Some thread must read a stream to its end, even if no thread makes a call.
    read: Waker,
}

impl Closings {
    pub(crate) fn new(rank: GroupRank, ranks: u32) -> Closings {
        let none = || (0..ranks).map(|_| AtomicBool::new(false)).collect();
        let (closed, message_streams, complete) = (none(), none(), none());
        Closings { rank, closed, message_streams, complete, watchers: Mutex::default() }
    }

    /// Notes that a rank, or this one itself, has closed or left the communicator.
    pub fn note_closed(&self, rank: GroupRank) {
        self.set_and_tell(&self.closed, rank);
    }

    /// Notes that the engine has read the goodbye of a rank, so that no thread must read its stream any more.
    pub fn note_goodbye(&self, rank: GroupRank) {
        if let Some(flag) = self.closed.get(rank.index()) {
            flag.store(true, Ordering::SeqCst);
        }
    }

    /// Notes that there is a stream for messages to and from a rank. The engine has the stream already.
    pub fn note_message_stream(&self, rank: GroupRank) {
        self.set_and_tell(&self.message_streams, rank);
    }

    /// Notes that the streams for messages of a closed rank have all been handed to the engine. It will send nothing
    /// more on them.
    pub fn note_complete(&self, rank: GroupRank) {
        let Some(flag) = self.complete.get(rank.index()) else { return };
        if !flag.swap(true, Ordering::SeqCst) {
            lock(&self.watchers).clone().iter().for_each(|watcher| (watcher.wake)());
        }
    }

    /// Whether a rank has closed or left the communicator.
    pub fn has_closed(&self, rank: GroupRank) -> bool {
        is_set(&self.closed, rank)
    }

    /// Whether this rank has closed in good order.
    pub(crate) fn has_closed_here(&self) -> bool {
        self.has_closed(self.rank)
    }

    /// Whether a rank has closed, and no stream for its messages can come any more.
    pub fn is_complete(&self, rank: GroupRank) -> bool {
        is_set(&self.complete, rank)
    }

    /// Adds functions to call from now on: `wake` with each news that may end a wait for messages, `read` when there is
    /// a stream to read to its end. Calls them at once for ranks that have closed before.
    pub fn on_close(&self, wake: Waker, read: Waker) {
        lock(&self.watchers).push(Watcher { wake: wake.clone(), read: read.clone() });
        let ranks = || GroupRank::all(self.closed.len() as u32);
        if ranks().any(|rank| self.must_be_read(rank)) {
            read();
        }
        if ranks().any(|rank| self.is_complete(rank)) {
            wake();
        }
    }

    fn set_and_tell(&self, flags: &[AtomicBool], rank: GroupRank) {
        let Some(flag) = flags.get(rank.index()) else { return };
        if !flag.swap(true, Ordering::SeqCst) && self.must_be_read(rank) {
            lock(&self.watchers).clone().iter().for_each(|watcher| (watcher.read)());
        }
    }

    /// Whether there is a stream for messages with a rank, and this rank or that one has closed. A stream that comes
    /// after this rank has closed must still be told its goodbye.
    fn must_be_read(&self, rank: GroupRank) -> bool {
        is_set(&self.message_streams, rank) && (self.has_closed(rank) || self.has_closed(self.rank))
    }
}

fn is_set(flags: &[AtomicBool], rank: GroupRank) -> bool {
    flags.get(rank.index()).is_some_and(|flag| flag.load(Ordering::SeqCst))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn who_wants_to_know_is_told_once_of_each_stream_that_must_be_read() {
        let [own, one, two, three] = [0, 1, 2, 3].map(GroupRank::new);
        let closings = Closings::new(own, 4);
        let (woken, read) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let count = |counter: &Arc<AtomicU32>| -> Waker {
            let counter = counter.clone();
            Arc::new(move || {
                counter.fetch_add(1, Ordering::SeqCst);
            })
        };
        let counts = || (woken.load(Ordering::SeqCst), read.load(Ordering::SeqCst));
        closings.on_close(count(&woken), count(&read));
        closings.note_closed(one);
        assert_eq!(counts(), (0, 0), "no message has come from rank 1");
        // First the rank closes, then its stream appears.
        closings.note_message_stream(one);
        closings.note_message_stream(two);
        assert_eq!(counts(), (0, 1));
        closings.note_closed(two);
        closings.note_closed(two);
        assert_eq!(counts(), (0, 2));
        assert!(closings.has_closed(one) && !closings.has_closed(own));
        // A rank without a stream.
        closings.note_closed(three);
        assert!(!closings.is_complete(three));
        closings.note_complete(three);
        closings.note_complete(three);
        assert_eq!((counts(), closings.is_complete(three)), ((1, 2), true));
    }

    /// The control thread knows a communicator before its engine is made.
    #[test]
    fn who_wants_to_know_late_is_told_of_ranks_that_have_closed_before() {
        let closings = Closings::new(GroupRank::new(0), 2);
        closings.note_closed(GroupRank::new(1));
        closings.note_complete(GroupRank::new(1));
        let woken = Arc::new(AtomicU32::new(0));
        let counter = woken.clone();
        let count = Arc::new(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        closings.on_close(count, Arc::new(|| {}));
        assert_eq!(woken.load(Ordering::SeqCst), 1, "a receive would wait for its deadline");
    }

    #[test]
    fn a_stream_that_comes_after_the_own_close_must_be_read() {
        let [own, one] = [0, 1].map(GroupRank::new);
        let closings = Closings::new(own, 2);
        let read = Arc::new(AtomicU32::new(0));
        let counter = read.clone();
        let count = Arc::new(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        closings.on_close(Arc::new(|| {}), count);
        closings.note_closed(own);
        assert_eq!(read.load(Ordering::SeqCst), 0);
        closings.note_message_stream(one);
        assert_eq!(read.load(Ordering::SeqCst), 1);
    }
}
