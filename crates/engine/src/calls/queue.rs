//! Asynchronous collectives in their order of issue.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use unisono_communicator::Collective;

use crate::calls::request::Request;
use crate::lock;

/// An asynchronous collective, and its kind.
#[derive(Clone)]
pub(crate) struct QueuedCollective {
    pub(crate) collective: Collective,
    pub(crate) request: Arc<Request>,
}

/// A queue that can be found empty without its lock, so that asynchronous calls cost blocking calls nothing.
#[derive(Default)]
pub(crate) struct Queue {
    calls: Mutex<VecDeque<QueuedCollective>>,
    length: AtomicUsize,
}

impl Queue {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.length.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn push(&self, call: QueuedCollective) {
        self.change(|calls| calls.push_back(call));
    }

    pub(crate) fn head(&self) -> Option<QueuedCollective> {
        if self.is_empty() { None } else { lock(&self.calls).front().cloned() }
    }

    /// Removes the head, which has ended.
    pub(crate) fn pop(&self) {
        let head = self.change(VecDeque::pop_front);
        // Dropped without the lock, because its memory may be the caller's last handle of something.
        drop(head);
    }

    /// Removes all calls. The caller must end them.
    pub(crate) fn drain(&self) -> Vec<QueuedCollective> {
        self.change(|calls| calls.drain(..).collect())
    }

    fn change<R>(&self, change: impl FnOnce(&mut VecDeque<QueuedCollective>) -> R) -> R {
        let mut calls = lock(&self.calls);
        let result = change(&mut calls);
        self.length.store(calls.len(), Ordering::SeqCst);
        result
    }
}
