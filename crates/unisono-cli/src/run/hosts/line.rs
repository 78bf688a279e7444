//! The line to the agent of a host: the process of the command that started it, and its three pipes.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::message::{ToAgent, bytes_of};

/// A message, and a sender that is dropped when it has been written.
type Letter = (Vec<u8>, Sender<()>);

/// The launcher's end of a line.
#[derive(Clone)]
pub(super) struct AgentLine(Arc<Inner>);

struct Inner {
    pid: Pid,
    process: rustix::fd::OwnedFd,
    /// `None` after the line was cut.
    to_agent: Mutex<Option<Sender<Letter>>>,
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
        let (sender, letters) = channel();
        thread::Builder::new().name("to-agent".into()).spawn(move || write_all(&letters, to_agent))?;
        let inner = Inner { pid, process: descriptor, to_agent: Mutex::new(Some(sender)) };
        Ok((AgentLine(Arc::new(inner)), LineEnds { process, out, err }))
    }

    /// The number of the command's process.
    pub(super) fn pid(&self) -> i32 {
        self.0.pid.as_raw_nonzero().get()
    }

    /// Sends a message, and does not wait until it has been written: then the receiver ends. An agent that is gone is
    /// noticed at its output.
    pub(super) fn send(&self, message: &ToAgent) -> Receiver<()> {
        let (sender, written) = channel();
        if let Some(letters) = &*self.0.to_agent.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = letters.send((bytes_of(message), sender));
        }
        written
    }

    /// Ends the command. Its agent sees the end of its input, and kills its ranks.
    pub(super) fn cut(&self) {
        self.0.to_agent.lock().unwrap_or_else(PoisonError::into_inner).take();
        // It may have ended already.
        let _ = pidfd_send_signal(&self.0.process, Signal::KILL);
    }
}

/// Writes messages until the line is cut. An agent that reads nothing holds this thread, and nobody else.
fn write_all(letters: &Receiver<Letter>, mut to_agent: ChildStdin) {
    for (bytes, _written) in letters {
        if to_agent.write_all(&bytes).is_err() {
            return;
        }
    }
}
