//! One rank: its process, which leads a process group of its own, and the threads that watch it.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::output::{Sink, Stream, forward};

/// What the threads report.
pub(crate) enum Event {
    /// The rank's process has ended and is yet to be reaped.
    Exited(u32),
    /// One of a rank's two streams has ended.
    StreamEnded,
    /// The launcher received this signal.
    Signal(i32),
}

pub(crate) struct Rank {
    child: Child,
    pid: Pid,
}

impl Rank {
    /// Starts `command` as rank `rank`. Its standard input is empty: a process outside the terminal's foreground group
    /// would be stopped when it reads from it.
    pub(crate) fn start(
        mut command: Command,
        rank: u32,
        sink: &Arc<dyn Sink>,
        events: &Sender<Event>,
    ) -> io::Result<Rank> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        if let Some(out) = child.stdout.take() {
            read(out, rank, Stream::Out, sink, events);
        }
        if let Some(err) = child.stderr.take() {
            read(err, rank, Stream::Err, sink, events);
        }
        let events = events.clone();
        thread::spawn(move || {
            // Only noticed here and reaped by the launcher's thread, which alone sends signals: so no signal can reach
            // a process that has been given the same number since.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let _ = rustix::io::retry_on_intr(|| waitid(WaitId::Pid(pid), options));
            let _ = events.send(Event::Exited(rank));
        });
        Ok(Rank { child, pid })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// To the rank's whole process group.
    pub(crate) fn signal(&self, signal: Signal) {
        // The group may be gone already, which is what the signal is for.
        let _ = kill_process_group(self.pid, signal);
    }

    /// Takes the status of a process that has ended ([`Event::Exited`]).
    pub(crate) fn reap(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

fn read(
    source: impl io::Read + Send + 'static,
    rank: u32,
    stream: Stream,
    sink: &Arc<dyn Sink>,
    events: &Sender<Event>,
) {
    let (sink, events) = (sink.clone(), events.clone());
    thread::spawn(move || {
        forward(source, rank, stream, &*sink);
        let _ = events.send(Event::StreamEnded);
    });
}

/// A shell's status of an ended process: its own, or 128 and the signal that ended it.
pub(crate) fn shell_status(status: ExitStatus) -> u8 {
    let status = status.code().unwrap_or_else(|| SIGNAL_STATUS + status.signal().unwrap_or(0));
    u8::try_from(status).unwrap_or(u8::MAX)
}

/// What a shell adds to a signal's number.
pub(crate) const SIGNAL_STATUS: i32 = 128;

/// How a process ended, in words.
pub(crate) fn ending(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("unknown");
            format!("was ended by signal {signal} ({name})")
        }
        None => format!("exited with status {}", status.code().unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_those_of_a_shell() {
        // A wait status holds the exit code in its second byte, or the signal in its first.
        let exited = ExitStatus::from_raw(3 << 8);
        assert_eq!((shell_status(exited), ending(exited).as_str()), (3, "exited with status 3"));
        let killed = ExitStatus::from_raw(9);
        assert_eq!((shell_status(killed), ending(killed).as_str()), (137, "was ended by signal 9 (SIGKILL)"));
    }
}
