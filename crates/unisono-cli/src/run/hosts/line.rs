//! The line to the agent of a host: the process of the command that started it, and its three pipes.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::message::{ToAgent, write};

/// The launcher's end of a line.
#[derive(Clone)]
pub(super) struct AgentLine(Arc<Inner>);

struct Inner {
    pid: Pid,
    process: rustix::fd::OwnedFd,
    /// `None` after the line was cut.
    to_agent: Mutex<Option<ChildStdin>>,
}

/// The ends of a line from which somebody reads, and the process to wait for.
pub(super) struct LineEnds {
    pub(super) process: Child,
    pub(super) out: ChildStdout,
    pub(super) err: ChildStderr,
}

impl AgentLine {
    /// Starts the command, in a process group of its own: the keys of a terminal reach only the launcher.
    pub(super) fn start(mut command: Command) -> io::Result<(AgentLine, LineEnds)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut process = command.spawn()?;
        let pid = Pid::from_child(&process);
        let descriptor = pidfd_open(pid, PidfdFlags::empty()).inspect_err(|_| {
            let _ = process.kill();
            let _ = process.wait();
        })?;
        let pipes = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let (Some(to_agent), Some(out), Some(err)) = pipes else {
            return Err(io::Error::other("a new process lacks the pipes that were asked for"));
        };
        let inner = Inner { pid, process: descriptor, to_agent: Mutex::new(Some(to_agent)) };
        Ok((AgentLine(Arc::new(inner)), LineEnds { process, out, err }))
    }

    /// The number of the command's process.
    pub(super) fn pid(&self) -> i32 {
        self.0.pid.as_raw_nonzero().get()
    }

    /// Sends a message. An agent that is gone is noticed at its output.
    pub(super) fn send(&self, message: &ToAgent) {
        let mut to_agent = self.0.to_agent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipe) = &mut *to_agent {
            let _ = write(pipe, message, &[]);
        }
    }

    /// LineEnds the command. Its agent sees the end of its input, and kills its ranks.
    pub(super) fn cut(&self) {
        self.0.to_agent.lock().unwrap_or_else(PoisonError::into_inner).take();
        // It may have ended already.
        let _ = pidfd_send_signal(&self.0.process, Signal::KILL);
    }
}
