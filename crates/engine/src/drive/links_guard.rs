//! Exclusive use of the links. Their holder moves its own call, and the work that all threads have queued.

use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;

use unisono_backend::Failing;
use unisono_communicator::{Error, Holding};

use crate::calls::call::Engine;
use crate::drive::Shared;
use crate::links::Links;
use crate::lock;

/// The links of a communicator, held until it is dropped.
pub(crate) struct LinksGuard<'s, L: Links + 'static> {
    pub(super) shared: &'s Shared<L>,
    /// The lock is never contended: the monitor lets one thread hold the links.
    engine: Option<MutexGuard<'s, Engine<L>>>,
    /// Whether the thread was panicking already when it took the links; then the panic is not a call's.
    is_unwinding: bool,
    _holding: Holding,
}

impl<L: Links + 'static> Shared<L> {
    /// Takes the links, and wakes their holder if there is one.
    pub(crate) fn lock_links(&self) -> LinksGuard<'_, L> {
        self.monitor.take_links(|| (self.wake)());
        self.guard()
    }

    /// Takes the links if nobody holds or wants them.
    pub(crate) fn try_lock_links(&self) -> Option<LinksGuard<'_, L>> {
        self.monitor.try_take_links().then(|| self.guard())
    }

    #[inline]
    fn guard(&self) -> LinksGuard<'_, L> {
        // A panic under the lock was a broken invariant, and has been reported. The state is used as it is.
        let engine = Some(lock(&self.engine));
        let is_unwinding = std::thread::panicking();
        LinksGuard { shared: self, engine, is_unwinding, _holding: Holding::begin() }
    }

    /// Wakes the holder of the links, if there is one, so that it sees new work.
    pub(crate) fn nudge_holder(&self) {
        if self.monitor.is_held() {
            (self.wake)();
        }
    }
}

impl<L: Links + 'static> LinksGuard<'_, L> {
    /// Gives the links to a thread that wants them, and takes them back afterwards.
    pub(crate) fn let_others(&mut self) {
        self.engine = None;
        self.shared.monitor.lend_links(|| (self.shared.wake)());
        self.engine = Some(lock(&self.shared.engine));
    }
}

impl<L: Links + 'static> Drop for LinksGuard<'_, L> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.is_unwinding {
            // Streams may have stopped in the middle of a call. So no thread may use the streams again, or wait for a
            // call that this thread had begun.
            let what = "a panic inside a call".to_owned();
            let error = Error::System { what, text: "see the log of this rank".to_owned() };
            let seen = self.shared.gate.fail(error);
            self.fail_pending(&seen);
        }
        self.engine = None;
        self.shared.monitor.give_links_back();
    }
}

impl<L: Links + 'static> Deref for LinksGuard<'_, L> {
    type Target = Engine<L>;

    fn deref(&self) -> &Engine<L> {
        #[expect(clippy::expect_used, reason = "only `let_others` empties a guard, and it fills it again")]
        self.engine.as_ref().expect("a guard holds the engine")
    }
}

impl<L: Links + 'static> DerefMut for LinksGuard<'_, L> {
    fn deref_mut(&mut self) -> &mut Engine<L> {
        #[expect(clippy::expect_used, reason = "only `let_others` empties a guard, and it fills it again")]
        self.engine.as_mut().expect("a guard holds the engine")
    }
}
