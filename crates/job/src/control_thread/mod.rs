//! The control thread of a job: it accepts, dials and authenticates every connection, and owns the sockets and timers
//! around [`unisono_control::ControlPlane`], which decides. It never touches data.
//!
//! | file | contents |
//! | --- | --- |
//! | `command` | the words of other threads to the control thread |
//! | `driver` | the loop: events in, effects carried out |
//! | `frames` | the bytes to be written on a control connection |
//! | `engines` | the engines of this rank, and the callers that wait |
//! | `measurements` | the clocks of other hosts, and the work of the network |
//! | `tasks`, `process_watch`, `starvation`, `retransmissions` | sockets, and the system's signs of other ranks |
//! | `handle` | the engine's side |

mod command;
mod driver;
mod engines;
mod frames;
mod handle;
mod measurements;
mod process_watch;
mod retransmissions;
mod starvation;
mod tasks;

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use unisono_communicator::flush_log;

pub(crate) use command::THREAD_NAME;
pub(crate) use command::{Command, Commands, Identity, Settings, pending_max};
pub use engines::Delivery;
pub(crate) use engines::Mailbox;
pub(crate) use handle::{ControlHandle, fail_for_all, make_named};
pub(crate) use measurements::Measurements;

use crate::connecting::Acceptor;
use crate::report::flush_reports;
use crate::task_thread::{Ended, TaskThread};

/// The time that the end of the process waits for the writers of the last lines.
const LAST_LINES_MAX: Duration = Duration::from_millis(100);

/// The start of a control thread's work for a job: its knowledge of it, its settings, and its listening socket within
/// the host.
pub(crate) type Begin = (Identity, Settings, Option<UnixListener>);

/// The control thread. Any handle of it can end it.
#[derive(Clone)]
pub(crate) struct ControlThread {
    commands: Commands,
    measurements: Arc<Measurements>,
    ended: Ended,
}

impl ControlThread {
    /// Lets this thread, named [`THREAD_NAME`], accept connections, and look after a job from the moment when it is
    /// known until it is left. A dropped sender ends it before.
    pub(crate) fn start(
        thread: &TaskThread,
        mut acceptor: Acceptor,
    ) -> (ControlThread, oneshot::Sender<Begin>) {
        let (commands, receiver) = Commands::new();
        let measurements = Arc::<Measurements>::default();
        let measured = measurements.clone();
        let (begin, mut begins) = oneshot::channel::<Begin>();
        thread.spawn(async move {
            let begun = loop {
                tokio::select! {
                    begun = &mut begins => break begun,
                    // No handshake ends before the job is known.
                    _ = acceptor.next() => {}
                }
            };
            if let Ok((identity, settings, within_host)) = begun {
                // Where this fails, the other ranks come over TCP.
                let within_host = within_host.and_then(|one| tokio::net::UnixListener::from_std(one).ok());
                within_host.into_iter().for_each(|one| acceptor.accept_within_host(one));
                driver::run(identity, acceptor, settings, receiver, measured).await;
            }
        });
        (ControlThread { commands, measurements, ended: thread.ended() }, begin)
    }

    /// A sender of commands to it.
    pub(crate) fn commands(&self) -> Commands {
        self.commands.clone()
    }

    /// Its measurements so far.
    pub(crate) fn measurements(&self) -> &Measurements {
        &self.measurements
    }

    /// Leaves the job: lets started calls go on if `finishes`, says goodbye, and waits until the others have the bytes
    /// that this rank has sent, each at most for the drop timeout.
    pub(crate) fn leave(&self, finishes: bool) {
        if self.commands.has_thread() {
            self.commands.send(Command::Leave { finishes });
            self.ended.wait();
            // Its last words go through other threads, which the end of the process would stop.
            flush_log(LAST_LINES_MAX);
            flush_reports();
        }
    }

    /// Whether this rank has left.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.has_come()
    }
}
