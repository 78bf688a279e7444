//! The launcher: it starts ranks on this host, passes their output on, and ends all of them together.

mod failure;
pub(crate) mod guard;
mod meeting;
pub(crate) mod output;
mod rank;

use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::arguments::RunArguments;
use crate::problem::{Problem, Result};
use failure::{Failure, SIGNAL_STATUS, first};
use guard::Guard;
use meeting::Meeting;
use output::{Prefixed, Sink};
use rank::{Event, Rank};

/// How long ranks may take to end after SIGTERM.
pub(crate) const GRACE_SECONDS_DEFAULT: u64 = 5;
/// How long the launcher waits after the first failure it sees: another failure may turn out to be the cause, and the
/// other ranks may print what they noticed.
const SETTLING: Duration = Duration::from_millis(200);
/// How long to wait, after the last rank has ended, for output held open by a process that left its rank's group.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);
/// The status of a shell that cannot start a program.
const STATUS_NOT_STARTED: u8 = 127;

/// What to start.
pub(crate) struct Job {
    pub(crate) ranks: u32,
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    /// Whether the others go on when a rank fails.
    pub(crate) keep_going: bool,
    /// A rank that is going to be killed: its death is no failure.
    pub(crate) victim: Option<u32>,
    /// Time between SIGTERM and SIGKILL.
    pub(crate) grace: Duration,
}

impl Job {
    /// This program again, with other arguments.
    pub(crate) fn of_this_program(ranks: u32, arguments: Vec<OsString>) -> Result<Job> {
        let program = std::env::current_exe().map_err(|error| Problem::failed("own program", error))?;
        Ok(Job {
            ranks,
            program: program.into(),
            arguments,
            keep_going: false,
            victim: None,
            grace: Duration::from_secs(GRACE_SECONDS_DEFAULT),
        })
    }
}

/// `unisono run`.
pub(crate) fn run(arguments: RunArguments) -> Result<()> {
    let RunArguments { ranks, keep_going, grace, program } = arguments;
    let mut words = program.into_iter();
    let job = Job {
        ranks,
        program: words.next().unwrap_or_default(),
        arguments: words.collect(),
        keep_going,
        victim: None,
        grace: Duration::from_secs(grace),
    };
    launch(&job, Arc::new(Prefixed))
}

/// Runs the job to its end. Fails with the status of the first rank that failed, which has been named on standard
/// error.
pub(crate) fn launch(job: &Job, sink: Arc<dyn Sink>) -> Result<()> {
    let meeting = Meeting::arrange(job.ranks)?;
    let (sender, events) = channel();
    watch_signals(sender.clone()).map_err(|error| Problem::failed("catching signals", error))?;
    let mut launcher = Launcher {
        guard: Guard::start(meeting.folder())
            .map_err(|error| Problem::failed("starting the guard", error))?,
        ranks: Vec::new(),
        streams_open: Vec::new(),
        signs: Vec::new(),
        failures: Vec::new(),
        keep_going: job.keep_going,
        victim: job.victim,
        grace: job.grace,
        stage: Stage::Running,
        outcome: Ok(()),
    };
    if let Err(problem) = launcher.start(job, &meeting, &sink, &sender) {
        launcher.outcome = Err(problem);
        launcher.end();
    }
    launcher.until_all_ended(&events);
    launcher.outcome
}

/// The phase of the job.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Running,
    /// A rank has failed; at this time the launcher decides which rank was the cause.
    Settling(Instant),
    /// SIGTERM has been sent; SIGKILL follows at this time.
    Ending(Instant),
    Killed,
    /// All ranks have ended; output that arrives after this time is not printed.
    Draining(Instant),
}

struct Launcher {
    guard: Guard,
    /// `None` for a rank that has ended.
    ranks: Vec<Option<Rank>>,
    /// Of each rank.
    streams_open: Vec<u32>,
    /// Ranks in the order in which the first sign of their end was seen.
    signs: Vec<u32>,
    failures: Vec<Failure>,
    keep_going: bool,
    victim: Option<u32>,
    grace: Duration,
    stage: Stage,
    outcome: Result<()>,
}

impl Launcher {
    fn start(
        &mut self,
        job: &Job,
        meeting: &Meeting,
        sink: &Arc<dyn Sink>,
        events: &Sender<Event>,
    ) -> Result<()> {
        for rank in 0..job.ranks {
            let mut command = Command::new(&job.program);
            command.args(&job.arguments);
            meeting.tell(&mut command, rank);
            let started = Rank::start(command, rank, sink, events).map_err(|error| Problem {
                status: STATUS_NOT_STARTED,
                text: format!("{}: {error}", job.program.display()),
            })?;
            let pid = started.pid();
            self.ranks.push(Some(started));
            self.streams_open.push(2);
            self.guard.watch(pid).map_err(|error| Problem::failed("the guard", error))?;
        }
        Ok(())
    }

    fn running(&self) -> bool {
        self.ranks.iter().any(Option::is_some)
    }

    fn until_all_ended(&mut self, events: &Receiver<Event>) {
        while self.running() || self.streams_open.iter().any(|&open| open > 0) {
            let event = match self.stage {
                Stage::Settling(due) | Stage::Ending(due) | Stage::Draining(due) => {
                    events.recv_timeout(due.saturating_duration_since(Instant::now())).ok()
                }
                Stage::Running | Stage::Killed => events.recv().ok(),
            };
            match (event, self.stage) {
                (Some(Event::Exited(rank)), _) => self.exited(rank),
                (Some(Event::StreamEnded(rank)), _) => self.stream_ended(rank),
                (Some(Event::Signal(signal)), _) => self.interrupted(signal),
                (None, Stage::Settling(_)) => {
                    self.blame();
                    self.end();
                }
                (None, Stage::Draining(_)) => return,
                (None, _) => self.kill(),
            }
        }
    }

    fn stream_ended(&mut self, rank: u32) {
        let open = &mut self.streams_open[rank as usize];
        *open -= 1;
        if *open == 0 {
            self.signs.push(rank);
        }
    }

    fn exited(&mut self, rank: u32) {
        let Some(mut ended) = self.ranks[rank as usize].take() else { return };
        self.signs.push(rank);
        // Kills what is left of its group, while no other group can have the same number.
        ended.signal(Signal::KILL);
        self.guard.forget(ended.pid());
        let failure = Failure::of(rank, ended.reap()).filter(|failure| !self.was_to_die(failure));
        if let (Some(failure), Stage::Running | Stage::Settling(_)) = (failure, self.stage) {
            self.failed(failure);
        }
        if !self.running() {
            self.blame();
            self.stage = Stage::Draining(Instant::now() + OUTPUT_GRACE);
        }
    }

    fn was_to_die(&self, failure: &Failure) -> bool {
        self.victim == Some(failure.rank)
            && failure.status == SIGNAL_STATUS as u8 + Signal::KILL.as_raw() as u8
    }

    fn failed(&mut self, failure: Failure) {
        if self.keep_going {
            eprintln!("unisono: rank {} {}", failure.rank, failure.how);
        } else if matches!(self.stage, Stage::Running) {
            self.stage = Stage::Settling(Instant::now() + SETTLING);
        }
        self.failures.push(failure);
    }

    /// Decides which rank's status becomes ours.
    fn blame(&mut self) {
        let (true, Some(failure)) = (self.outcome.is_ok(), first(&self.failures, &self.signs)) else {
            return;
        };
        self.outcome = Err(Problem::silent(failure.status));
        if !self.keep_going {
            let rest = if self.running() { "; ending the other ranks" } else { "" };
            eprintln!("unisono: rank {} {}{rest}", failure.rank, failure.how);
        }
    }

    fn interrupted(&mut self, signal: i32) {
        match self.stage {
            Stage::Running | Stage::Settling(_) => {
                let status = u8::try_from(SIGNAL_STATUS + signal).unwrap_or(u8::MAX);
                self.outcome = Err(Problem::silent(status));
                self.end();
            }
            // A second signal means that the user does not want to wait.
            Stage::Ending(_) => self.kill(),
            Stage::Killed | Stage::Draining(_) => {}
        }
    }

    fn end(&mut self) {
        self.ranks.iter().flatten().for_each(|rank| rank.signal(Signal::TERM));
        self.stage = Stage::Ending(Instant::now() + self.grace);
    }

    fn kill(&mut self) {
        self.ranks.iter().flatten().for_each(|rank| rank.signal(Signal::KILL));
        self.stage = Stage::Killed;
    }
}

fn watch_signals(events: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::spawn(move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    });
    Ok(())
}
