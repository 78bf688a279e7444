//! The only loop that moves every call: blocking and asynchronous collectives, sends, receives, batches.
//!
//! While bytes move, the loop does not pause. When they stop, it waits as `idling` says. It reads the clock only after
//! a poll in which the task's own call did not move.

use std::sync::Once;
use std::time::{Duration, Instant};

use unisono_backend::IDLE_AFTER_CAUSE_MAX;
use unisono_communicator::{Result, Severity, log};

use crate::calls::call::Engine;
use crate::calls::idling::{Idle, LOOKS, before_look};
use crate::calls::pause::{Pause, SLEEP_MAX};
use crate::calls::step::Step;
use crate::calls::time_slice;
use crate::drive::LinksGuard;
use crate::links::{Links, Wake};

/// The work that the holder of the links drives.
pub(crate) trait Task<L> {
    /// Moves all bytes that can move, without waiting.
    fn step(&mut self, engine: &mut Engine<L>) -> Result<Step>;

    /// Called when the task's own call did not move, at `now`: asks ranks, warns, or ends the call.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Timeout`] after a deadline.
    fn idle(&mut self, engine: &mut Engine<L>, now: Instant) -> Result<()>;

    /// Adds the awaited events to an empty pause, after an idle step. False if the task must be polled again before a
    /// sleep.
    fn pause(&mut self, engine: &mut Engine<L>, pause: &mut Pause) -> bool;

    /// The time for which the task's own call may stand still after a first cause, beyond the time of others.
    fn grace(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether another thread may take the links between two steps. A task that cannot lend them ends instead.
    fn lends_links(&self) -> bool {
        true
    }
}

impl<L: Links + 'static> LinksGuard<'_, L> {
    /// Steps a task until it is finished.
    pub(crate) fn drive(&mut self, task: &mut impl Task<L>) -> Result<()> {
        let _slice = time_slice::GivesBack;
        // The times since which nothing at all, and nothing of the task's own call, has moved.
        let (mut quiet_since, mut still_since): (Option<Instant>, Option<Instant>) = (None, None);
        let mut woken = Wake::Ready;
        loop {
            let step = task.step(self)?;
            // A finished step proves nothing: a timed wait ends by its time.
            let has_moved = matches!(step, Step::Moved | Step::OthersMoved);
            if std::mem::replace(&mut woken, Wake::Ready) == Wake::Expired && has_moved {
                log_rescue();
            }
            let is_quiet = match step {
                Step::Finished => break,
                Step::Moved => {
                    (quiet_since, still_since) = (None, None);
                    continue;
                }
                Step::OthersMoved => false,
                Step::Idle => true,
            };
            let now = self.links.now();
            self.idle(task, now)?;
            let still_since = *still_since.get_or_insert(now);
            let idle = now.saturating_duration_since(still_since).saturating_sub(task.grace());
            if self.shared.gate.must_end(idle) {
                self.shared.gate.check_revoked()?;
            }
            if self.shared.monitor.is_wanted() && task.lends_links() {
                self.let_others();
            } else if !is_quiet {
                quiet_since = None;
            } else {
                let monitor = &self.shared.monitor;
                match self.idling.next(now, &mut quiet_since, || monitor.is_urgent()) {
                    Idle::Look if self.look(task) => {}
                    Idle::Look | Idle::Yield => self.give_way(now),
                    Idle::Sleep => {
                        time_slice::be_short(self.idling.is_crowded());
                        woken = self.sleep(task, now, still_since)?;
                    }
                }
            }
        }
        self.shared.gate.board().progress().await_rank(None);
        Ok(())
    }

    /// Looks after the task, which did not move, and asks whether its call must end.
    fn idle(&mut self, task: &mut impl Task<L>, now: Instant) -> Result<()> {
        task.idle(self, now)?;
        let gate = &self.shared.gate;
        if gate.is_interrupted(now) { Err(gate.abort()) } else { Ok(()) }
    }

    /// Yields the core.
    fn give_way(&mut self, now: Instant) {
        std::thread::yield_now();
        let after = self.links.now();
        self.idling.gave_way(now, after);
        time_slice::be_short(self.idling.is_crowded());
    }

    /// Looks for a moment whether an edge is ready; true if one is, or if the task has something else to do.
    fn look(&mut self, task: &mut impl Task<L>) -> bool {
        let mut pause = std::mem::take(&mut self.pause).emptied();
        if !task.pause(self, &mut pause) {
            // The task wants another poll, so nothing is known of the links.
            self.pause = pause;
            return true;
        }
        let mut seen = self.links.look(&pause.interest);
        for left in (1..LOOKS).rev() {
            if seen != Some(false) {
                break;
            }
            before_look(left);
            seen = self.links.look(&pause.interest);
        }
        self.pause = pause;
        if let Some(is_ready) = seen {
            self.idling.looked(is_ready);
        }
        seen == Some(true)
    }

    /// Sleeps until something can move, and looks after the calls meanwhile. With debug assertions it sleeps on if only
    /// time has passed, so that a lost wake-up fails the test.
    fn sleep(&mut self, task: &mut impl Task<L>, mut now: Instant, still_since: Instant) -> Result<Wake> {
        let board = self.shared.gate.board();
        loop {
            let mut pause = std::mem::take(&mut self.pause).emptied();
            pause.end_by(Some(now + SLEEP_MAX));
            let is_revoked = board.first_cause().is_revoked();
            if is_revoked {
                pause.end_by(Some(still_since + IDLE_AFTER_CAUSE_MAX + task.grace()));
            }
            let mut woken = Wake::Ready;
            if task.pause(self, &mut pause) {
                board.progress().await_rank(pause.awaited.first().copied());
                woken = self.links.wait(&pause.interest, pause.until.unwrap_or(now));
            }
            self.pause = pause;
            if woken == Wake::Ready || is_revoked || !cfg!(debug_assertions) {
                return Ok(woken);
            }
            now = self.links.now();
            self.idle(task, now)?;
            self.shared.look_after_messages(now)?;
        }
    }
}

/// Logs, once in a process, that a sleep ended by time although its call had work: a wake-up was lost.
#[cold]
fn log_rescue() {
    static ONCE: Once = Once::new();
    let text = "a call went on after a sleep that only time had ended: a wake-up may have been lost";
    ONCE.call_once(|| log(Severity::Debug, None, format_args!("{text}")));
}
