//! The turn in a library that can serve only one thread of a process at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use unisono_backend::{Pass, Turnstile};

/// Lets one thread at a time into the library, over all communicators. The others follow in the order in which they
/// came.
///
/// A thread with the turn waits for other ranks inside the library. Threads of two ranks that had the turn for two
/// different communicators would wait for each other. So calls whose ranks have met take the turn on all ranks or on
/// none.
#[derive(Default)]
pub struct LibraryTurn {
    order: Arc<Turnstile>,
    stuck: AtomicUsize,
}

/// The turn, until it is dropped.
pub(crate) struct LibraryPass {
    _pass: Pass<Arc<Turnstile>>,
}

impl LibraryTurn {
    /// A turn that no thread has.
    pub fn new() -> LibraryTurn {
        LibraryTurn::default()
    }

    /// Takes the turn. `None` if it has not come by `until`, or if `gave_up` returns true; see
    /// [`LibraryTurn::recheck`].
    pub(crate) fn take(&self, until: Option<Instant>, gave_up: impl Fn() -> bool) -> Option<LibraryPass> {
        let pass = match Turnstile::try_pass(self.order.clone()) {
            Some(pass) => Some(pass),
            None => Turnstile::wait(self.order.clone(), until, || gave_up() || self.is_stuck()),
        };
        pass.map(|pass| LibraryPass { _pass: pass })
    }

    /// Makes the waiting threads check again whether to give up.
    pub(crate) fn recheck(&self) {
        self.order.recheck();
    }

    /// Notes that a thread is in the library that may never leave it, or, with false, that the thread has left after
    /// all.
    pub(crate) fn set_stuck(&self, is_stuck: bool) {
        if is_stuck {
            self.stuck.fetch_add(1, Ordering::SeqCst);
            self.recheck();
        } else {
            self.stuck.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether the turn may never come: a thread hangs in the library.
    pub fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::SeqCst) > 0
    }
}
