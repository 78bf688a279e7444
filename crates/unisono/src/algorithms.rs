//! The command line of algorithms, with the figures of this process's settings.

use std::process::ExitCode;
use std::sync::Arc;

use unisono_algorithms_cli::MachineFigures;
use unisono_algorithms_cli::forecast::Forecast;
use unisono_job::Job;
use unisono_schedule::{Algorithm, CostModel, Registry};

use crate::{Config, Group, Result};

/// The whole `main` of a program that answers questions about its own algorithms, beside the algorithms of this crate,
/// as `unisono algo` does:
///
/// ```text
/// program list                              every algorithm; the program's own are marked
/// program show all_reduce/pair -n 2         the steps of every rank
/// program verify pair --ranks 1..16         a proof, or a counterexample
/// program price --all --ranks 64 --bytes 1M the expected time of each, and which one is chosen
/// ```
///
/// The exit status is 0; 1 when an algorithm is wrong or something failed; 2 for a command line that is not valid, and
/// for an algorithm whose name is taken or is none. Needs the feature `cli`.
///
/// ```no_run
/// use std::sync::Arc;
/// use unisono::schedule::{Algorithm, Own};
/// use unisono::Collective;
///
/// // Both ranks send their whole vector, and add the arriving one, the lower rank's on the left.
/// fn pair() -> Arc<Algorithm> {
///     let pair = Algorithm::new("pair", Collective::AllReduce, |builder| {
///         let (peer, own) = (1 - builder.rank(), if builder.rank() == 0 { Own::Left } else { Own::Right });
///         builder.send(peer, 0);
///         builder.recv_reduce(peer, 0, own, true);
///     });
///     Arc::new(pair.fits(|shape| shape.ranks == 2))
/// }
///
/// fn main() -> std::process::ExitCode {
///     unisono::algorithms_main(&[pair()])
/// }
/// ```
pub fn algorithms_main(own: &[Arc<Algorithm>]) -> ExitCode {
    unisono_algorithms_cli::main(own, &figures_here)
}

/// The figures of this process's settings, for the program `unisono`.
///
/// # Errors
/// For settings that cannot be obeyed.
pub fn figures_here(ranks: u32) -> Result<MachineFigures> {
    let config = Config::from_environment()?;
    let settings = config.job_settings()?;
    let machine =
        if settings.shares_memory() { CostModel::MEMORY_MACHINE } else { CostModel::LOOPBACK_MACHINE };
    let cost_model = settings.cost_model(&Group::world(0, ranks), &[]);
    Ok(MachineFigures { cost_model, built_in: config.cost_model.is_none().then_some(machine) })
}

/// The choices of the library in `group`: with the figures of the job of this process, if it has joined one, else with
/// the figures of its settings. For the program `unisono`.
///
/// # Errors
/// For settings that cannot be obeyed.
pub fn forecast_of_group(group: &Group) -> Result<Forecast> {
    let config = Config::from_environment()?;
    let cost_model = match Job::joined().first() {
        Some(world) => world.cost_model(group),
        None => config.job_settings()?.cost_model(group, &[]),
    };
    let forecast = Forecast::new(Registry::built_in(), cost_model.shape(group.hosts()), cost_model);
    Ok(forecast.with_forced(config.job.algorithm))
}
