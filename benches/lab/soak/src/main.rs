//! `cargo xtask soak`: jobs of real processes whose ranks are killed and stopped, hundreds of times. Every outcome is
//! checked, every time measured, and one line printed for each promise.
//!
//! The ranks are this program again. All of them read one clock, that of the machine since its start.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for people at a terminal, and its ranks, whom it reads")]

mod alarms;
mod cut;
mod cycles;
mod faults;
mod flips;
mod identical;
mod job;
mod joins;
mod rank;
mod recovery;
mod table;
mod unauthenticated;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use recovery::{RankFault, Trial};
use table::{Bound, Row, Verdicts};

/// Fails the ranks of real jobs, and measures what the others make of it.
#[derive(Debug, Parser)]
#[command(name = "unisono-soak")]
struct Arguments {
    #[command(subcommand)]
    rank: Option<RankCommand>,
    /// How often each rank-killing trial is made.
    #[arg(long, default_value_t = 200)]
    runs: u32,
    /// How often a communicator is created, failed and dropped.
    #[arg(long, default_value_t = 10_000)]
    cycles: u32,
    /// For how many seconds a job runs beside busy loops.
    #[arg(long, default_value_t = 600)]
    busy_seconds: u64,
    /// How many jobs get random faults; `--only faults --seed N --fault-runs 1` repeats one of them.
    #[arg(long, default_value_t = 100)]
    fault_runs: u32,
    /// How often survivors are compared with a fresh job.
    #[arg(long, default_value_t = 50)]
    identical_runs: u32,
    /// How many bits are changed.
    #[arg(long, default_value_t = 10_000)]
    flips: u32,
    /// How often a rank joins beside unauthenticated connections, and alone.
    #[arg(long, default_value_t = 21)]
    joins: u32,
    /// Only this part.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Where the random choices start.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Ranks that die or stop: a table.
    Times,
    /// Ranks that are cut off: a table.
    Cuts,
    /// Communicators made and dropped.
    Cycles,
    /// Unauthenticated connections.
    Unauthenticated,
    /// Ranks that join beside unauthenticated connections.
    Joins,
    /// Random faults.
    Faults,
    /// Survivors beside a fresh job.
    Identical,
    /// Changed bits.
    Flips,
    /// A job beside busy loops.
    Alarms,
}

#[derive(Debug, Subcommand)]
enum RankCommand {
    /// One rank of a trial; started by this program.
    #[command(hide = true)]
    Rank {
        /// Mebibytes that it holds besides.
        resident_mib: usize,
    },
    /// One rank beside busy loops; started by this program.
    #[command(hide = true)]
    Alarms {
        /// For how long.
        seconds: u64,
    },
    /// One rank with unauthenticated connections; started by this program.
    #[command(hide = true)]
    Unauthenticated,
    /// One rank of a job that is cut in two; started by this program.
    #[command(hide = true)]
    Cut,
    /// One rank of the cycles; started by this program.
    #[command(hide = true)]
    Cycles {
        /// How many.
        cycles: u32,
    },
    /// One rank of a job under random faults; started by this program.
    #[command(hide = true)]
    Faults {
        /// Of its program.
        seed: u64,
        /// How many.
        steps: u64,
        /// Whether its streams carry checksums.
        #[arg(action = clap::ArgAction::Set)]
        checksums: bool,
    },
    /// One rank of a job that loses one; started by this program.
    #[command(hide = true)]
    Identical {
        /// Of its data.
        seed: u64,
        /// The file for the checkpoint.
        checkpoint: PathBuf,
    },
    /// One rank of a job that starts from a checkpoint; started by this program.
    #[command(hide = true)]
    Fresh {
        /// Of its data.
        seed: u64,
        /// The file with the checkpoint.
        checkpoint: PathBuf,
        /// The step it is of.
        step: u64,
        /// Whose data the ranks take.
        #[arg(value_delimiter = ',')]
        owners: Vec<u32>,
    },
    /// One rank of a job whose bits change; started by this program.
    #[command(hide = true)]
    Flips,
    /// One rank that joins; started by this program.
    #[command(hide = true)]
    Joins,
}

/// Failures of this program and of the promises alike.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    /// A rank did or said something else than was promised.
    #[error("{0}")]
    Broken(String),
    /// The system refused something.
    #[error(transparent)]
    System(#[from] std::io::Error),
    /// A call of a rank failed that must not.
    #[error(transparent)]
    Call(#[from] unisono::Error),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.rank {
        Some(RankCommand::Rank { resident_mib }) => rank::run(resident_mib),
        Some(RankCommand::Alarms { seconds }) => alarms::rank(seconds),
        Some(RankCommand::Unauthenticated) => unauthenticated::rank(),
        Some(RankCommand::Cut) => cut::rank(),
        Some(RankCommand::Cycles { cycles }) => cycles::rank(cycles),
        Some(RankCommand::Faults { seed, steps, checksums }) => faults::rank(seed, steps, checksums),
        Some(RankCommand::Identical { seed, checkpoint }) => identical::rank(seed, &checkpoint),
        Some(RankCommand::Fresh { seed, checkpoint, step, owners }) => {
            identical::fresh(seed, &checkpoint, step, &owners)
        }
        Some(RankCommand::Flips) => flips::rank(),
        Some(RankCommand::Joins) => joins::rank(),
        None => soak(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("soak: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn soak(arguments: &Arguments) -> Result<(), Problem> {
    let Arguments { runs, cycles, busy_seconds, fault_runs, identical_runs, flips, joins, seed, .. } =
        *arguments;
    let is_wanted = |part| arguments.only.is_none_or(|only| only == part);
    let mut verdicts = Verdicts::default();
    if is_wanted(Part::Times) {
        println!("4 ranks, loopback, {runs} runs of each trial, seed {seed}\n");
        let are_kept = times(runs, seed)?;
        verdicts.judge("\nthe times above", are_kept);
    }
    if is_wanted(Part::Cuts) {
        println!("\n4 ranks on 3 hosts, {runs} runs of each trial, seed {seed}\n");
        let are_kept = cuts(runs, seed)?;
        verdicts.judge("\nthe times above", are_kept);
    }
    if is_wanted(Part::Cycles) {
        verdicts.judge_outcome("cycles", cycles::measure(cycles));
    }
    if is_wanted(Part::Unauthenticated) {
        verdicts.judge_outcome("unauthenticated", unauthenticated::measure());
    }
    if is_wanted(Part::Joins) {
        let joins = joins::measure(joins)?;
        verdicts.judge(&joins, joins.is_kept());
    }
    if is_wanted(Part::Faults) {
        let totals = faults::measure(fault_runs, seed);
        verdicts.judge(&totals, totals.is_kept());
    }
    if is_wanted(Part::Identical) {
        let outcome = identical::measure(identical_runs, seed);
        let text =
            |runs| format!("{runs} times survivors came to the bits of a fresh run from their checkpoint");
        verdicts.judge_outcome("survivors and a fresh run", outcome.map(text));
    }
    if is_wanted(Part::Flips) {
        let text =
            |flips| format!("{flips} changed bits: the same link named by every rank, no wrong result");
        verdicts.judge_outcome("changed bits", flips::measure(flips, seed).map(text));
    }
    if is_wanted(Part::Alarms) {
        let text =
            |calls| format!("{busy_seconds} s beside 4 busy loops: {calls} calls of every rank, no alarm");
        verdicts.judge_outcome("busy loops", alarms::measure(busy_seconds).map(text));
    }
    verdicts.end()
}

/// The table of deaths and stops; whether all its promises are kept.
fn times(runs: u32, seed: u64) -> Result<bool, Problem> {
    let milliseconds = Duration::from_millis;
    let small = Trial { fault: RankFault::Kill, resident_mib: 0, runs, seed };
    let killed = recovery::measure(&small)?;
    let large = recovery::measure(&Trial { resident_mib: 1024, ..small })?;
    let stopped = recovery::measure(&Trial { fault: RankFault::Stop, ..small })?;
    let are_kept = table::print(&[
        Row::new("killed rank named by every survivor", killed.named, Bound::P95(milliseconds(10))),
        Row::new("the same, 1 GiB resident", large.named, Bound::P95(milliseconds(300))),
        Row::new("kill to the end of shrink", killed.shrunk, Bound::Nothing),
        Row::new(
            "kill to the next 4 MiB all_reduce",
            killed.resumed,
            Bound::Both(milliseconds(15), milliseconds(50)),
        ),
        Row::new("the same, 1 GiB resident", large.resumed, Bound::Nothing),
        Row::new("stopped rank named by every survivor", stopped.named, Bound::Most(milliseconds(1000))),
    ]);
    Ok(are_kept)
}

/// The table of cuts; whether all its promises are kept.
fn cuts(runs: u32, seed: u64) -> Result<bool, Problem> {
    let limit = Bound::Most(Duration::from_millis(1000));
    let cut = cut::measure(runs, seed)?;
    Ok(table::print(&[
        Row::new("cut link named by every survivor: down", cut.link_down, limit),
        Row::new("the same, packets vanish", cut.silence, limit),
        Row::new("the same, blackhole routes", cut.blackhole, limit),
        Row::new("the same, resets in the place of answers", cut.resets, limit),
    ]))
}
