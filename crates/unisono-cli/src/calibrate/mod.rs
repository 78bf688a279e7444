//! `unisono calibrate`: measures what prices are made of, and prints a line for `UNISONO_PRICES`.
//!
//! Rank 0 and each other rank in turn time the same few calls between the two of them, while the rest sleep. Nothing
//! is fitted to whole algorithms: every price is one measured figure, or the difference of two.

mod fit;
mod probe;

use std::ffi::OsString;
use std::sync::Arc;

use unisono::{Collectives, Communicator};
use unisono_transport_tcp::config::Config;
use unisono_transport_tcp::environment::Placement;
use unisono_transport_tcp::prices::Prices;

use crate::arguments::CalibrateArguments;
use crate::bench::timing::Timing;
use crate::print;
use crate::problem::{Problem, Result};
use crate::run::output::Spokesman;
use crate::run::{Job, launch};
use fit::{Calibration, Samples};
use probe::{Probe, measure, measure_on_one_core};

/// How many ranks to start when nobody says.
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
    launch(&Job::of_this_program(ranks, words)?, Arc::new(Spokesman))
}

/// One rank's part; rank 0 prints.
fn measure_and_print(comm: &dyn Communicator, json: bool) -> Result<()> {
    if comm.group().size() < 2 {
        return Err(Problem::usage("calibrate measures between ranks: it needs at least 2"));
    }
    let samples = sample(comm)?;
    comm.close()?;
    if comm.group().rank() != 0 {
        return Ok(());
    }
    let prices = Prices::from_config(&Config::from_environment()?)?;
    let calibration = Calibration::new(&samples, prices.cores())?;
    if json { print::document(&calibration) } else { print::line(&calibration.table()) }
}

/// The pooled times of all pairs, on rank 0; on the others, those that they took part in.
fn sample(comm: &dyn Communicator) -> Result<Samples> {
    let (rank, hosts) = (comm.group().rank(), comm.group().hosts().to_vec());
    let mut probes = vec![Vec::new(); Probe::ALL.len()];
    let mut on_one_core = Vec::new();
    let mut pairs_on_one_host = 0;
    for other in 1..comm.group().size() {
        let pair = comm.subgroup(&[0, other])?;
        if let Some(pair) = pair {
            for (pooled, timing) in probes.iter_mut().zip(measure(&*pair)?) {
                pooled.extend(timing.into_seconds());
            }
            if hosts[0] == hosts[other as usize] {
                pairs_on_one_host += 1;
                on_one_core.extend(measure_on_one_core(&*pair)?.map_or(Vec::new(), Timing::into_seconds));
            }
            pair.close()?;
        }
        comm.barrier()?;
    }
    let probes = probes.into_iter().filter(|pooled| !pooled.is_empty()).map(Timing::new).collect();
    let on_one_core = Some(on_one_core).filter(|pooled| !pooled.is_empty()).map(Timing::new);
    let pairs = comm.group().size() - 1;
    Ok(Samples { probes, on_one_core, pairs, is_one_host: pairs_on_one_host == pairs || rank != 0 })
}
