//! A slot at which a thread waits for another: for a value that is set once, or for a reason to give up.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest sleep. A reason to give up may come without a wake-up.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// A place for one value.
pub(crate) struct Slot<T> {
    value: Mutex<Option<T>>,
    changed: Condvar,
}

impl<T> Default for Slot<T> {
    fn default() -> Slot<T> {
        Slot { value: Mutex::new(None), changed: Condvar::new() }
    }
}

impl<T> Slot<T> {
    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the value.
    pub(crate) fn set(&self, value: T) {
        *self.lock() = Some(value);
        self.changed.notify_all();
    }

    /// Waits for the value until `until` at most, or until `gives_up` returns true.
    pub(crate) fn take(&self, until: Instant, gives_up: impl Fn() -> bool) -> Option<T> {
        let mut value = self.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if value.is_some() || left.is_zero() || gives_up() {
                return value.take();
            }
            let woken = self.changed.wait_timeout(value, left.min(SLEEP_MAX));
            value = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
