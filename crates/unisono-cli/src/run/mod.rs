//! `unisono run`: it starts ranks on this host or on others, passes their output on, and ends all of them together.
//!
//! `launcher` decides, in the same way wherever the ranks are. `local_ranks` has ranks of this host, `hosts` has ranks
//! of other hosts through an agent on each, which has them as its `local_ranks`.

pub(crate) mod cores;
mod ends;
mod failure;
pub(crate) mod guard;
pub(crate) mod hosts;
mod input;
mod job;
mod last_words;
mod launcher;
mod local_ranks;
mod log_files;
mod meeting;
mod orphans;
pub(crate) mod output;
mod pipes;
mod plan;
mod queue;
mod rank;
mod reports;
mod signals;
mod vendor;

use std::sync::Arc;
use std::sync::mpsc::channel;

use crate::arguments::{LOCAL_RANKS_MAX, RunArguments, VendorArguments};
use crate::problem::{Problem, Result};
use hosts::agents::Agents;
use hosts::{Hosts, named_variables};
pub(crate) use job::Job;
use last_words::LastWords;
use launcher::Launcher;
use local_ranks::{LocalRanks, Started, check_descriptors};
use log_files::LogFiles;
use meeting::Meeting;
use output::{Output, Places, Sink, Terminal};

/// `unisono run`.
pub(crate) fn run(arguments: RunArguments) -> Result<()> {
    let RunArguments {
        ranks,
        hosts,
        variables,
        agent,
        keep_going,
        timeout,
        grace,
        log_dir,
        comms,
        stdin,
        tag_output,
        bind_to,
        vendor: VendorArguments { vendor_dir },
        program,
    } = arguments;
    if agent {
        return hosts::agent::serve();
    }
    let hosts = Hosts::of_arguments(&hosts, ranks)?;
    let ranks = hosts.as_ref().map(Hosts::ranks).or(ranks).unwrap_or_default();
    if hosts.is_none() && ranks > LOCAL_RANKS_MAX {
        return Err(Problem::usage(format!("-n {ranks}: at most {LOCAL_RANKS_MAX} ranks start on one host")));
    }
    let mut words = program.into_iter();
    let job = Job {
        ranks,
        hosts,
        program: words.next().unwrap_or_default(),
        arguments: words.collect(),
        variables: named_variables(&variables)?,
        vendor_directory: vendor_dir,
        keep_going,
        victim: None,
        timeout,
        grace,
        binding: bind_to,
        log_directory: log_dir,
        records_calls: comms,
        stdin,
    };
    match stdin {
        Some(rank) if rank >= ranks => {
            return Err(Problem::usage(format!("--stdin {rank}: the ranks are 0 to {}", ranks - 1)));
        }
        Some(_) if job.hosts.is_some() => {
            return Err(Problem::usage("--stdin: standard input reaches no rank of --hosts or --hostfile"));
        }
        Some(_) | None => {}
    }
    let terminal = Terminal::new(tag_output, job.log_directory.is_some());
    launch(&job, Arc::new(terminal))
}

/// Runs the job to its end.
///
/// # Errors
/// With the status of the first rank that failed; the text names it.
pub(crate) fn launch(job: &Job, sink: Arc<dyn Sink>) -> Result<()> {
    match &job.hosts {
        None => launch_here(job, sink),
        Some(hosts) => launch_on(hosts, job, sink),
    }
}

fn launch_here(job: &Job, sink: Arc<dyn Sink>) -> Result<()> {
    check_descriptors(job.ranks, if job.log_directory.is_some() { job.ranks } else { 0 })?;
    let (sender, events) = channel();
    signals::watch(sender.clone())?;
    let (places, words) = places(job, sink)?;
    let meeting = Meeting::arrange(job.ranks)?;
    let plan = job.plan_here();
    let Started { ranks, pipes, problem } = LocalRanks::start(&plan, meeting, job.stdin, &sender)?;
    let output = Output::of_pipes(pipes, places, &sender).map_err(unread)?;
    let running = ranks.running();
    Launcher::new(job, (ranks, running), (output, words), problem).until_all_ended(&events)
}

fn launch_on(hosts: &Hosts, job: &Job, sink: Arc<dyn Sink>) -> Result<()> {
    let (sender, events) = channel();
    signals::watch(sender.clone())?;
    let (places, words) = places(job, sink)?;
    let (output, intakes) = Output::of_intakes(places, &sender).map_err(unread)?;
    let agents = Agents::call(hosts, job.plans_on(hosts), intakes, &sender)?;
    Launcher::new(job, (agents, (0..job.ranks).collect()), (output, words), None).until_all_ended(&events)
}

/// The places for the output of a job, and the last words of its ranks.
fn places(job: &Job, sink: Arc<dyn Sink>) -> Result<(Places, Arc<LastWords>)> {
    let files = job.log_directory.as_ref().map(|folder| LogFiles::create(folder, job.ranks)).transpose()?;
    let words = Arc::new(LastWords::new(job.ranks));
    Ok((Places { sink, files: files.map(Arc::new), words: words.clone() }, words))
}

fn unread(error: std::io::Error) -> Problem {
    Problem::failed("reading the output of ranks", error)
}
