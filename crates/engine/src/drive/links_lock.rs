//! The lock on the links: its holder moves them, for itself and for every thread that has queued work.
//!
//! The holder moves all asynchronous work, so a thread that waits for its work needs the links only when nobody has
//! them; until then it waits for completions. A thread with a collective of its own takes the links from a waiter.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError, TryLockError};

use unisono_backend::Failing;
use unisono_communicator::{Error, Holding};

use crate::drive::Shared;
use crate::drive::call::Engine;
use crate::links::Links;

/// Exclusive use of the links.
pub(crate) struct LinksGuard<'s, L: Links + 'static> {
    pub(super) shared: &'s Shared<L>,
    engine: Option<MutexGuard<'s, Engine<L>>>,
    /// It was taken by a thread that was panicking already: that is no panic of a call.
    is_unwinding: bool,
    _holding: Holding,
}

impl<L: Links + 'static> Shared<L> {
    /// Takes the links, waking their holder if there is one.
    pub(crate) fn lock_links(&self) -> LinksGuard<'_, L> {
        self.guard(self.acquire())
    }

    fn guard<'s>(&'s self, engine: MutexGuard<'s, Engine<L>>) -> LinksGuard<'s, L> {
        let is_unwinding = std::thread::panicking();
        LinksGuard { shared: self, engine: Some(engine), is_unwinding, _holding: Holding::begin() }
    }

    /// A panic under the lock was a broken invariant and has been reported. The state that it left is used as it is.
    fn try_acquire(&self) -> Option<MutexGuard<'_, Engine<L>>> {
        let engine = match self.engine.try_lock() {
            Ok(engine) => engine,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        self.is_held.store(true, Ordering::SeqCst);
        Some(engine)
    }

    fn acquire(&self) -> MutexGuard<'_, Engine<L>> {
        if let Some(engine) = self.try_acquire() {
            return engine;
        }
        self.waiters.fetch_add(1, Ordering::SeqCst);
        (self.wake)();
        let engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        self.is_held.store(true, Ordering::SeqCst);
        engine
    }

    /// Wakes the holder of the links, if there is one, so that it sees new work.
    pub(crate) fn nudge_holder(&self) {
        if !self.is_free() {
            (self.wake)();
        }
    }

    /// Whether nobody holds the links. Looks without touching them.
    pub(crate) fn is_free(&self) -> bool {
        !self.is_held.load(Ordering::SeqCst)
    }

    /// Takes the links if nobody holds or wants them.
    pub(crate) fn try_lock_links(&self) -> Option<LinksGuard<'_, L>> {
        if self.is_wanted() {
            return None;
        }
        self.try_acquire().map(|engine| self.guard(engine))
    }

    /// Whether another thread waits for the links.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) > 0
    }
}

impl<L: Links + 'static> LinksGuard<'_, L> {
    /// Gives the links to a thread that wants them, and takes them again afterwards.
    pub(crate) fn let_others(&mut self) {
        self.shared.is_held.store(false, Ordering::SeqCst);
        self.engine = None;
        while self.shared.is_wanted() {
            std::thread::yield_now();
        }
        self.engine = Some(self.shared.acquire());
    }
}

impl<L: Links + 'static> Drop for LinksGuard<'_, L> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.is_unwinding {
            // Streams may have stopped in the middle of a call, so no thread may use them again, and no thread may wait
            // for a call that this one had begun.
            let what = "a panic inside a call".to_owned();
            let error = Error::System { what, text: "see the log of this rank".to_owned() };
            let seen = self.shared.gate.fail(error);
            self.fail_pending(&seen);
        }
        self.shared.is_held.store(false, Ordering::SeqCst);
        self.engine = None;
        self.shared.completions.notify_after_release();
    }
}

impl<L: Links + 'static> Deref for LinksGuard<'_, L> {
    type Target = Engine<L>;

    fn deref(&self) -> &Engine<L> {
        // INVARIANT: only `let_others` empties a guard, and fills it again before it returns.
        self.engine.as_ref().expect("a guard holds the engine")
    }
}

impl<L: Links + 'static> DerefMut for LinksGuard<'_, L> {
    fn deref_mut(&mut self) -> &mut Engine<L> {
        // INVARIANT: only `let_others` empties a guard, and fills it again before it returns.
        self.engine.as_mut().expect("a guard holds the engine")
    }
}
