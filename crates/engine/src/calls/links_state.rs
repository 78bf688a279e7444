//! The holder of the links of a communicator, and the number of waiting threads: one word, so that a thread that finds
//! the links free takes them and gives them back by one atomic operation each.

use std::sync::atomic::{AtomicU64, Ordering};

const HELD: u64 = 1;

/// The threads that the word counts.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(super) enum Threads {
    /// They want the links.
    Wanting = HELD << 1,
    /// They sleep until the links are free, or a call has ended.
    Sleeping = HELD << 32,
}

/// The word. Each change of it is in one order with all others, so a thread that changes it and a thread that counts
/// itself cannot miss each other.
#[derive(Default)]
pub(super) struct LinksWord(AtomicU64);

/// The word at some moment.
#[derive(Clone, Copy)]
pub(super) struct LinksState(u64);

impl LinksState {
    pub(super) fn is_held(self) -> bool {
        self.0 & HELD != 0
    }

    pub(super) fn is_wanted(self) -> bool {
        self.0 & (Threads::Sleeping as u64 - Threads::Wanting as u64) != 0
    }

    pub(super) fn has_sleepers(self) -> bool {
        self.0 >= Threads::Sleeping as u64
    }
}

impl LinksWord {
    #[inline]
    pub(super) fn state(&self) -> LinksState {
        LinksState(self.0.load(Ordering::SeqCst))
    }

    /// Takes the links, if nobody holds them and the state allows it.
    #[inline]
    pub(super) fn take_if(&self, may_take: impl Fn(LinksState) -> bool) -> bool {
        let taken = |word| may_take(LinksState(word)).then_some(word | HELD).filter(|_| word & HELD == 0);
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, taken).is_ok()
    }

    /// Gives back the links, which this thread holds.
    #[inline]
    pub(super) fn give_back(&self) -> LinksState {
        LinksState(self.0.fetch_and(!HELD, Ordering::SeqCst))
    }

    /// Counts this thread.
    pub(super) fn add(&self, threads: Threads) {
        self.0.fetch_add(threads as u64, Ordering::SeqCst);
    }

    /// Counts this thread, which was counted, no more.
    pub(super) fn remove(&self, threads: Threads) -> LinksState {
        LinksState(self.0.fetch_sub(threads as u64, Ordering::SeqCst))
    }
}
