//! What a rank leaves behind if it leaves its communicator now: calls that it has started, messages that it has not
//! received.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one communicator. The control thread reads them when the process ends.
#[derive(Debug, Default)]
pub struct Unfinished {
    started: AtomicU64,
    failed: AtomicU64,
    unread: AtomicU64,
}

impl Unfinished {
    /// An asynchronous call has been started.
    pub fn note_start(&self) {
        self.started.fetch_add(1, Ordering::SeqCst);
    }

    /// An asynchronous call has ended, in success or failure.
    pub fn note_end(&self, is_success: bool) {
        if !is_success {
            self.failed.fetch_add(1, Ordering::SeqCst);
        }
        self.started.fetch_sub(1, Ordering::SeqCst);
    }

    /// How many asynchronous calls have failed.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::SeqCst)
    }

    /// How many asynchronous calls have not ended.
    pub fn started(&self) -> u64 {
        self.started.load(Ordering::SeqCst)
    }

    /// So many messages have arrived for which there is no receive.
    pub fn set_unread(&self, messages: u64) {
        self.unread.store(messages, Ordering::Relaxed);
    }

    /// The number of messages that have arrived and have no receive.
    pub fn unread(&self) -> u64 {
        self.unread.load(Ordering::Relaxed)
    }
}
