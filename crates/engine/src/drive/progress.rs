//! The work of progress threads in one communicator: they move its asynchronous calls while no other thread does, and
//! read the messages of ranks that close. They get the communicator at its first `submit`, or when a rank closes.
//!
//! A progress thread never takes the links from another thread, and gives them up as soon as another thread wants them.
//! It holds the communicator only while there is work: so work goes on after the last handle is dropped, and a
//! communicator without work is dropped at once. A panic inside a call ends the call, not the thread.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use unisono_communicator::{Error, Severity, deadline_after, log};

use crate::calls::monitor::{Command, Monitor, Progress};
use crate::calls::progress_threads::Pool;
use crate::drive::Shared;
use crate::links::Links;

/// The time for which a thread stays away while another thread is at work.
const STAND_ASIDE: Duration = Duration::from_millis(1);

/// The time without movement in a communicator after which a thread turns to the next communicator in the queue.
const TURN: Duration = Duration::from_millis(1);

impl<L: Links + 'static> Shared<L> {
    /// Notes that there is work for a progress thread.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no room for another thread.
    pub(crate) fn ask_for_progress(self: &Arc<Self>) -> Result<(), Error> {
        command(&self.monitor, Command::Work(self.clone()))
    }

    /// Passes the last handle of an idle communicator to a progress thread, which drops the handle. If none has had the
    /// communicator, the caller drops the handle.
    pub(crate) fn end_last(self: &Arc<Self>) {
        if self.monitor.has_progressed() {
            // There is a thread already.
            let _ = self.ask_for_progress();
        }
    }
}

/// Notes that a rank has closed the communicator. The control thread calls this. `shared` is weak, so it keeps no
/// communicator alive.
pub(crate) fn look_after(monitor: &Arc<Monitor>, shared: Weak<dyn Progress>) {
    if let Err(error) = command(monitor, Command::Look(shared)) {
        let problem = "the messages of a rank that closes stay in its stream";
        log(Severity::Warn, None, format_args!("{problem}: {error}"));
    }
}

fn command(monitor: &Arc<Monitor>, command: Command) -> Result<(), Error> {
    if !monitor.command(command) {
        return Ok(());
    }
    monitor.pool().add(monitor.clone()).inspect_err(|_| monitor.withdraw(false))
}

impl<L: Links + 'static> Progress for Shared<L> {
    fn progress(&self, pool: &Pool) -> bool {
        let until = deadline_after(Instant::now(), self.options.drop_timeout);
        let _sleeper = pool.sleeper(self.wake.clone());
        while self.has_pending() || self.has_closing_lanes() && Instant::now() < until {
            self.monitor.pool().pass_on();
            match self.try_lock_links() {
                Some(mut guard) => {
                    let turn = pool.is_crowded().then(|| guard.links.now() + TURN);
                    self.drive_pending(&mut guard, turn, || turn.is_none() && pool.is_crowded());
                    let until = turn.map_or(until, |turn| turn.min(until));
                    if self.drain_closed_lanes(&mut guard, until).is_err() {
                        return false;
                    }
                }
                // Urgent work is taken over as soon as the other thread gives the links back.
                None if self.monitor.is_urgent() => self.monitor.sleep(|| false, STAND_ASIDE),
                None => self.monitor.stand_aside(STAND_ASIDE),
            }
            if pool.is_crowded() {
                return true;
            }
        }
        false
    }
}
