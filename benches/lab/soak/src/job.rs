//! One job of real processes: started, read line by line, signalled, and ended.

use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

use crate::Problem;

/// Nothing that a rank has to say takes longer; a job that says nothing hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// For what takes many calls.
pub(crate) const LONG: Duration = Duration::from_secs(1800);

/// Nanoseconds since the machine's start, the same in all processes.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// One rank's process.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
}

/// What a process has said since the last time.
pub(crate) enum Said {
    /// A line.
    Line(String),
    /// Nothing more yet.
    Nothing,
    /// Nothing, and it never will.
    Ended,
}

/// A job. Its processes are killed when it goes.
pub(crate) struct Job {
    pub(crate) ranks: Vec<Process>,
}

impl Job {
    /// Starts this program once per rank, with `words`. `name` is different for all jobs that run at one time.
    pub(crate) fn start(ranks: u32, name: &str, words: &[&str]) -> Result<Job, Problem> {
        Job::start_some(0..ranks, ranks, name, words)
    }

    /// Starts only some of the ranks.
    pub(crate) fn start_some(
        some: Range<u32>,
        ranks: u32,
        name: &str,
        words: &[&str],
    ) -> Result<Job, Problem> {
        let mut job = Job { ranks: Vec::new() };
        for rank in some {
            let mut command = Command::new(std::env::current_exe()?);
            command
                .args(words)
                .env("UNISONO_JOB", name)
                .env("UNISONO_RANK", rank.to_string())
                .env("UNISONO_WORLD_SIZE", ranks.to_string());
            job.ranks.push(Process::start(&mut command)?);
        }
        Ok(job)
    }
}

impl Process {
    /// Starts a rank, and reads what it says.
    pub(crate) fn start(command: &mut Command) -> Result<Process, Problem> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (sender, lines) = channel();
        if let Some(output) = child.stdout.take() {
            std::thread::spawn(move || {
                let said = BufReader::new(output).lines().map_while(Result::ok);
                said.take_while(|line| sender.send(line.clone()).is_ok()).for_each(drop);
            });
        }
        Ok(Process { child, lines })
    }

    /// The process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to its input.
    pub(crate) fn tell(&mut self, line: &str) -> Result<(), Problem> {
        match &mut self.child.stdin {
            Some(input) => Ok(writeln!(input, "{line}")?),
            None => Ok(()),
        }
    }

    /// The next line, which must begin with `word`; what follows it.
    pub(crate) fn hear(&self, word: &str) -> Result<String, Problem> {
        self.hear_within(word, PATIENCE)
    }

    /// The same, with another patience.
    pub(crate) fn hear_within(&self, word: &str, patience: Duration) -> Result<String, Problem> {
        let line = self.lines.recv_timeout(patience).map_err(|error| {
            Problem::Broken(format!("waited for {word:?} of process {}: {error}", self.child.id()))
        })?;
        let rest = line.strip_prefix(word).map(|rest| rest.trim().to_owned());
        rest.ok_or_else(|| Problem::Broken(format!("waited for {word:?}, but it says: {line}")))
    }

    /// What follows `word` on the first line that does not begin with `skipped`.
    pub(crate) fn hear_after(&self, skipped: &str, word: &str) -> Result<String, Problem> {
        loop {
            let line = self.hear("")?;
            if let Some(rest) = line.strip_prefix(word) {
                return Ok(rest.trim().to_owned());
            }
            if !line.starts_with(skipped) {
                return Err(Problem::Broken(format!("waited for {word:?}, but it says: {line}")));
            }
        }
    }

    /// The next line, if there is one.
    pub(crate) fn listen(&self) -> Said {
        match self.lines.try_recv() {
            Ok(line) => Said::Line(line),
            Err(TryRecvError::Empty) => Said::Nothing,
            Err(TryRecvError::Disconnected) => Said::Ended,
        }
    }

    /// Sends a signal, and says when.
    pub(crate) fn signal(&self, signal: Signal) -> Result<u64, Problem> {
        let at_ns = now_ns();
        kill_process(Pid::from_child(&self.child), signal).map_err(std::io::Error::from)?;
        Ok(at_ns)
    }

    /// Lets it end.
    pub(crate) fn close_input(&mut self) -> Result<(), Problem> {
        drop(self.child.stdin.take());
        Ok(())
    }

    /// Lets it end, and waits for that.
    pub(crate) fn end(&mut self) -> Result<(), Problem> {
        drop(self.child.stdin.take());
        let started = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(Problem::Broken(format!("a rank ended with {status}"))),
                None if started.elapsed() > PATIENCE => {
                    return Err(Problem::Broken("a rank does not end".to_owned()));
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended does not mind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
