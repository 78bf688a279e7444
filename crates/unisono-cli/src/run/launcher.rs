//! The launcher's own thread: from the start of the ranks to the end of the last one, one event after the other.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use unisono_job::report::ReportPipe;

use super::ends::Ends;
use super::failure::{End, SIGNAL_STATUS, first};
use super::guard::{Guard, kill_those_told_of};
use super::last_words::{LastWords, LineKind};
use super::log_files::LogFiles;
use super::meeting::Meeting;
use super::output::{self, Output, Places, Sink, Stream};
use super::pipes::Pipe;
use super::rank::{Event, Rank};
use super::reports::{Reports, named};
use super::signals::{Request, stop};
use super::{Job, NULL, vendor};
use super::{input, orphans};
use crate::print;
use crate::problem::{Problem, Result};

/// The time that the launcher waits after the first failure it sees: another failure may turn out to be the cause, and
/// the other ranks may print their own errors.
const SETTLING: Duration = Duration::from_millis(200);
/// Between two looks at a standard error that nobody reads.
const ROOM_PAUSE: Duration = Duration::from_millis(50);
/// The status of a job whose ranks have ended well, but not all that they said has arrived.
const STATUS_FAILED: u8 = 1;
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
    /// All ranks have ended. Their output is passed on.
    Draining,
}

impl Stage {
    /// When the stage ends by itself.
    fn due(&mut self) -> Option<&mut Instant> {
        match self {
            Stage::Running(due) => due.as_mut(),
            Stage::Settling(due) | Stage::Ending(due) => Some(due),
            Stage::Killed | Stage::Draining => None,
        }
    }
}

/// The inputs for the start of a rank.
struct Starter<'j> {
    job: &'j Job,
    meeting: &'j Meeting,
    /// The additional variables in every rank's environment.
    variables: Vec<(&'static str, OsString)>,
    ends: Ends,
    null: File,
}

impl Starter<'_> {
    fn start(&self, rank: u32) -> Result<(Rank, [Pipe; 2])> {
        let Job { ranks, program, arguments, binding, stdin, .. } = self.job;
        let mut command = Command::new(program);
        command.args(arguments);
        command.envs(self.variables.iter().cloned());
        self.meeting.tell(&mut command, rank);
        let started = binding.during(rank, *ranks, || {
            let input = if *stdin == Some(rank) { Stdio::piped() } else { self.null.try_clone()?.into() };
            let (mut started, pipes) = Rank::start(command, rank, &self.ends, input)?;
            started.take_stdin().map(input::pass_on).transpose()?;
            Ok((started, pipes))
        });
        started.map_err(|error: io::Error| Problem {
            status: STATUS_NOT_STARTED,
            text: format!("{}: {error}", program.display()),
        })
    }
}

/// A job that runs.
pub(super) struct Launcher<'j> {
    job: &'j Job,
    meeting: &'j Meeting,
    guard: Guard,
    words: Arc<LastWords>,
    output: Output,
    /// `None` for a rank that has ended.
    ranks: Vec<Option<Rank>>,
    streams_open: usize,
    succeeded: BTreeSet<u32>,
    /// In the order of their ends.
    failures: Vec<End>,
    reports: Reports,
    stage: Stage,
    /// Why the launcher ends the job, if that is no rank's failure.
    ended_by: Option<Problem>,
}

impl<'j> Launcher<'j> {
    /// Starts the ranks, and takes their output to its places.
    pub(super) fn start(
        job: &'j Job,
        meeting: &'j Meeting,
        (sink, files): (Arc<dyn Sink>, Option<Arc<LogFiles>>),
        events: &Sender<Event>,
    ) -> Result<Launcher<'j>> {
        let null = open_null()?;
        let mut guard = Guard::start(meeting.folder(), &null)
            .map_err(|error| Problem::failed("starting the guard", error))?;
        // Only the ranks inherit its writing end, which is closed when all have been started.
        let pipe = ReportPipe::new().map_err(|error| Problem::failed("a pipe for reports", error))?;
        let ends = Ends::tell(&pipe, events.clone())
            .map_err(|error| Problem::failed("watching processes", error))?;
        let mut variables = vendor::variables(job.vendor_directory.clone());
        variables.push((pipe.variable.0, pipe.variable.1.clone().into()));
        variables.extend(job.records_calls.then(|| ("UNISONO_COMMS_LOGGER", "on".into())));
        let starter = Starter { job, meeting, variables, ends, null };
        let (mut ranks, mut pipes, mut ended_by) = (Vec::new(), [Vec::new(), Vec::new()], None);
        for rank in 0..job.ranks {
            match starter.start(rank) {
                Ok((started, [out, err])) => {
                    guard.watch(started.pid()).map_err(|error| Problem::failed("the guard", error))?;
                    ranks.push(Some(started));
                    pipes[0].push(out);
                    pipes[1].push(err);
                }
                Err(problem) => {
                    ended_by = Some(problem);
                    break;
                }
            }
        }
        let words = Arc::new(LastWords::new(job.ranks));
        let places = Places { sink, files, words: words.clone() };
        let output = Output::start(pipes, places, events)
            .map_err(|error| Problem::failed("reading the output of ranks", error))?;
        let mut launcher = Launcher {
            job,
            meeting,
            guard,
            words,
            output,
            ranks,
            streams_open: Stream::BOTH.len(),
            succeeded: BTreeSet::new(),
            failures: Vec::new(),
            reports: Reports::default(),
            stage: Stage::Running(job.timeout.and_then(|timeout| Instant::now().checked_add(timeout))),
            ended_by,
        };
        if launcher.ended_by.is_some() {
            launcher.end(Signal::TERM);
        }
        launcher.drain_if_ended();
        Ok(launcher)
    }

    /// Waits until the job has ended, and says how.
    pub(super) fn until_all_ended(mut self, events: &Receiver<Event>) -> Result<()> {
        let mut is_waited_for = true;
        while self.is_running() || self.streams_open > 0 {
            let event = match self.stage.due() {
                Some(due) => events.recv_timeout(due.saturating_duration_since(Instant::now())).ok(),
                None => events.recv().ok(),
            };
            match (event, self.stage) {
                (Some(Event::Exited { rank, at }), _) => self.exited(rank, at),
                (Some(Event::Reported(report)), _) => {
                    self.reports.hear(*report);
                    self.end_those_given_up();
                }
                (Some(Event::StreamDone), _) => self.streams_open -= 1,
                // Somebody who does not read is not waited for any longer.
                (Some(Event::Signal(signal)), Stage::Draining) if ends(signal) => {
                    self.ended_by.get_or_insert_with(|| ended_by_signal(signal));
                    is_waited_for = false;
                    break;
                }
                (Some(Event::Signal(signal)), _) => self.on_signal(signal),
                (None, Stage::Running(_)) => self.timed_out(),
                (None, Stage::Settling(_)) => self.end(Signal::TERM),
                (None, Stage::Ending(_) | Stage::Killed) => self.kill(),
                (None, Stage::Draining) => break,
            }
        }
        let is_told = output::has_room() || is_waited_for && has_room_soon(events);
        self.verdict(is_told)
    }

    fn is_running(&self) -> bool {
        self.ranks.iter().any(Option::is_some)
    }

    /// Whether the job has failed so far: not all ranks need to succeed in a job that keeps going.
    fn has_failed(&self) -> bool {
        let is_saved = self.job.keep_going && !self.succeeded.is_empty();
        self.ended_by.is_some() || !self.failures.is_empty() && !is_saved
    }

    fn exited(&mut self, rank: u32, at: Instant) {
        let Some(ended) = self.ranks[rank as usize].take() else { return };
        let pid = ended.pid();
        let is_asked = matches!(self.stage, Stage::Ending(_) | Stage::Killed);
        let end = End::new(rank, at, ended.reap(), is_asked);
        self.guard.forget(pid);
        self.meeting.leave(&end);
        if end.is_success() {
            self.succeeded.insert(rank);
        } else if !self.was_to_die(&end) {
            self.failed(end);
        }
        orphans::reap(&self.pids());
        self.end_those_given_up();
        self.drain_if_ended();
    }

    /// Asks the ranks to end that the others have gone on without. Such a rank may be stopped, and would never end.
    fn end_those_given_up(&mut self) {
        let running = self.running();
        let is_given_up = |rank: &u32| self.reports.say_lost(*rank, &self.succeeded);
        if !self.job.keep_going || !matches!(self.stage, Stage::Running(_)) || running.is_empty() {
            return;
        }
        if running.iter().all(is_given_up) {
            let (verb, grace) =
                (if running.len() == 1 { "runs" } else { "run" }, self.job.grace.as_secs_f64());
            let ranks = named(&running);
            self.output.tell(format!(
                "{ranks} still {verb}, or stands still; the other ranks have ended, and have gone on without: \
                 SIGTERM now, SIGKILL after {grace} s (--grace)"
            ));
            self.end(Signal::TERM);
        }
    }

    fn running(&self) -> BTreeSet<u32> {
        (0..).zip(&self.ranks).filter_map(|(number, rank)| rank.as_ref().map(|_| number)).collect()
    }

    fn pids(&self) -> BTreeSet<i32> {
        self.ranks.iter().flatten().map(|rank| rank.pid().as_raw_nonzero().get()).collect()
    }

    fn drain_if_ended(&mut self) {
        if self.is_running() {
            return;
        }
        if self.has_failed() {
            // A process that a rank leaves behind on purpose outlives a job that succeeds, and no other.
            kill_those_told_of(self.meeting.folder(), 1);
        }
        self.output.ranks_have_ended();
        self.stage = Stage::Draining;
    }

    fn was_to_die(&self, end: &End) -> bool {
        self.job.victim == Some(end.rank) && i32::from(end.status) == SIGNAL_STATUS + Signal::KILL.as_raw()
    }

    fn failed(&mut self, end: End) {
        match self.stage {
            Stage::Running(_) if self.job.keep_going => {
                let rest = if self.is_running() { "; the others go on" } else { "" };
                self.output.tell(format!("{}{rest}", end.told(None)));
            }
            Stage::Running(_) => self.stage = Stage::Settling(Instant::now() + SETTLING),
            Stage::Settling(_) | Stage::Ending(_) | Stage::Killed | Stage::Draining => {}
        }
        self.failures.push(end);
    }

    fn on_signal(&mut self, signal: Signal) {
        match Request::of(signal) {
            Request::PassOn => self.signal(signal),
            Request::Reap => orphans::reap(&self.pids()),
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
                    self.ended_by = Some(ended_by_signal(signal));
                    self.end(signal);
                }
                // A second signal means that the user does not want to wait.
                Stage::Ending(_) => self.kill(),
                Stage::Killed | Stage::Draining => {}
            },
        }
    }

    fn timed_out(&mut self) {
        let running = listed(self.running().iter().map(u32::to_string).collect(), ", ");
        let seconds = self.job.timeout.unwrap_or_default().as_secs_f64();
        let text =
            format!("the job was ended after {seconds} s (--timeout); these ranks had not ended: {running}");
        self.ended_by = Some(Problem { status: STATUS_TIMEOUT, text });
        self.end(Signal::TERM);
    }

    /// A rank that is stopped hears the signal when it is continued.
    fn end(&mut self, signal: Signal) {
        self.signal(signal);
        self.signal(Signal::CONT);
        self.stage = Stage::Ending(Instant::now() + self.job.grace);
    }

    fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.stage = Stage::Killed;
    }

    fn signal(&self, signal: Signal) {
        self.ranks.iter().flatten().for_each(|rank| rank.signal(signal));
    }

    /// The outcome of this process: its status, and its last lines.
    fn verdict(self, is_told: bool) -> Result<()> {
        let (mut lines, mut status) = (self.reports.at_exit(), 0);
        lines.extend(self.output.lost().map(|lost| format!("output of the ranks was lost: {lost}")));
        if !lines.is_empty() {
            status = STATUS_FAILED;
        }
        let words = |end: &End| self.words.of(end.rank, end.at);
        let told = |end: &End| end.told(words(end).as_ref());
        let has_failed = self.has_failed();
        let cause = first(&self.failures, &self.reports, words);
        match (self.ended_by, cause) {
            (Some(problem), _) => {
                status = problem.status;
                lines.push(problem.text);
            }
            // That nobody reads has been said.
            (None, Some(cause))
                if has_failed && cause.is_by_broken_pipe() && self.output.has_refused(cause.rank) =>
            {
                status = cause.status;
            }
            (None, Some(cause)) if has_failed => {
                status = cause.status;
                lines.extend(self.reports.of_failure(cause.rank));
                // Its report has a line of its own.
                let words = words(cause).filter(|words| match self.reports.are_from(cause.rank) {
                    true => words.kind > LineKind::Line && !self.reports.have(cause.rank, &words.text),
                    false => true,
                });
                lines.push(format!("first failure: {}", cause.told(words.as_ref())));
            }
            (None, _) if !self.failures.is_empty() => {
                let (lost, ranks) = (self.failures.len(), self.ranks.len());
                let ends = listed(self.failures.iter().map(told).collect(), "; ");
                lines.push(format!("{lost} of {ranks} ranks were lost: {ends}"));
            }
            (None, _) => {}
        }
        lines.retain(|line| !line.is_empty() && is_told);
        let last = lines.pop().unwrap_or_default();
        lines.iter().for_each(print::tell);
        if status == 0 && !last.is_empty() {
            print::tell(&last);
        }
        if status == 0 { Ok(()) } else { Err(Problem { status, text: last }) }
    }
}

/// Waits until standard error takes the launcher's lines, unless it is asked to end before.
fn has_room_soon(events: &Receiver<Event>) -> bool {
    loop {
        match events.recv_timeout(ROOM_PAUSE) {
            Ok(Event::Signal(signal)) if ends(signal) => return false,
            _ if output::has_room() => return true,
            _ => {}
        }
    }
}

/// Whether a signal asks for the end of the job.
fn ends(signal: Signal) -> bool {
    Request::of(signal) == Request::End
}

fn ended_by_signal(signal: Signal) -> Problem {
    Problem::silent(u8::try_from(SIGNAL_STATUS + signal.as_raw()).unwrap_or(u8::MAX))
}

/// The standard input of every rank. Where it is missing, as in a container with an empty `/dev`, it is named.
fn open_null() -> Result<File> {
    File::options().read(true).write(true).open(NULL).map_err(|error| Problem::failed(NULL, error))
}

/// The first items, and how many more there are.
fn listed(mut items: Vec<String>, separator: &str) -> String {
    let more = items.len().saturating_sub(NAMED_MAX);
    items.truncate(NAMED_MAX);
    items.extend((more > 0).then(|| format!("and {more} more")));
    items.join(separator)
}
