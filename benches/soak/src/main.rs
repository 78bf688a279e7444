//! `cargo xtask soak`: jobs of real processes whose ranks are killed and stopped, hundreds of times. Every outcome is
//! checked, every time measured, and one line printed for each promise.
//!
//! The ranks are this program again. All of them read one clock, that of the machine since its start.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for people at a terminal, and its ranks, whom it reads")]

mod alarms;
mod cut;
mod cycles;
mod job;
mod rank;
mod recovery;
mod strangers;
mod table;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use recovery::{Fault, Trial};
use table::{Bound, Row};

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
    /// Where the random choices start.
    #[arg(long, default_value_t = 1)]
    seed: u64,
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
    /// One rank with strangers at its door; started by this program.
    #[command(hide = true)]
    Strangers,
    /// One rank of a job that is cut in two; started by this program.
    #[command(hide = true)]
    Cut,
    /// One rank of the cycles; started by this program.
    #[command(hide = true)]
    Cycles {
        /// How many.
        cycles: u32,
    },
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
        Some(RankCommand::Strangers) => strangers::rank(),
        Some(RankCommand::Cut) => cut::rank(),
        Some(RankCommand::Cycles { cycles }) => cycles::rank(cycles),
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
    let Arguments { runs, cycles, busy_seconds, seed, .. } = *arguments;
    println!("4 ranks, loopback, {runs} runs of each trial, seed {seed}\n");
    let milliseconds = Duration::from_millis;
    let small = Trial { fault: Fault::Kill, resident_mib: 0, runs, seed };
    let killed = recovery::measure(&small)?;
    let large = recovery::measure(&Trial { resident_mib: 1024, ..small })?;
    let stopped = recovery::measure(&Trial { fault: Fault::Stop, ..small })?;
    let cut = cut::measure(runs, seed)?;
    table::print(&[
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
        Row::new("cut link named by every survivor: down", cut.link_down, Bound::Most(milliseconds(1000))),
        Row::new("the same, packets vanish", cut.silence, Bound::Most(milliseconds(1000))),
        Row::new("the same, blackhole routes", cut.blackhole, Bound::Most(milliseconds(1000))),
    ]);
    println!("\n{}", cycles::measure(cycles)?);
    println!("{}", strangers::measure()?);
    let calls = alarms::measure(busy_seconds)?;
    println!("{busy_seconds} s beside 4 busy loops: {calls} calls of every rank, no alarm");
    Ok(())
}
