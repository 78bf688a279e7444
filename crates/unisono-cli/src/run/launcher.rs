//! The launcher's own thread: from the start of the ranks to the end of the last one, one event after the other.

use std::collections::BTreeSet;
use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::failure::{End, SIGNAL_STATUS, first};
use super::job::Job;
use super::last_words::{LastWords, LineKind};
use super::output::{self, Output, Stream};
use super::rank::{Event, News, Ranks};
use super::reports::{Reports, named};
use super::signals::{Request, stop};
use crate::print::{self, listed};
use crate::problem::{Problem, Result};

/// The time that the launcher waits after the first failure it sees: another failure may turn out to be the cause, and
/// the other ranks may print their own errors.
const SETTLING: Duration = Duration::from_millis(200);
/// The time that hosts have to say that SIGKILL has ended their ranks.
const KILL_WAIT: Duration = Duration::from_secs(5);
/// Between two looks at a standard error that nobody reads.
const ROOM_PAUSE: Duration = Duration::from_millis(50);
/// The status of a job whose ranks have ended well, but not all that they said has arrived.
const STATUS_FAILED: u8 = 1;
/// The status of a job that was ended because of `--timeout`, as of the program `timeout`.
const STATUS_TIMEOUT: u8 = 124;

/// The phase of the job.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Until this time, if the job has one.
    Running(Option<Instant>),
    /// A rank has failed; at this time the launcher ends the others.
    Settling(Instant),
    /// The ranks have been asked to end; SIGKILL follows at this time.
    Ending(Instant),
    /// The ranks have got SIGKILL. At this time the launcher gives up hosts that have not said that their ranks ended.
    Killed(Instant),
    /// All ranks have ended. Their output is passed on.
    Draining,
}

impl Stage {
    /// When the stage ends by itself.
    fn due(&mut self) -> Option<&mut Instant> {
        match self {
            Stage::Running(due) => due.as_mut(),
            Stage::Settling(due) | Stage::Ending(due) | Stage::Killed(due) => Some(due),
            Stage::Draining => None,
        }
    }
}

/// A job that runs.
pub(super) struct Launcher<'j, R> {
    job: &'j Job,
    ranks: R,
    running: BTreeSet<u32>,
    words: Arc<LastWords>,
    output: Output,
    streams_open: usize,
    succeeded: BTreeSet<u32>,
    /// In the order of their ends.
    failures: Vec<End>,
    reports: Reports,
    /// Why output of ranks that have ended did not come from their hosts.
    output_lost: Vec<String>,
    stage: Stage,
    /// Why the launcher ends the job, if that is no rank's failure.
    ended_by: Option<Problem>,
}

impl<'j, R: Ranks> Launcher<'j, R> {
    /// Takes over ranks, of which these run, and their output. A problem ends the job.
    pub(super) fn new(
        job: &'j Job,
        (ranks, running): (R, BTreeSet<u32>),
        (output, words): (Output, Arc<LastWords>),
        problem: Option<Problem>,
    ) -> Launcher<'j, R> {
        let mut launcher = Launcher {
            job,
            ranks,
            running,
            words,
            output,
            streams_open: Stream::BOTH.len(),
            succeeded: BTreeSet::new(),
            failures: Vec::new(),
            reports: Reports::default(),
            output_lost: Vec::new(),
            stage: Stage::Running(job.timeout.and_then(|timeout| Instant::now().checked_add(timeout))),
            ended_by: problem,
        };
        if launcher.ended_by.is_some() {
            launcher.end(Signal::TERM);
        }
        launcher.drain_if_ended();
        launcher
    }

    /// Waits until the job has ended, and says how.
    pub(super) fn until_all_ended(mut self, events: &Receiver<Event<R::Event>>) -> Result<()> {
        let mut is_waited_for = true;
        while self.is_running() || self.streams_open > 0 {
            let event = match self.stage.due() {
                Some(due) => events.recv_timeout(due.saturating_duration_since(Instant::now())).ok(),
                None => events.recv().ok(),
            };
            match (event, self.stage) {
                (Some(Event::Ranks(event)), _) => {
                    self.ranks.hear(event).into_iter().for_each(|news| self.on_news(news));
                }
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
                (None, Stage::Ending(_)) => self.kill(),
                (None, Stage::Killed(_)) => self.abandon(),
                (None, Stage::Draining) => break,
            }
        }
        let is_told = output::has_room() || is_waited_for && has_room_soon(events);
        self.verdict(is_told)
    }

    fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// Whether the job has failed so far: not all ranks need to succeed in a job that keeps going.
    fn has_failed(&self) -> bool {
        let is_saved = self.job.keep_going && !self.succeeded.is_empty();
        self.ended_by.is_some() || !self.failures.is_empty() && !is_saved
    }

    fn on_news(&mut self, news: News) {
        match news {
            News::Ended { rank, at, status } => self.ended(rank, at, status),
            News::OutputLost(how) => self.output_lost.push(how),
            News::NotStarted { ranks, problem } => {
                ranks.iter().for_each(|rank| _ = self.running.remove(rank));
                self.ended_by.get_or_insert(problem);
                match self.stage {
                    Stage::Running(_) | Stage::Settling(_) => self.end(Signal::TERM),
                    Stage::Ending(_) | Stage::Killed(_) | Stage::Draining => {}
                }
                self.drain_if_ended();
            }
        }
    }

    fn ended(&mut self, rank: u32, at: Instant, status: io::Result<ExitStatus>) {
        if !self.running.remove(&rank) {
            return;
        }
        let is_asked = matches!(self.stage, Stage::Ending(_) | Stage::Killed(_));
        let end = End::new(rank, at, status, is_asked);
        self.ranks.has_left(end.rank, &end.how);
        if end.is_success() {
            self.succeeded.insert(rank);
        } else if !self.was_to_die(&end) {
            self.failed(end);
        }
        self.end_those_given_up();
        self.drain_if_ended();
    }

    /// Asks the ranks to end that the others have gone on without. Such a rank may be stopped, and would never end.
    fn end_those_given_up(&mut self) {
        let running = &self.running;
        let is_given_up = |rank: &u32| self.reports.say_lost(*rank, &self.succeeded);
        if !self.job.keep_going || !matches!(self.stage, Stage::Running(_)) || running.is_empty() {
            return;
        }
        if running.iter().all(is_given_up) {
            let (verb, grace) =
                (if running.len() == 1 { "runs" } else { "run" }, self.job.grace.as_secs_f64());
            let ranks = named(running);
            self.output.tell(format!(
                "{ranks} still {verb}, or stands still; the other ranks have ended, and have gone on without: \
                 SIGTERM now, SIGKILL after {grace} s (--grace)"
            ));
            self.end(Signal::TERM);
        }
    }

    fn drain_if_ended(&mut self) {
        if self.is_running() || matches!(self.stage, Stage::Draining) {
            return;
        }
        self.ranks.all_have_ended(self.has_failed());
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
            Stage::Settling(_) | Stage::Ending(_) | Stage::Killed(_) | Stage::Draining => {}
        }
        self.failures.push(end);
    }

    fn on_signal(&mut self, signal: Signal) {
        match Request::of(signal) {
            Request::PassOn => self.ranks.signal(signal),
            Request::Reap => self.ranks.reap_orphans(),
            Request::Stop => {
                self.ranks.signal(signal);
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
                Stage::Killed(_) => self.abandon(),
                Stage::Draining => {}
            },
        }
    }

    fn timed_out(&mut self) {
        let running = listed(self.running.iter().map(u32::to_string).collect(), ", ");
        let seconds = self.job.timeout.unwrap_or_default().as_secs_f64();
        let text =
            format!("the job was ended after {seconds} s (--timeout); these ranks had not ended: {running}");
        self.ended_by = Some(Problem { status: STATUS_TIMEOUT, text });
        self.end(Signal::TERM);
    }

    /// A rank that is stopped hears the signal when it is continued.
    fn end(&mut self, signal: Signal) {
        self.ranks.signal(signal);
        self.ranks.signal(Signal::CONT);
        self.stage = Stage::Ending(Instant::now() + self.job.grace);
    }

    fn kill(&mut self) {
        self.ranks.signal(Signal::KILL);
        self.stage = Stage::Killed(Instant::now() + KILL_WAIT);
    }

    fn abandon(&mut self) {
        self.ranks.abandon();
        self.stage = Stage::Killed(Instant::now() + KILL_WAIT);
    }

    /// The outcome of this process: its status, and its last lines.
    fn verdict(self, is_told: bool) -> Result<()> {
        let (mut lines, mut status) = (self.reports.at_exit(), 0);
        let lost = self.output_lost.iter().cloned().chain(self.output.lost());
        lines.extend(lost.map(|lost| format!("output of the ranks was lost: {lost}")));
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
                let (lost, ranks) = (self.failures.len(), self.job.ranks);
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
fn has_room_soon<E>(events: &Receiver<Event<E>>) -> bool {
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
