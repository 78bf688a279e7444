//! What a holder of the baton drives: one blocking collective, or everything asynchronous.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use unisono_communicator::{Buffers, Error, Result};

use crate::active::{ActiveCall, Engine};
use crate::baton::{Baton, Pause, Shared, Step, Task};
use crate::communicator::buffers_bytes;
use crate::control::ask_for_the_call;
use crate::job::{ActiveJob, Job, JobState, lock};
use crate::links::Links;
use crate::point_to_point::Loan;

/// Longest sleep at the bell.
const LISTEN_MAX: Duration = Duration::from_millis(100);

/// A blocking collective on lent memory.
pub(crate) struct OneCollective<'c, 'b, L: Links + 'static> {
    pub(crate) shared: &'c Shared<L>,
    pub(crate) active: ActiveCall,
    pub(crate) buffers: &'c mut Buffers<'b>,
}

impl<L: Links + 'static> Task<L> for OneCollective<'_, '_, L> {
    fn step(&mut self, engine: &mut Engine<L>) -> Result<Step> {
        let step = self.shared.step_active(&mut self.active, engine, self.buffers)?;
        self.shared.with_mail(engine, step)
    }

    fn idle(&mut self, engine: &mut Engine<L>, now: Instant) -> Result<()> {
        self.active.idle(&mut engine.links, &self.shared.board, now)
    }

    fn pause(&mut self, engine: &mut Engine<L>, pause: &mut Pause) {
        self.active.pause(&mut engine.links, pause);
        lock(&self.shared.mail).pause(&mut engine.links, pause);
    }
}

/// The queue and the mail, until a goal is reached or nothing is left.
pub(crate) struct Pending<'s, L: Links + 'static, G> {
    pub(crate) shared: &'s Shared<L>,
    pub(crate) goal: G,
}

impl<L: Links + 'static, G: Fn() -> bool> Task<L> for Pending<'_, L, G> {
    fn step(&mut self, engine: &mut Engine<L>) -> Result<Step> {
        if (self.goal)() { Ok(Step::Finished) } else { self.shared.advance_pending(engine) }
    }

    fn idle(&mut self, engine: &mut Engine<L>, now: Instant) -> Result<()> {
        self.shared
            .with_head(|job| job.active.idle(&mut engine.links, &self.shared.board, now))
            .unwrap_or(Ok(()))
    }

    fn pause(&mut self, engine: &mut Engine<L>, pause: &mut Pause) {
        self.shared.with_head(|job| job.active.pause(&mut engine.links, pause));
        lock(&self.shared.mail).pause(&mut engine.links, pause);
    }
}

impl<L: Links + 'static> Shared<L> {
    /// Whether asynchronous work is not finished.
    pub(crate) fn has_pending(&self) -> bool {
        !self.queue.is_empty() || lock(&self.mail).is_pending()
    }

    /// One turn of one collective.
    pub(crate) fn step_active(
        &self,
        active: &mut ActiveCall,
        engine: &mut Engine<L>,
        buffers: &mut Buffers<'_>,
    ) -> Result<Step> {
        self.check_revoked()?;
        let moved = match active.advance(engine, buffers) {
            Ok(moved) => moved,
            Err(failure) => {
                return Err(active.error(failure, self.group.rank(), &self.peers));
            }
        };
        Ok(match (active.is_finished(), moved) {
            (true, _) => Step::Finished,
            (false, true) => Step::Moved,
            (false, false) => Step::Idle,
        })
    }

    /// Does something with the asynchronous collective in progress, if there is one.
    fn with_head<R>(&self, act: impl FnOnce(&mut ActiveJob) -> R) -> Option<R> {
        let head = self.queue.head()?;
        match &mut *lock(&head.state) {
            JobState::Active(job) => Some(act(job)),
            JobState::Queued(_) | JobState::Finished(_) => None,
        }
    }

    /// The same step with the posted sends and receives moved too.
    pub(crate) fn with_mail(&self, engine: &mut Engine<L>, step: Step) -> Result<Step> {
        if !self.has_mail.load(Ordering::SeqCst) {
            return Ok(step);
        }
        let mut mail = lock(&self.mail);
        if !mail.is_pending() {
            self.has_mail.store(false, Ordering::SeqCst);
            return Ok(step);
        }
        let moved = mail.advance(&mut engine.links, &mut Loan::none())?;
        Ok(match step {
            Step::Idle if moved => Step::Moved,
            other => other,
        })
    }

    /// One turn of the head of the queue and of the mail. `Finished` when nothing is pending.
    pub(crate) fn advance_pending(&self, engine: &mut Engine<L>) -> Result<Step> {
        let head = self.queue.head();
        let step = match head {
            Some(job) => self.step_job(&job, engine)?,
            None if lock(&self.mail).is_pending() => {
                self.check_revoked()?;
                Step::Idle
            }
            None => Step::Finished,
        };
        self.with_mail(engine, step)
    }

    /// One turn of one asynchronous collective; a finished one leaves the queue.
    fn step_job(&self, job: &Arc<Job>, engine: &mut Engine<L>) -> Result<Step> {
        self.check_revoked()?;
        let mut state = lock(&job.state);
        if let JobState::Queued(_) = &*state {
            let JobState::Queued(mut call) = std::mem::replace(&mut *state, JobState::Finished(None)) else {
                return Ok(Step::Moved);
            };
            let ranks = self.group.size();
            let started =
                ActiveCall::start(&mut call.borrow(), engine, &self.board, ranks, self.options.timeout);
            match started {
                Ok(active) => *state = JobState::Active(Box::new(ActiveJob { active, call })),
                Err(error) => {
                    drop(state);
                    self.queue.pop();
                    job.finish(Err(error), call.buffers);
                    return Ok(Step::Moved);
                }
            }
        }
        let JobState::Active(active_job) = &mut *state else { return Ok(Step::Moved) };
        let ActiveJob { active, call } = &mut **active_job;
        let step = self.step_active(active, engine, &mut call.buffers.borrow())?;
        let Step::Finished = step else { return Ok(step) };
        let JobState::Active(finished) = std::mem::replace(&mut *state, JobState::Finished(None)) else {
            return Ok(Step::Moved);
        };
        drop(state);
        let ActiveJob { active, mut call } = *finished;
        self.board.leave(active.number);
        let bytes = buffers_bytes(&call.buffers.borrow());
        let outcome = active.finish(engine, bytes);
        self.queue.pop();
        job.finish(Ok(outcome), call.buffers);
        Ok(Step::Moved)
    }

    /// Runs every queued collective to its end.
    pub(crate) fn finish_queue(&self, baton: &mut Baton<'_, L>) -> Result<()> {
        if self.queue.is_empty() {
            return Ok(());
        }
        let mut task = Pending { shared: self, goal: || self.queue.is_empty() };
        baton.drive(&mut task).map_err(|error| self.settle(baton, error))
    }

    /// Sees every detached send off: the process may be about to end.
    pub(crate) fn finish_sends(&self, baton: &mut Baton<'_, L>) -> Result<()> {
        let mut task = Pending { shared: self, goal: || !lock(&self.mail).is_sending() };
        baton.drive(&mut task).map_err(|error| self.settle(baton, error))
    }

    /// One turn of everything asynchronous, without waiting.
    pub(crate) fn advance_all(&self, baton: &mut Baton<'_, L>) -> Result<()> {
        loop {
            match self.advance_pending(baton) {
                Ok(Step::Moved) => {}
                Ok(Step::Finished | Step::Idle) => return Ok(()),
                Err(error) => return Err(self.settle(baton, error)),
            }
        }
    }

    /// Waits until `goal` is reached: at the bell while another thread does the work, else doing it.
    pub(crate) fn wait_for(&self, goal: impl Fn() -> bool) {
        while !goal() {
            match self.try_baton() {
                Some(mut baton) => {
                    let enough = || goal() || self.is_wanted();
                    if let Err(error) = baton.drive(&mut Pending { shared: self, goal: enough }) {
                        self.settle(&mut baton, error);
                    }
                }
                None => self.bell.listen(|| goal() || (self.is_free() && !self.is_wanted()), LISTEN_MAX),
            }
        }
    }

    /// After a failure: makes it the first cause unless a better one is on its way, and ends all asynchronous work.
    pub(crate) fn settle(&self, baton: &mut Baton<'_, L>, error: Error) -> Error {
        if matches!(error, Error::Mismatch { .. }) {
            ask_for_the_call(&*self.control, &self.board, &error);
        }
        if matches!(error, Error::Mismatch { .. } | Error::PeerLost { .. }) {
            baton.await_first_cause();
        }
        let seen = self.fail(error);
        self.queue.drain().iter().for_each(|job| job.fail(seen.clone()));
        lock(&self.mail).fail(&seen);
        seen
    }
}
