//! Tasks for the drive loop: one blocking collective, and all asynchronous work.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use unisono_backend::CollectiveWait;
use unisono_communicator::{Buffers, Result};

use crate::calls::call::{ActiveCall, Engine};
use crate::calls::pause::Pause;
use crate::calls::queue::QueuedCollective;
use crate::calls::request::{ActiveRequest, RequestState};
use crate::calls::step::Step;
use crate::drive::{LinksGuard, Shared, Task};
use crate::links::Links;
use crate::lock;

/// The longest sleep at the monitor, as a protection against a lost notification. With debug assertions such a loss is
/// a hang.
const LISTEN_MAX: Duration =
    if cfg!(debug_assertions) { Duration::from_secs(3600) } else { Duration::from_millis(100) };

/// A blocking collective on borrowed memory.
pub(crate) struct OneCollective<'c, 'b, L: Links + 'static> {
    pub(crate) shared: &'c Shared<L>,
    pub(crate) active: &'c mut ActiveCall,
    pub(crate) buffers: &'c mut Buffers<'b>,
}

impl<L: Links + 'static> Task<L> for OneCollective<'_, '_, L> {
    fn step(&mut self, engine: &mut Engine<L>) -> Result<Step> {
        let step = self.active.step(engine, self.buffers, &self.shared.gate)?;
        self.shared.with_messages(engine, step)
    }

    fn idle(&mut self, engine: &mut Engine<L>, now: Instant) -> Result<()> {
        self.active.idle(&mut engine.links, &self.shared.gate, &self.shared.options, now)
    }

    fn grace(&self) -> Duration {
        self.active.grace()
    }

    fn pause(&mut self, engine: &mut Engine<L>, pause: &mut Pause) -> bool {
        self.active.pause(&mut engine.links, self.shared.gate.group(), pause);
        lock(&self.shared.messages).pause(&mut engine.links, &[], pause);
        true
    }
}

/// The queue and the messages, until `goal` is reached or `until` has come.
pub(crate) struct Pending<'s, L: Links + 'static, G> {
    shared: &'s Shared<L>,
    goal: G,
    until: Option<Instant>,
    is_late: bool,
}

impl<'s, L: Links + 'static, G: FnMut(&mut L) -> bool> Pending<'s, L, G> {
    pub(crate) fn new(shared: &'s Shared<L>, goal: G) -> Pending<'s, L, G> {
        Pending { shared, goal, until: None, is_late: false }
    }

    pub(crate) fn until(shared: &'s Shared<L>, goal: G, until: Instant) -> Pending<'s, L, G> {
        Pending { shared, goal, until: Some(until), is_late: false }
    }
}

impl<L: Links + 'static, G: FnMut(&mut L) -> bool> Task<L> for Pending<'_, L, G> {
    fn step(&mut self, engine: &mut Engine<L>) -> Result<Step> {
        if self.is_late || (self.goal)(&mut engine.links) {
            return Ok(Step::Finished);
        }
        self.shared.monitor.pool().pass_on();
        self.shared.advance_pending(engine)
    }

    fn idle(&mut self, engine: &mut Engine<L>, now: Instant) -> Result<()> {
        self.is_late = self.until.is_some_and(|until| now >= until);
        let Shared { gate, options, .. } = self.shared;
        let idle = |request: &mut ActiveRequest| request.active.idle(&mut engine.links, gate, options, now);
        self.shared.with_head(idle).unwrap_or(Ok(()))
    }

    fn grace(&self) -> Duration {
        self.shared.with_head(|request| request.active.grace()).unwrap_or_default()
    }

    fn pause(&mut self, engine: &mut Engine<L>, pause: &mut Pause) -> bool {
        let group = self.shared.gate.group();
        self.shared.with_head(|request| request.active.pause(&mut engine.links, group, pause));
        lock(&self.shared.messages).pause(&mut engine.links, &[], pause);
        pause.end_by(self.until);
        !self.is_late
    }
}

impl<L: Links + 'static> Shared<L> {
    /// Whether asynchronous work is unfinished.
    pub(crate) fn has_pending(&self) -> bool {
        !self.queue.is_empty() || lock(&self.messages).is_pending()
    }

    /// Calls `act` with the asynchronous collective in progress, if there is one.
    fn with_head<R>(&self, act: impl FnOnce(&mut ActiveRequest) -> R) -> Option<R> {
        let head = self.queue.head()?;
        match &mut *lock(&head.request.state) {
            RequestState::Active(request) => Some(act(request)),
            RequestState::Queued(_) | RequestState::Taken => None,
        }
    }

    /// Also moves the posted sends and receives. Gives the result of the whole poll.
    pub(crate) fn with_messages(&self, engine: &mut Engine<L>, step: Step) -> Result<Step> {
        self.hear_of_closing(&mut engine.links);
        if !self.has_messages.load(Ordering::SeqCst) {
            return Ok(step);
        }
        let mut messages = lock(&self.messages);
        if !messages.needs_polls() {
            self.has_messages.store(false, Ordering::SeqCst);
            return Ok(step);
        }
        let moved = messages.advance(&mut engine.links, &mut [])?;
        messages.look_after_waits(engine.links.now(), &self.gate, &self.options)?;
        Ok(match step {
            Step::Idle if moved => Step::OthersMoved,
            other => other,
        })
    }

    /// Looks after the posted sends and receives: asks, warns, and ends late ones.
    pub(crate) fn look_after_messages(&self, now: Instant) -> Result<()> {
        lock(&self.messages).look_after_waits(now, &self.gate, &self.options)
    }

    /// Polls the head of the queue and the messages once.
    pub(crate) fn advance_pending(&self, engine: &mut Engine<L>) -> Result<Step> {
        let step = match self.queue.head() {
            Some(call) => self.step_queued(&call, engine)?,
            None => Step::Idle,
        };
        self.with_messages(engine, step)
    }

    /// Polls one asynchronous collective once. A finished one leaves the queue.
    fn step_queued(&self, queued: &QueuedCollective, engine: &mut Engine<L>) -> Result<Step> {
        let QueuedCollective { collective, request } = queued;
        let mut state = lock(&request.state);
        if let RequestState::Queued(_) = &*state {
            let RequestState::Queued(mut call) = std::mem::replace(&mut *state, RequestState::Taken) else {
                return Ok(Step::Moved);
            };
            let mut borrowed = call.borrow();
            match ActiveCall::plan(*collective, &borrowed, engine) {
                Ok(planned) => {
                    let (gate, enclosing) = (&self.gate, request.enclosing.as_ref());
                    let mut active =
                        ActiveCall::begin(*collective, planned, &mut borrowed, engine, gate, enclosing);
                    active.move_in(&mut call.buffers);
                    *state = RequestState::Active(Box::new(ActiveRequest { active, call }));
                }
                Err(error) => {
                    drop(state);
                    request.finish(Err(error), Some(call.buffers));
                    self.queue.pop();
                    return Ok(Step::Moved);
                }
            }
        }
        let RequestState::Active(active_request) = &mut *state else { return Ok(Step::Moved) };
        let ActiveRequest { active, call } = &mut **active_request;
        let step = active.step(engine, &mut call.buffers.borrow(), &self.gate)?;
        let Step::Finished = step else { return Ok(step) };
        let RequestState::Active(finished) = std::mem::replace(&mut *state, RequestState::Taken) else {
            return Ok(Step::Moved);
        };
        drop(state);
        let ActiveRequest { mut active, call } = *finished;
        self.gate.board().leave(active.number, active.course());
        let mut buffers = active.move_out(call.buffers);
        let bytes = buffers.as_mut().map_or(0, |buffers| buffers.borrow().bytes_max());
        let outcome = active.finish(engine, self.gate.group(), bytes);
        request.finish(Ok(outcome), buffers);
        self.queue.pop();
        Ok(Step::Moved)
    }

    /// Runs every queued collective to its end.
    pub(crate) fn finish_queue(&self, guard: &mut LinksGuard<'_, L>) -> Result<()> {
        if self.queue.is_empty() {
            return Ok(());
        }
        let _shown = CollectiveWait::new(self.gate.board().clone());
        let mut task = Pending::new(self, |_: &mut L| self.queue.is_empty());
        guard.drive(&mut task).map_err(|error| self.gate.settle(guard, error))
    }

    /// Moves all asynchronous work that can move, without waiting.
    pub(crate) fn advance_all(&self, guard: &mut LinksGuard<'_, L>) -> Result<()> {
        while self.has_pending() {
            match self.advance_pending(guard) {
                Ok(Step::Moved | Step::OthersMoved) => {}
                Ok(Step::Finished | Step::Idle) => return Ok(()),
                Err(error) => return Err(self.gate.settle(guard, error)),
            }
        }
        Ok(())
    }

    /// Moves asynchronous work until all of it has ended, `goal` is reached, or another thread wants the links.
    pub(crate) fn drive_pending(
        &self,
        guard: &mut LinksGuard<'_, L>,
        until: Option<Instant>,
        goal: impl Fn() -> bool,
    ) {
        let goal = |_: &mut L| goal() || self.monitor.is_wanted() || !self.has_pending();
        if let Err(error) = guard.drive(&mut Pending { until, ..Pending::new(self, goal) }) {
            self.gate.settle(guard, error);
        }
    }

    /// Waits until `goal` is reached or `until` has come. Drives the links if they are free; else sleeps at the
    /// monitor.
    pub(crate) fn wait_for(&self, until: Option<Instant>, goal: impl Fn() -> bool) {
        let time_left = || until.map(|until| until.saturating_duration_since(Instant::now()));
        let goal = || goal() || time_left().is_some_and(|left| left.is_zero());
        while !goal() {
            match self.try_lock_links() {
                Some(mut guard) => self.drive_pending(&mut guard, until, goal),
                None => {
                    let longest = time_left().map_or(LISTEN_MAX, |left| left.min(LISTEN_MAX));
                    self.monitor.sleep(goal, longest);
                }
            }
        }
    }
}
