//! Asynchronous collectives in their order of issue.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::drive::request::Request;
use crate::lock;

/// A queue whose emptiness is known without its lock, so that blocking calls do not pay for asynchronous ones.
#[derive(Default)]
pub(crate) struct Queue {
    requests: Mutex<VecDeque<Arc<Request>>>,
    length: AtomicUsize,
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.length.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn push(&self, request: Arc<Request>) {
        self.change(|requests| requests.push_back(request));
    }

    pub(crate) fn head(&self) -> Option<Arc<Request>> {
        if self.is_empty() { None } else { lock(&self.requests).front().cloned() }
    }

    /// Removes the head, which is over.
    pub(crate) fn pop(&self) {
        let head = self.change(VecDeque::pop_front);
        // Dropped without a lock: its memory may be the caller's last handle of something.
        drop(head);
    }

    /// Removes all of them; the caller must end them.
    pub(crate) fn drain(&self) -> Vec<Arc<Request>> {
        self.change(|requests| requests.drain(..).collect())
    }

    fn change<R>(&self, change: impl FnOnce(&mut VecDeque<Arc<Request>>) -> R) -> R {
        let mut requests = lock(&self.requests);
        let result = change(&mut requests);
        self.length.store(requests.len(), Ordering::SeqCst);
        result
    }
}
