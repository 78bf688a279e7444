//! Reports the ends of requests: wakes their tasks, and the threads that wait while another thread does the work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use crate::lock;

/// Notified when a request has ended and when the links are free. Costs a few atomic loads when no thread waits.
#[derive(Default)]
pub(crate) struct Completions {
    has_news: AtomicBool,
    listeners: AtomicUsize,
    /// Wakers of ended requests. Called without any other lock held: a waker may ask, or submit, at once.
    wakers: Mutex<Vec<Waker>>,
    signal: Condvar,
}

impl Completions {
    /// A request has ended; its waker is called at the next notification.
    pub(crate) fn announce(&self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            lock(&self.wakers).push(waker);
        }
        self.has_news.store(true, Ordering::SeqCst);
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
        tracing::error!("the waker of an asynchronous call has panicked; its task may never be polled again");
    }
}
