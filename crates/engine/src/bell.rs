//! Wakes the threads that wait for their work while another thread does it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::job::lock;

/// Rung when a job has ended and when the baton is free. One atomic load when nobody listens.
#[derive(Default)]
pub(crate) struct Bell {
    listeners: AtomicUsize,
    lock: Mutex<()>,
    signal: Condvar,
}

impl Bell {
    /// Wakes every listener.
    pub(crate) fn ring(&self) {
        if self.listeners.load(Ordering::SeqCst) > 0 {
            // A listener that has looked but does not sleep yet holds this lock.
            drop(lock(&self.lock));
            self.signal.notify_all();
        }
    }

    /// Sleeps until the bell is rung, unless `look` finds something first.
    pub(crate) fn listen(&self, look: impl Fn() -> bool, longest: Duration) {
        self.listeners.fetch_add(1, Ordering::SeqCst);
        let guard = lock(&self.lock);
        if !look() {
            drop(self.signal.wait_timeout(guard, longest).unwrap_or_else(PoisonError::into_inner));
        }
        self.listeners.fetch_sub(1, Ordering::SeqCst);
    }
}
