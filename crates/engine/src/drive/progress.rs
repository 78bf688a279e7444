//! The progress thread. It moves asynchronous calls while no other thread does, and reads the messages of ranks that
//! close. It starts at the first `submit`, or when a rank closes.
//!
//! It never takes the links from another thread, and gives them up as soon as another thread wants them. It holds the
//! communicator only while there is work: so work goes on after the last handle is dropped, and a communicator without
//! work is dropped at once. A panic inside a call ends the call, not this thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use unisono_communicator::{Error, Severity, deadline_after, log};

use crate::drive::Shared;
use crate::drive::monitor::{Command, Monitor, Progress};
use crate::links::Links;

/// How long this thread leaves new work alone, because a caller that waits at once does the work itself. A callback
/// ends this time.
const HEAD_START: Duration = Duration::from_micros(200);

/// How long it stays away while another thread is at work.
const STAND_ASIDE: Duration = Duration::from_millis(1);

impl<L: Links + 'static> Shared<L> {
    /// Notes that there is work, and starts the thread if there is none yet.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no room for another thread.
    pub(crate) fn ask_for_progress(self: &Arc<Self>) -> Result<(), Error> {
        let is_first = self.monitor.command(Command::Work(self.clone()));
        if is_first { start(&self.monitor) } else { Ok(()) }
    }

    /// Passes the last handle of an idle communicator to the progress thread, which drops the handle. Without such a
    /// thread, the caller drops the handle.
    pub(crate) fn end_last(self: &Arc<Self>) {
        if self.monitor.is_progressing() {
            self.monitor.command(Command::Work(self.clone()));
        }
    }
}

/// Notes that a rank has closed the communicator. The control thread calls this. `shared` is weak, so it keeps no
/// communicator alive.
pub(crate) fn look_after(monitor: &Arc<Monitor>, shared: Weak<dyn Progress>) {
    if monitor.command(Command::Look(shared))
        && let Err(error) = start(monitor)
    {
        let problem = "the messages of a rank that closes stay in its stream";
        log(Severity::Warn, None, format_args!("{problem}: {error}"));
    }
}

fn start(monitor: &Arc<Monitor>) -> Result<(), Error> {
    let own = monitor.clone();
    let thread = std::thread::Builder::new().name("unisono-progress".to_owned());
    let started = thread.spawn(move || run(&own));
    started.map(drop).map_err(|error| {
        monitor.has_no_progress_thread();
        Error::system("cannot start the progress thread", &error)
    })
}

fn run(monitor: &Monitor) {
    loop {
        let shared = match monitor.next_command() {
            Command::Work(shared) => Some(shared),
            Command::Look(shared) => shared.upgrade(),
            Command::Sleep => None,
            Command::End => return,
        };
        if let Some(shared) = shared {
            monitor.stand_aside(HEAD_START);
            // The guard of the links has reported the panic and ended all pending calls.
            let _ = catch_unwind(AssertUnwindSafe(|| shared.progress()));
        }
    }
}

impl<L: Links + 'static> Progress for Shared<L> {
    fn progress(&self) {
        let until = deadline_after(Instant::now(), self.options.drop_timeout);
        while self.has_pending() || self.has_closing_lanes() && Instant::now() < until {
            match self.try_lock_links() {
                Some(mut guard) => {
                    self.drive_pending(&mut guard, None, || false);
                    if self.drain_closed_lanes(&mut guard, until).is_err() {
                        return;
                    }
                }
                // Urgent work is taken over as soon as the other thread gives the links back.
                None if self.monitor.is_urgent() => self.monitor.sleep(|| false, STAND_ASIDE),
                None => self.monitor.stand_aside(STAND_ASIDE),
            }
        }
    }
}
