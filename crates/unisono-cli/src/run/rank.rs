//! One rank: its process, which leads a process group of its own, and the threads that read what it prints.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process_group};

use super::ends::{Ends, WatchedProcess};
use super::output::{Sink, Stream, forward};

/// What the launcher's threads report.
pub(crate) enum Event {
    /// The rank's process has ended and must still be reaped.
    Exited { rank: u32, at: Instant },
    /// One of the ranks' streams has ended.
    StreamEnded,
    /// The launcher received this signal.
    Signal(Signal),
}

pub(crate) struct Rank {
    child: Child,
    pid: Pid,
    _watched: WatchedProcess,
}

impl Rank {
    /// Starts `command` as rank `rank`. Its standard input is empty: a process outside the terminal's foreground group
    /// would be stopped when it reads from it.
    pub(crate) fn start(
        mut command: Command,
        rank: u32,
        ends: &Ends,
        sink: &Arc<dyn Sink>,
        events: &Sender<Event>,
    ) -> io::Result<Rank> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        // Without all of this the launcher would not know what becomes of the rank.
        let watched = Rank::watch(&mut child, rank, ends, sink, events).inspect_err(|_| {
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = child.wait();
        })?;
        Ok(Rank { child, pid, _watched: watched })
    }

    fn watch(
        child: &mut Child,
        rank: u32,
        ends: &Ends,
        sink: &Arc<dyn Sink>,
        events: &Sender<Event>,
    ) -> io::Result<WatchedProcess> {
        if let Some(out) = child.stdout.take() {
            read(out, rank, Stream::Out, sink, events)?;
        }
        if let Some(err) = child.stderr.take() {
            read(err, rank, Stream::Err, sink, events)?;
        }
        // Only the launcher reaps, and it alone sends signals. So no signal can reach another process that has got the
        // same number.
        ends.watch(Pid::from_child(child), rank)
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
) -> io::Result<()> {
    let (sink, events) = (sink.clone(), events.clone());
    let work = move || {
        forward(source, rank, stream, &*sink);
        let _ = events.send(Event::StreamEnded);
    };
    let thread = thread::Builder::new().name(format!("rank {rank}")).spawn(work);
    thread
        .map(drop)
        .map_err(|error| io::Error::new(error.kind(), format!("no thread to read its output: {error}")))
}
