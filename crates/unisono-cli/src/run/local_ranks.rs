//! The ranks on this host: their processes, from the start to the end.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;

use rustix::process::{Resource, Signal, getrlimit};
use unisono_job::report::ReportPipe;

use super::ends::Ends;
use super::guard::{Guard, kill_those_told_of};
use super::meeting::Meeting;
use super::pipes::Pipe;
use super::plan::HostPlan;
use super::rank::{Event, Exited, News, Rank, Ranks};
use super::{input, orphans, vendor};
use crate::problem::{Problem, Result};

/// A file that has nothing to read and takes everything.
const NULL: &str = "/dev/null";
/// The status of a shell that cannot start a program.
const STATUS_NOT_STARTED: u8 = 127;
/// The descriptors that a host's launcher holds for each rank: its two streams, its end, its connection to the store.
const DESCRIPTORS_PER_RANK: u64 = 4;
/// And for itself.
const DESCRIPTORS_BESIDE: u64 = 32;

/// The inputs for the start of a rank.
struct Starter<'p> {
    plan: &'p HostPlan,
    meeting: &'p Meeting,
    report_variable: (&'static str, String),
    ends: Ends,
    null: File,
    /// The rank that gets this process's standard input.
    stdin: Option<u32>,
}

impl Starter<'_> {
    fn start(&self, rank: u32) -> Result<(Rank, [Pipe; 2])> {
        let HostPlan { program, arguments, first_rank, local_ranks, binding, .. } = self.plan;
        let mut command = Command::new(program);
        command.args(arguments);
        command.envs(self.plan.variables.iter().cloned());
        command.envs(vendor::variables(self.plan.vendor_directory.clone().map(Into::into)));
        command.env(self.report_variable.0, &self.report_variable.1);
        if self.plan.records_calls {
            command.env("UNISONO_COMMS_LOGGER", "on");
        }
        self.meeting.tell(&mut command, self.plan, rank);
        let started = binding.during(rank - first_rank, *local_ranks, || {
            let input = if self.stdin == Some(rank) { Stdio::piped() } else { self.null.try_clone()?.into() };
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

/// The ranks on this host.
pub(super) struct LocalRanks {
    first_rank: u32,
    /// `None` for a rank that has ended.
    ranks: Vec<Option<Rank>>,
    guard: Guard,
    meeting: Meeting,
}

/// Ranks that have been started, with the pipes of their standard outputs and of their standard errors. If a rank could
/// not be started, the ranks behind it were not tried.
pub(super) struct Started {
    pub(super) ranks: LocalRanks,
    pub(super) pipes: [Vec<Pipe>; 2],
    pub(super) problem: Option<Problem>,
}

impl LocalRanks {
    /// Starts the ranks of a plan.
    pub(super) fn start<R: From<Exited> + Send + 'static>(
        plan: &HostPlan,
        meeting: Meeting,
        stdin: Option<u32>,
        events: &Sender<Event<R>>,
    ) -> Result<Started> {
        let null = open_null()?;
        let mut guard = Guard::start(meeting.folder(), &null)
            .map_err(|error| Problem::failed("starting the guard", error))?;
        // Only the ranks inherit its writing end, which is closed when all have been started.
        let pipe = ReportPipe::new().map_err(|error| Problem::failed("a pipe for reports", error))?;
        let ends = Ends::tell(&pipe, events.clone())
            .map_err(|error| Problem::failed("watching processes", error))?;
        let report_variable = (pipe.variable.0, pipe.variable.1.clone());
        let starter = Starter { plan, meeting: &meeting, report_variable, ends, null, stdin };
        let (mut ranks, mut pipes, mut problem) = (Vec::new(), [Vec::new(), Vec::new()], None);
        for rank in plan.numbers() {
            match starter.start(rank) {
                Ok((started, [out, err])) => {
                    guard.watch(started.pid()).map_err(|error| Problem::failed("the guard", error))?;
                    ranks.push(Some(started));
                    pipes[0].push(out);
                    pipes[1].push(err);
                }
                Err(not_started) => {
                    problem = Some(not_started);
                    break;
                }
            }
        }
        let ranks = LocalRanks { first_rank: plan.first_rank, ranks, guard, meeting };
        Ok(Started { ranks, pipes, problem })
    }

    /// The numbers of the ranks that run.
    pub(super) fn running(&self) -> BTreeSet<u32> {
        (self.first_rank..)
            .zip(&self.ranks)
            .filter_map(|(number, rank)| rank.as_ref().map(|_| number))
            .collect()
    }

    fn pids(&self) -> BTreeSet<i32> {
        self.ranks.iter().flatten().map(|rank| rank.pid().as_raw_nonzero().get()).collect()
    }

    /// Reaps a rank whose process has ended; `None` if that has been done.
    pub(super) fn reap(&mut self, rank: u32) -> Option<io::Result<ExitStatus>> {
        let local = rank.checked_sub(self.first_rank)? as usize;
        let ended = self.ranks.get_mut(local)?.take()?;
        let pid = ended.pid();
        let status = ended.reap();
        self.guard.forget(pid);
        orphans::reap(&self.pids());
        Some(status)
    }
}

impl Ranks for LocalRanks {
    type Event = Exited;

    fn signal(&mut self, signal: Signal) {
        self.ranks.iter().flatten().for_each(|rank| rank.signal(signal));
    }

    fn hear(&mut self, Exited { rank, at }: Exited) -> Vec<News> {
        self.reap(rank).map(|status| News::Ended { rank, at, status }).into_iter().collect()
    }

    fn has_left(&mut self, rank: u32, how: &str) {
        self.meeting.leave(rank, how);
    }

    fn all_have_ended(&mut self, has_failed: bool) {
        if has_failed {
            // A process that a rank leaves behind on purpose outlives a job that succeeds, and no other.
            kill_those_told_of(self.meeting.folder(), 1);
        }
    }

    fn abandon(&mut self) {
        self.signal(Signal::KILL);
    }

    fn reap_orphans(&mut self) {
        orphans::reap(&self.pids());
    }
}

/// The standard input of every rank. Where it is missing, as in a container with an empty `/dev`, it is named.
fn open_null() -> Result<File> {
    File::options().read(true).write(true).open(NULL).map_err(|error| Problem::failed(NULL, error))
}

/// A launcher without descriptors could not let its ranks meet, and they would wait in vain.
pub(super) fn check_descriptors(ranks: u32, files: u32) -> Result<()> {
    let needed = u64::from(ranks) * DESCRIPTORS_PER_RANK + u64::from(files) + DESCRIPTORS_BESIDE;
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < needed => {
            let problem = format!("the limit is {limit}: ulimit -n {needed}");
            Err(Problem::failed(format!("{ranks} ranks need {needed} open files in the launcher"), problem))
        }
        _ => Ok(()),
    }
}
