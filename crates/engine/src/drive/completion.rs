//! Reports the ends of requests: to the threads that wait while another thread does the work, and to the thread that
//! runs the program's own code.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use unisono_communicator::AfterEnd;

use crate::drive::callbacks::Callbacks;
use crate::lock;

/// Notified when a request has ended and when the links are free. Costs a few atomic loads when no thread waits.
#[derive(Default)]
pub(crate) struct Completions {
    has_news: AtomicBool,
    listeners: AtomicUsize,
    /// Held by a listener that has looked and does not sleep yet.
    listening: Mutex<()>,
    signal: Condvar,
    /// The number of callbacks that wait for the end of a request.
    awaited_callbacks: AtomicUsize,
    callbacks: Arc<Callbacks>,
}

impl Completions {
    /// A request has ended. Its waker and its callbacks have a thread of their own, which holds nothing.
    pub(crate) fn announce(&self, after_end: Option<AfterEnd>) {
        if let Some(after_end) = after_end {
            self.awaited_callbacks.fetch_sub(after_end.callbacks(), Ordering::SeqCst);
            self.callbacks.push(after_end);
        }
        self.has_news.store(true, Ordering::SeqCst);
    }

    /// The thread of callbacks.
    pub(crate) fn callbacks(&self) -> &Arc<Callbacks> {
        &self.callbacks
    }

    /// Whether a callback waits for a request: then the progress thread does not leave the work to its caller.
    pub(crate) fn is_urgent(&self) -> bool {
        self.awaited_callbacks.load(Ordering::SeqCst) > 0
    }

    /// A callback is about to be added to a request. When that has ended already, [`Completions::has_ended`] follows.
    pub(crate) fn await_callback(&self) {
        self.awaited_callbacks.fetch_add(1, Ordering::SeqCst);
    }

    /// The request had ended already.
    pub(crate) fn has_ended(&self) {
        self.awaited_callbacks.fetch_sub(1, Ordering::SeqCst);
    }

    /// Notifies if a request has ended since the last notification.
    #[inline]
    pub(crate) fn notify_if_any(&self) {
        if self.has_news.load(Ordering::Relaxed) && self.has_news.swap(false, Ordering::SeqCst) {
            drop(lock(&self.listening));
            self.signal.notify_all();
        }
    }

    /// Notifies because the links are free.
    pub(crate) fn notify_after_release(&self) {
        self.notify_if_any();
        // Either this thread sees the listener, or the listener sees the free links.
        fence(Ordering::SeqCst);
        if self.listeners.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.listening));
            self.signal.notify_all();
        }
    }

    /// Sleeps until the next notification, unless `look` finds something first.
    pub(crate) fn listen(&self, look: impl Fn() -> bool, longest: Duration) {
        self.listeners.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let guard = lock(&self.listening);
        if !look() {
            drop(self.signal.wait_timeout(guard, longest).unwrap_or_else(PoisonError::into_inner));
        }
        self.listeners.fetch_sub(1, Ordering::SeqCst);
    }
}
