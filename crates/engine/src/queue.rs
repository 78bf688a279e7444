//! Asynchronous collectives in their order of issue.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::job::{Job, lock};

/// A queue whose emptiness is known without its lock, so that blocking calls do not pay for asynchronous ones.
#[derive(Default)]
pub(crate) struct Queue {
    jobs: Mutex<VecDeque<Arc<Job>>>,
    length: AtomicUsize,
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.length.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn push(&self, job: Arc<Job>) {
        self.change(|jobs| jobs.push_back(job));
    }

    pub(crate) fn head(&self) -> Option<Arc<Job>> {
        if self.is_empty() { None } else { lock(&self.jobs).front().cloned() }
    }

    /// Removes the head, which is over.
    pub(crate) fn pop(&self) {
        let head = self.change(VecDeque::pop_front);
        // Its memory may be the caller's last handle of something; no lock is held any more.
        drop(head);
    }

    /// Everything, which must end now.
    pub(crate) fn drain(&self) -> Vec<Arc<Job>> {
        self.change(|jobs| jobs.drain(..).collect())
    }

    fn change<R>(&self, change: impl FnOnce(&mut VecDeque<Arc<Job>>) -> R) -> R {
        let mut jobs = lock(&self.jobs);
        let result = change(&mut jobs);
        self.length.store(jobs.len(), Ordering::SeqCst);
        result
    }
}
