//! `unisono calibrate`: measures the parameters of the cost model, and prints a line for `UNISONO_COST_MODEL`.
//!
//! Rank 0 times the same few calls with each other rank in turn, while the remaining ranks sleep. Nothing is fitted to
//! whole algorithms: every parameter is one measured figure, or the difference of two.

mod cache;
mod fit;
mod probe;
mod progress;

use std::ffi::OsString;
use std::sync::Arc;

use unisono::{Collectives, Communicator, Config};
use unisono_job::environment::Placement;
use unisono_transport_tcp::BACKEND;

use crate::arguments::CalibrateArguments;
use crate::print;
use crate::problem::{Problem, Result};
use crate::run::{Job, launch};
use fit::{Calibration, Samples};
use probe::{measure, measure_on_one_core};
use progress::Progress;

/// The number of ranks to start by default.
const RANKS_DEFAULT: u32 = 2;

/// `unisono calibrate`.
pub(crate) fn calibrate(arguments: &CalibrateArguments) -> Result<()> {
    let ranks = match arguments.ranks {
        Some(ranks) => ranks,
        None if Config::from_environment()?.placement != Placement::Solo => {
            return measure_and_print(&*unisono::init()?, arguments.json);
        }
        None => RANKS_DEFAULT,
    };
    let mut words: Vec<OsString> = vec!["calibrate".into()];
    if arguments.json {
        words.push("--json".into());
    }
    launch(&Job::of_this_program(ranks, words)?, Arc::new(Progress::start(ranks)))
}

/// One rank's part; rank 0 prints.
fn measure_and_print(comm: &dyn Communicator, json: bool) -> Result<()> {
    if comm.backend() != BACKEND && comm.size() > 1 {
        let problem = format!("calibrate measures the algorithms of {BACKEND}: unset UNISONO_BACKEND");
        return Err(Problem::usage(problem));
    }
    if comm.size() < 2 {
        return Err(Problem::usage("calibrate measures between ranks: it needs at least 2"));
    }
    if !comm.group().skipped().is_empty() {
        return Err(Problem::usage(
            "calibrate measures calls, and UNISONO_SKIP makes them do nothing: unset it",
        ));
    }
    let samples = sample(comm)?;
    comm.close()?;
    if comm.rank() != 0 {
        return Ok(());
    }
    let cores = match unisono_job::Job::joined().first() {
        Some(world) => world.cores(0),
        None => Config::from_environment()?.job_settings()?.cores(0, &[]),
    };
    let calibration = Calibration::new(samples, cores)?;
    if json { print::document(&calibration) } else { print::line(&calibration.table()) }
}

/// On rank 0 the times of all pairs; on another rank the times of its own pair.
fn sample(comm: &dyn Communicator) -> Result<Samples> {
    let hosts = comm.group().hosts();
    let mut samples = Samples { pairs: comm.size() - 1, ..Samples::default() };
    for other in 1..comm.size() {
        let on_one_host = hosts[0] == hosts[other as usize];
        if let Some(pair) = comm.subgroup(&[0, other])? {
            let measured = measure(&*pair)?;
            if on_one_host {
                samples.local.add(measured);
                samples.on_one_core.add(measure_on_one_core(&*pair)?.unwrap_or_default());
            } else {
                samples.remote.add(measured);
            }
            pair.close()?;
        }
        comm.barrier()?;
    }
    Ok(samples)
}
