//! Counts of the calls that a rank has not ended and of the messages that it has not received. If it leaves its
//! communicator now, it leaves these behind.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one communicator. The control thread reads them when the process ends.
#[derive(Debug, Default)]
pub struct Unfinished {
    started: AtomicU64,
    /// The collectives among the started calls.
    collectives: AtomicU64,
    failed: AtomicU64,
    unread: AtomicU64,
}

impl Unfinished {
    /// Notes the start of an asynchronous call.
    pub fn note_start(&self, is_collective: bool) {
        self.collectives.fetch_add(u64::from(is_collective), Ordering::SeqCst);
        self.started.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes the end of an asynchronous call, in success or failure.
    pub fn note_end(&self, is_collective: bool, is_success: bool) {
        self.collectives.fetch_sub(u64::from(is_collective), Ordering::SeqCst);
        if !is_success {
            self.failed.fetch_add(1, Ordering::SeqCst);
        }
        self.started.fetch_sub(1, Ordering::SeqCst);
    }

    /// The number of asynchronous calls that have failed.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::SeqCst)
    }

    /// The number of asynchronous calls that have not ended.
    pub fn started(&self) -> u64 {
        self.started.load(Ordering::SeqCst)
    }

    /// The number of asynchronous collectives that have not ended.
    pub(super) fn collectives(&self) -> u64 {
        self.collectives.load(Ordering::SeqCst)
    }

    /// Sets the number of arrived messages without a receive.
    pub fn set_unread(&self, messages: u64) {
        self.unread.store(messages, Ordering::Relaxed);
    }

    /// The number of arrived messages without a receive.
    pub fn unread(&self) -> u64 {
        self.unread.load(Ordering::Relaxed)
    }
}
