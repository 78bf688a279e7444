//! One rank: its process, which leads a process group of its own, and the threads that watch it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::output::{Sink, Stream, forward};

/// What the threads report.
pub(crate) enum Event {
    /// The rank's process has ended and must still be reaped.
    Exited(u32),
    /// One of a rank's two streams has ended.
    StreamEnded(u32),
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
            // This thread only notices the end; the launcher's thread reaps, and it alone sends signals. So no signal
            // can reach another process that has got the same number.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let _ = rustix::io::retry_on_intr(|| waitid(WaitId::Pid(pid), options));
            let _ = events.send(Event::Exited(rank));
        });
        Ok(Rank { child, pid })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to the rank's whole process group.
    pub(crate) fn signal(&self, signal: Signal) {
        // The group may have ended already, which is what the signal is for.
        let _ = kill_process_group(self.pid, signal);
    }

    /// Reaps a process that has ended ([`Event::Exited`]) and returns its status.
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
        let _ = events.send(Event::StreamEnded(rank));
    });
}
