//! Reports the ends of requests: wakes their tasks, and the threads that wait while another thread does the work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use unisono_communicator::{Notices, Severity, log};

use crate::drive::callbacks::Callbacks;
use crate::lock;

/// Notified when a request has ended and when the links are free. Costs a few atomic loads when no thread waits.
#[derive(Default)]
pub(crate) struct Completions {
    has_news: AtomicBool,
    listeners: AtomicUsize,
    /// Wakers of ended requests. Called without any other lock held: a waker may ask, or submit, at once.
    wakers: Mutex<Vec<Waker>>,
    signal: Condvar,
    /// The number of callbacks that wait for the end of a request.
    awaited_callbacks: AtomicUsize,
    callbacks: Arc<Callbacks>,
}

impl Completions {
    /// A request has ended. Its waker is called at the next notification; its callbacks have a thread of their own.
    pub(crate) fn announce(&self, notices: Notices) {
        if let Some(waker) = notices.waker {
            lock(&self.wakers).push(waker);
        }
        if let Some(after_end) = notices.after_end {
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
            let wakers = std::mem::take(&mut *lock(&self.wakers));
            wakers.into_iter().for_each(wake);
            self.signal.notify_all();
        }
    }

    /// Notifies because the links are free.
    pub(crate) fn notify_after_release(&self) {
        self.notify_if_any();
        // Either this thread sees the listener, or the listener sees the free links.
        fence(Ordering::SeqCst);
        if self.listeners.load(Ordering::SeqCst) > 0 {
            // A listener that has looked but does not sleep yet holds this lock.
            drop(lock(&self.wakers));
            self.signal.notify_all();
        }
    }

    /// Sleeps until the next notification, unless `look` finds something first.
    pub(crate) fn listen(&self, look: impl Fn() -> bool, longest: Duration) {
        self.listeners.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let guard = lock(&self.wakers);
        if !look() {
            drop(self.signal.wait_timeout(guard, longest).unwrap_or_else(PoisonError::into_inner));
        }
        self.listeners.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Calls a waker. If it panics, the thread goes on: it moves the calls of all.
fn wake(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        let problem = "the waker of an asynchronous call has panicked; its task may never be polled again";
        log(Severity::Warn, None, format_args!("{problem}"));
    }
}
