//! The control thread of a job: it accepts, dials and authenticates every connection, and owns the sockets and timers
//! around [`unisono_control::ControlPlane`], which decides. It never touches data.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `command` | what other threads tell the control thread |
//! | `driver` | the loop: events in, effects carried out |
//! | `engines` | the engines of this rank, and the callers that wait |
//! | `tasks`, `process_watch`, `starvation`, `retransmissions` | sockets, and what the system tells of other ranks |
//! | `handle` | what the engine holds |

mod command;
mod driver;
mod engines;
mod handle;
mod process_watch;
mod retransmissions;
mod starvation;
mod tasks;

use std::convert::Infallible;
use std::time::Duration;

use crossbeam_channel::{Receiver, TryRecvError};
use unisono_communicator::{Error, Holding, Result, flush_log};

pub(crate) use command::{Command, Commands, Identity, Settings, pending_max};
use command::{HandedOver, THREAD_NAME};
pub use engines::Delivery;
pub(crate) use engines::Mailbox;
pub(crate) use handle::{ControlHandle, fail_for_all, make_named};

use crate::connecting::EarlyListener;

/// How long the end of the process waits for a subscriber that takes the last lines.
const LAST_LINES_MAX: Duration = Duration::from_millis(100);

/// The control thread. Any handle of it can end it.
#[derive(Clone)]
pub(crate) struct ControlThread {
    commands: Commands,
    /// Disconnected when the thread has ended.
    ended: Receiver<Infallible>,
}

impl ControlThread {
    /// Starts the thread, with the listener and the connections that it has accepted so far.
    pub(crate) fn start(
        identity: Identity,
        early: EarlyListener,
        settings: Settings,
    ) -> Result<ControlThread> {
        let (commands, receiver) = Commands::new();
        let what = |what: &'static str| move |error| Error::system(what, &error);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(what("cannot make the control thread's runtime"))?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(early.listener).map_err(what("cannot listen"))?
        };
        let (alive, ended) = crossbeam_channel::bounded(0);
        std::thread::Builder::new()
            .name(THREAD_NAME.to_owned())
            .spawn(move || {
                let _alive: HandedOver = alive;
                // A call that a subscriber makes would wait for this thread.
                let _holding = Holding::begin();
                runtime.block_on(driver::run(identity, (listener, early.accepted), settings, receiver));
                runtime.shutdown_background();
            })
            .map_err(what("cannot start the control thread"))?;
        Ok(ControlThread { commands, ended })
    }

    /// A sender of commands to it.
    pub(crate) fn commands(&self) -> Commands {
        self.commands.clone()
    }

    /// Leaves the job: lets started calls go on if `finishes`, says goodbye, and waits until the others have what this
    /// rank has sent, each at most for the drop timeout.
    pub(crate) fn leave(&self, finishes: bool) {
        if self.commands.has_thread() {
            self.commands.send(Command::Leave { finishes });
            // A panic of that thread has been reported by its own hook, and ends it too.
            let _ = self.ended.recv();
            // What it has said last goes through another thread, which the end of the process would stop.
            flush_log(LAST_LINES_MAX);
        }
    }

    /// Whether this rank has left.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.ended.try_recv(), Err(TryRecvError::Disconnected))
    }
}
