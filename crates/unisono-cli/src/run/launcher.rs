//! The launcher's own thread: from the start of the ranks to the end of the last one, one event after the other.

use std::ffi::OsString;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::ends::Ends;
use super::failure::{End, SIGNAL_STATUS, first};
use super::guard::Guard;
use super::last_words::LastWords;
use super::meeting::Meeting;
use super::output::{Sink, end_line, lost_output};
use super::rank::{Event, Rank};
use super::signals::{Request, stop};
use super::{Job, vendor};
use crate::print;
use crate::problem::{Problem, Result};

/// How long the launcher waits after the first failure it sees: another failure may turn out to be the cause, and the
/// other ranks may print what they noticed.
const SETTLING: Duration = Duration::from_millis(200);
/// How long to wait, after the last rank has ended, for output held open by a process that left its rank's group.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);
/// The status of a shell that cannot start a program.
const STATUS_NOT_STARTED: u8 = 127;
/// The status of a job that was ended because of `--timeout`, as of the program `timeout`.
const STATUS_TIMEOUT: u8 = 124;
/// The most ranks that a line names.
const NAMED_MAX: usize = 8;

/// The phase of the job.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Until this time, if the job has one.
    Running(Option<Instant>),
    /// A rank has failed; at this time the launcher ends the others.
    Settling(Instant),
    /// The ranks have been asked to end; SIGKILL follows at this time.
    Ending(Instant),
    Killed,
    /// All ranks have ended; output that arrives after this time is not printed.
    Draining(Instant),
}

impl Stage {
    /// When the stage ends by itself.
    fn due(&mut self) -> Option<&mut Instant> {
        match self {
            Stage::Running(due) => due.as_mut(),
            Stage::Settling(due) | Stage::Ending(due) | Stage::Draining(due) => Some(due),
            Stage::Killed => None,
        }
    }
}

/// A job that runs.
pub(super) struct Launcher<'j> {
    job: &'j Job,
    meeting: &'j Meeting,
    /// What every rank finds in its environment besides.
    variables: Vec<(&'static str, OsString)>,
    guard: Guard,
    words: Arc<LastWords>,
    /// `None` for a rank that has ended.
    ranks: Vec<Option<Rank>>,
    streams_open: usize,
    succeeded: usize,
    /// In the order of their ends.
    failures: Vec<End>,
    stage: Stage,
    /// Why the launcher ends the job, if that is no rank's failure.
    ended_by: Option<Problem>,
}

impl<'j> Launcher<'j> {
    /// Starts the ranks, and prints what they print to `sink`.
    pub(super) fn start(
        job: &'j Job,
        meeting: &'j Meeting,
        sink: Arc<dyn Sink>,
        events: &Sender<Event>,
    ) -> Result<Launcher<'j>> {
        let guard =
            Guard::start(meeting.folder()).map_err(|error| Problem::failed("starting the guard", error))?;
        let ends =
            Ends::report_to(events.clone()).map_err(|error| Problem::failed("watching processes", error))?;
        let words = Arc::new(LastWords::new(job.ranks, sink));
        let mut launcher = Launcher {
            job,
            meeting,
            variables: vendor::variables(job.vendor_directory.clone())?,
            guard,
            words,
            ranks: Vec::new(),
            streams_open: 0,
            succeeded: 0,
            failures: Vec::new(),
            stage: Stage::Running(job.timeout.and_then(|timeout| Instant::now().checked_add(timeout))),
            ended_by: None,
        };
        for rank in 0..job.ranks {
            if let Err(problem) = launcher.start_rank(rank, &ends, events) {
                launcher.ended_by = Some(problem);
                launcher.end(Signal::TERM);
                break;
            }
        }
        Ok(launcher)
    }

    fn start_rank(&mut self, rank: u32, ends: &Ends, events: &Sender<Event>) -> Result<()> {
        let Job { ranks, program, arguments, binding, .. } = self.job;
        let mut command = Command::new(program);
        command.args(arguments);
        command.envs(self.variables.iter().cloned());
        self.meeting.tell(&mut command, rank);
        let sink: Arc<dyn Sink> = self.words.clone();
        let started = binding.during(rank, *ranks, || Rank::start(command, rank, ends, &sink, events));
        let started = started.map_err(|error| Problem {
            status: STATUS_NOT_STARTED,
            text: format!("{}: {error}", program.display()),
        })?;
        let pid = started.pid();
        self.ranks.push(Some(started));
        self.streams_open += 2;
        self.guard.watch(pid).map_err(|error| Problem::failed("the guard", error))
    }

    /// Waits until the job has ended, and says how.
    pub(super) fn until_all_ended(mut self, events: &Receiver<Event>) -> Result<()> {
        while self.is_running() || self.streams_open > 0 {
            let event = match self.stage.due() {
                Some(due) => events.recv_timeout(due.saturating_duration_since(Instant::now())).ok(),
                None => events.recv().ok(),
            };
            match (event, self.stage) {
                (Some(Event::Exited { rank, at }), _) => self.exited(rank, at),
                (Some(Event::StreamEnded), _) => self.streams_open -= 1,
                (Some(Event::Signal(signal)), _) => self.on_signal(signal),
                (None, Stage::Running(_)) => self.timed_out(),
                (None, Stage::Settling(_)) => self.end(Signal::TERM),
                (None, Stage::Ending(_) | Stage::Killed) => self.kill(),
                (None, Stage::Draining(_)) => break,
            }
        }
        self.words.close();
        end_line();
        self.verdict()?;
        lost_output().map_or(Ok(()), |why| Err(Problem::failed("output of the ranks was lost", why)))
    }

    fn is_running(&self) -> bool {
        self.ranks.iter().any(Option::is_some)
    }

    fn exited(&mut self, rank: u32, at: Instant) {
        let Some(mut ended) = self.ranks[rank as usize].take() else { return };
        // Kills what is left of its group, while no other group can have the same number.
        ended.signal(Signal::KILL);
        self.guard.forget(ended.pid());
        let is_asked = matches!(self.stage, Stage::Ending(_) | Stage::Killed);
        let end = End::new(rank, at, ended.reap(), is_asked);
        self.meeting.leave(&end);
        if end.is_success() {
            self.succeeded += 1;
        } else if !self.was_to_die(&end) {
            self.failed(end);
        }
        if !self.is_running() {
            self.stage = Stage::Draining(Instant::now() + OUTPUT_GRACE);
        }
    }

    fn was_to_die(&self, end: &End) -> bool {
        self.job.victim == Some(end.rank) && i32::from(end.status) == SIGNAL_STATUS + Signal::KILL.as_raw()
    }

    fn failed(&mut self, end: End) {
        match self.stage {
            Stage::Running(_) if self.job.keep_going => {
                let rest = if self.is_running() { "; the others go on" } else { "" };
                print::tell(format_args!("{}{rest}", end.told(None)));
            }
            Stage::Running(_) => self.stage = Stage::Settling(Instant::now() + SETTLING),
            Stage::Settling(_) | Stage::Ending(_) | Stage::Killed | Stage::Draining(_) => {}
        }
        self.failures.push(end);
    }

    fn on_signal(&mut self, signal: Signal) {
        match Request::of(signal) {
            Request::PassOn => self.signal(signal),
            Request::Stop => {
                self.signal(signal);
                let since = Instant::now();
                stop();
                if let Some(due) = self.stage.due() {
                    *due += since.elapsed();
                }
            }
            Request::End => match self.stage {
                Stage::Running(_) | Stage::Settling(_) => {
                    let status = u8::try_from(SIGNAL_STATUS + signal.as_raw()).unwrap_or(u8::MAX);
                    self.ended_by = Some(Problem::silent(status));
                    self.end(signal);
                }
                // A second signal means that the user does not want to wait.
                Stage::Ending(_) => self.kill(),
                Stage::Killed | Stage::Draining(_) => {}
            },
        }
    }

    fn timed_out(&mut self) {
        let running = self.ranks.iter().zip(0..).filter_map(|(rank, number)| rank.as_ref().map(|_| number));
        let running = listed(running.map(|rank: u32| rank.to_string()).collect(), ", ");
        let seconds = self.job.timeout.unwrap_or_default().as_secs_f64();
        let text =
            format!("the job was ended after {seconds} s (--timeout); these ranks had not ended: {running}");
        self.ended_by = Some(Problem { status: STATUS_TIMEOUT, text });
        self.end(Signal::TERM);
    }

    fn end(&mut self, signal: Signal) {
        self.signal(signal);
        self.stage = Stage::Ending(Instant::now() + self.job.grace);
    }

    fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.stage = Stage::Killed;
    }

    fn signal(&self, signal: Signal) {
        self.ranks.iter().flatten().for_each(|rank| rank.signal(signal));
    }

    /// What becomes of this process: its status, and its last line.
    fn verdict(self) -> Result<()> {
        let told = |end: &End| end.told(self.words.of(end.rank).as_ref());
        if let Some(problem) = self.ended_by {
            return Err(problem);
        }
        let Some(cause) = first(&self.failures, |rank| self.words.of(rank)) else { return Ok(()) };
        if self.job.keep_going && self.succeeded > 0 {
            let (lost, ranks) = (self.failures.len(), self.ranks.len());
            let lines = listed(self.failures.iter().map(told).collect(), "; ");
            print::tell(format_args!("{lost} of {ranks} ranks were lost: {lines}"));
            return Ok(());
        }
        Err(Problem { status: cause.status, text: format!("first failure: {}", told(cause)) })
    }
}

/// The first items, and how many more there are.
fn listed(mut items: Vec<String>, separator: &str) -> String {
    let more = items.len().saturating_sub(NAMED_MAX);
    items.truncate(NAMED_MAX);
    items.extend((more > 0).then(|| format!("and {more} more")));
    items.join(separator)
}
