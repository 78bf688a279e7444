//! An asynchronous call: queued, then run by whoever holds the baton, then waiting for its result to be fetched.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task;

use unisono_communicator::{
    CallInfo, Descriptor, Error, Finished, Outcome, OwnedBuffers, OwnedCall, Result, Site, WorkSource,
};

use crate::active::ActiveCall;
use crate::baton::Shared;
use crate::bell::Bell;
use crate::board::Board;
use crate::links::Links;

/// An asynchronous call and its state.
pub(crate) struct Job {
    pub(crate) state: Mutex<JobState>,
    is_done: AtomicBool,
    waker: Mutex<Option<task::Waker>>,
    bell: Arc<Bell>,
    pub(crate) descriptor: Descriptor,
    site: Site,
    /// Of a send or receive: where its end is noted, and its number there.
    noted: Option<(Arc<Board>, u64)>,
}

/// Where a job is.
pub(crate) enum JobState {
    /// Not begun.
    Queued(OwnedCall),
    /// At the head of the queue.
    Active(Box<ActiveJob>),
    /// Over; the result is there until it is fetched.
    Finished(Option<Finished>),
}

/// A call in progress with the memory that it owns.
pub(crate) struct ActiveJob {
    pub(crate) active: ActiveCall,
    pub(crate) call: OwnedCall,
}

impl Job {
    /// A job that has not begun.
    pub(crate) fn new(call: OwnedCall, bell: Arc<Bell>) -> Arc<Job> {
        Arc::new(Job::with(call, bell, None))
    }

    /// The job of a send or receive, which `board` remembers.
    pub(crate) fn message(call: OwnedCall, bell: Arc<Bell>, board: &Arc<Board>) -> Arc<Job> {
        let number = board.enter_message(&call.descriptor, call.site);
        Arc::new(Job::with(call, bell, Some((board.clone(), number))))
    }

    fn with(call: OwnedCall, bell: Arc<Bell>, noted: Option<(Arc<Board>, u64)>) -> Job {
        Job {
            bell,
            noted,
            is_done: AtomicBool::new(false),
            waker: Mutex::new(None),
            descriptor: call.descriptor,
            site: Site::from(call.site),
            state: Mutex::new(JobState::Queued(call)),
        }
    }

    /// Whether the call has ended.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    /// Ends the job.
    pub(crate) fn finish(&self, result: Result<Outcome>, buffers: OwnedBuffers) {
        if let (Some((board, number)), Ok(_)) = (&self.noted, &result) {
            board.leave_message(*number);
        }
        *lock(&self.state) = JobState::Finished(Some(Finished { result, buffers: Some(buffers) }));
        self.is_done.store(true, Ordering::Release);
        let waker = lock(&self.waker).take();
        self.bell.announce(waker);
    }

    /// Ends a job with an error, wherever it is.
    pub(crate) fn fail(&self, error: Error) {
        let state = std::mem::replace(&mut *lock(&self.state), JobState::Finished(None));
        match state {
            JobState::Queued(call) => self.finish(Err(error), call.buffers),
            JobState::Active(job) => self.finish(Err(error), job.call.buffers),
            JobState::Finished(finished) => *lock(&self.state) = JobState::Finished(finished),
        }
    }

    /// Takes the result, once.
    pub(crate) fn take(&self) -> Option<Finished> {
        match &mut *lock(&self.state) {
            JobState::Finished(finished) => finished.take(),
            JobState::Queued(_) | JobState::Active(_) => None,
        }
    }

    fn info(&self) -> CallInfo {
        let (site, sizes) = (Some(self.site.clone()), None);
        CallInfo { number: 0, descriptor: self.descriptor, algorithm: None, site, sizes }
    }
}

/// The caller's handle of a job.
pub(crate) struct JobHandle<L: Links + 'static> {
    pub(crate) job: Arc<Job>,
    pub(crate) shared: Arc<Shared<L>>,
}

impl<L: Links + 'static> WorkSource for JobHandle<L> {
    fn is_done(&self) -> bool {
        if !self.job.is_done()
            && let Some(mut baton) = self.shared.try_baton()
        {
            // The error, if there is one, has ended every job.
            let _ = self.shared.advance_all(&mut baton);
        }
        self.job.is_done()
    }

    fn wait(&self) {
        if !self.job.is_done() {
            self.shared.wait_for(|| self.job.is_done());
        }
    }

    fn register(&self, waker: &task::Waker) {
        *lock(&self.job.waker) = Some(waker.clone());
        // The end may have come between the caller's last question and this registration.
        if self.job.is_done() {
            waker.wake_by_ref();
        }
    }

    fn take(&self) -> Option<Finished> {
        self.job.take()
    }

    fn cancel(&self) {
        if self.job.is_done() {
            return;
        }
        let by = self.shared.group.rank();
        self.shared.fail(Error::Cancelled { by, call: Box::new(self.job.info()) });
        let mut baton = self.shared.take_baton();
        let _ = self.shared.advance_all(&mut baton);
    }
}

#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
