//! Whose turn it is in a library that can serve only one thread of a process at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use unisono_backend::{Pass, Turnstile};

/// One thread at a time, whatever the communicator; the others in the order in which they came.
///
/// A thread that holds it waits, inside the library, for other ranks. So threads of two ranks must not hold it for two
/// communicators at once and wait for each other: calls whose ranks have met take it on all ranks or on none.
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
    /// Nobody has it.
    pub fn new() -> LibraryTurn {
        LibraryTurn::default()
    }

    /// The turn, unless it does not come until then or `gave_up` says so; see [`LibraryTurn::recheck`].
    pub(crate) fn take(&self, until: Option<Instant>, gave_up: impl Fn() -> bool) -> Option<LibraryPass> {
        let pass = match Turnstile::try_pass(self.order.clone()) {
            Some(pass) => Some(pass),
            None => Turnstile::wait(self.order.clone(), until, || gave_up() || self.is_stuck()),
        };
        pass.map(|pass| LibraryPass { _pass: pass })
    }

    /// Threads that wait look again whether they give up.
    pub(crate) fn recheck(&self) {
        self.order.recheck();
    }

    /// A thread is in the library that may never leave it; false when it has left after all.
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
