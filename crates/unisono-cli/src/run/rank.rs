//! One rank: its process, which leads a process group of its own. And the seam between the launcher, which decides, and
//! the ranks, which are on this host or on others.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process_group};
use unisono_job::report::ErrorReport;

use super::ends::{Ends, WatchedProcess};
use super::pipes::Pipe;
use crate::problem::Problem;

/// A message of the launcher's threads to its own; `R` is the type of the events that only the owner of the ranks
/// understands.
pub(crate) enum Event<R> {
    Ranks(R),
    /// A rank has reported an error.
    Reported(Box<ErrorReport>),
    /// All output of one of the two streams has been read, and has reached its place or never will.
    StreamDone,
    /// The launcher received this signal.
    Signal(Signal),
}

/// The process of a rank on this host has ended and must still be reaped.
pub(crate) struct Exited {
    pub(crate) rank: u32,
    pub(crate) at: Instant,
}

/// The meaning of an event.
pub(crate) enum News {
    Ended {
        rank: u32,
        at: Instant,
        status: io::Result<ExitStatus>,
    },
    /// The job cannot go on, and these ranks were never started.
    NotStarted {
        ranks: Vec<u32>,
        problem: Problem,
    },
    /// A host is lost, in words, and with it output of ranks that had ended.
    OutputLost(String),
}

/// The ranks of a job, on this host or on others. The launcher decides, and its ranks obey.
pub(crate) trait Ranks {
    type Event;

    /// Sends a signal to every rank that runs.
    fn signal(&mut self, signal: Signal);

    /// Takes an event.
    fn hear(&mut self, event: Self::Event) -> Vec<News>;

    /// Ends the wait of ranks that have not met `rank`, since it will not come.
    fn has_left(&mut self, rank: u32, how: &str);

    /// Ends the processes that ranks have left behind, if the job has failed.
    fn all_have_ended(&mut self, has_failed: bool);

    /// Ends all by force: SIGKILL has not helped, as on a host that does not answer.
    fn abandon(&mut self);

    /// Reaps the processes that have lost their parents, where this process gets them.
    fn reap_orphans(&mut self);
}

/// A process that has not been reaped. Only the launcher reaps, and it alone sends signals. So no signal can reach
/// another process that has got the same number.
pub(crate) struct Rank {
    child: Child,
    pid: Pid,
    is_reaped: bool,
    _watched: WatchedProcess,
}

impl Rank {
    /// Starts `command` as rank `rank`, and gives the pipes of its standard output and its standard error. Its standard
    /// input is no terminal: a process outside the terminal's foreground group would be stopped when it reads there.
    pub(crate) fn start(
        mut command: Command,
        rank: u32,
        ends: &Ends,
        stdin: Stdio,
    ) -> io::Result<(Rank, [Pipe; 2])> {
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        // Without it the launcher would not learn of the end.
        let watched = ends.watch(pid, rank).inspect_err(|_| {
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = child.wait();
        })?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        #[expect(clippy::expect_used, reason = "both are pipes, as was asked for")]
        let (out, err) = out.zip(err).expect("a new process has the pipes that were asked for");
        let pipes = [OwnedFd::from(out), err.into()].map(|source| Pipe { rank, source });
        Ok((Rank { child, pid, is_reaped: false, _watched: watched }, pipes))
    }

    /// The writing end of its standard input, if that is a pipe.
    pub(crate) fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to the rank's whole process group.
    pub(crate) fn signal(&self, signal: Signal) {
        // The group may have ended already, as the signal asks.
        let _ = kill_process_group(self.pid, signal);
    }

    /// Ends the rest of the group of a process that has ended, while no other group can have its number, and gives the
    /// status of the process.
    pub(crate) fn reap(mut self) -> io::Result<ExitStatus> {
        self.end()
    }

    fn end(&mut self) -> io::Result<ExitStatus> {
        self.is_reaped = true;
        self.signal(Signal::KILL);
        self.child.wait()
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        if !self.is_reaped {
            let _ = self.end();
        }
    }
}
