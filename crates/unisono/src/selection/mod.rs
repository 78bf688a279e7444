//! The backend of a world: the backend that the settings name, or the choice of `auto`.

#[cfg(any(feature = "ccl", feature = "nccl", feature = "hccl"))]
mod on_vendor;

use std::time::Instant;

use crate::config::backend::Backend;
use crate::config::process::Config;
#[cfg(any(feature = "ccl", feature = "nccl", feature = "hccl"))]
use crate::extend::vendors;
use crate::world::World;
use unisono_backend::Companion;
#[cfg(not(all(feature = "ccl", feature = "nccl", feature = "hccl")))]
use unisono_communicator::Error;
use unisono_communicator::{Communicator, Result, Severity, log};

/// The backends of this build. The features `ccl`, `nccl` and `hccl` add one each.
pub const BACKENDS: &[Backend] = &[
    Backend::Auto,
    Backend::Tcp,
    #[cfg(feature = "ccl")]
    Backend::Ccl,
    #[cfg(feature = "nccl")]
    Backend::Nccl,
    #[cfg(feature = "hccl")]
    Backend::Hccl,
];

/// Whether a world of this backend can be had: this build has it, and its library is there and can be opened, as the
/// environment says where. TCP always is.
///
/// A vendor's library that can be opened stays open until the process ends. A library that was opened and is of no use
/// (too old, or of files that do not belong together) is remembered: every later call and [`crate::init`] of this
/// process have the same answer, although the file may have been replaced.
///
/// ```
/// use unisono::Backend;
/// assert!(unisono::is_available(Backend::Tcp));
/// ```
pub fn is_available(backend: Backend) -> bool {
    match backend {
        Backend::Auto | Backend::Tcp => true,
        #[cfg(feature = "ccl")]
        Backend::Ccl => Config::from_environment().is_ok_and(|config| vendors::ccl(&config).is_ok()),
        #[cfg(feature = "nccl")]
        Backend::Nccl => Config::from_environment().is_ok_and(|config| vendors::nccl(&config).is_ok()),
        #[cfg(feature = "hccl")]
        Backend::Hccl => Config::from_environment().is_ok_and(|config| vendors::hccl(&config).is_ok()),
        #[cfg(not(all(feature = "ccl", feature = "nccl", feature = "hccl")))]
        _ => false,
    }
}

/// All ranks of the job that the settings describe. A backend that the settings name does the work, for any number of
/// ranks, or is an error.
pub(crate) fn open(config: &Config) -> Result<World> {
    config.prepare()?;
    let backend = config.backend;
    let (world, why) = match backend {
        Backend::Auto if config.placement.world_size() == 1 => {
            config.job.check()?;
            (World::alone(config)?, "; no launcher names other ranks: a world of one".to_owned())
        }
        Backend::Auto => automatic(config)?,
        Backend::Tcp => (World::over_tcp(config.join()?)?, String::new()),
        #[cfg(feature = "ccl")]
        Backend::Ccl => on_vendor::ccl(config)?,
        #[cfg(feature = "nccl")]
        Backend::Nccl => on_vendor::open(config, vendors::nccl(config))?,
        #[cfg(feature = "hccl")]
        Backend::Hccl => on_vendor::open(config, vendors::hccl(config))?,
        #[cfg(not(all(feature = "ccl", feature = "nccl", feature = "hccl")))]
        missing => return Err(not_in_this_build(missing)),
    };
    let chosen = format_args!("backend {}: UNISONO_BACKEND={backend}{why}", world.backend());
    log(Severity::Info, Some(world.rank()), chosen);
    Ok(world)
}

/// The error of a backend whose feature was off when the program was built.
#[cfg(not(all(feature = "ccl", feature = "nccl", feature = "hccl")))]
fn not_in_this_build(backend: Backend) -> Error {
    let problem = format!(
        "this program was built without it; it has {}. Build it with the feature {backend:?} of the crate unisono",
        Backend::names(BACKENDS),
        backend = backend.name(),
    );
    Error::Configuration { name: "UNISONO_BACKEND".to_owned(), value: backend.to_string(), problem }
}

/// NCCL where every rank has it and a device; else TCP.
#[cfg(feature = "nccl")]
fn automatic(config: &Config) -> Result<(World, String)> {
    let job = config.join()?;
    // The job makes the communicator of all ranks once: somebody holds it from here on.
    let companion = job.companion()?;
    let library = vendors::nccl(config);
    if all_have_nccl(config, &companion, library.is_ok())? {
        return on_vendor::opened(config, job, library);
    }
    let why = match library {
        Err(error) => format!("; no NCCL here: {error}"),
        Ok(_) => "; not every rank has NCCL and a device".to_owned(),
    };
    Ok((World::over_tcp(job)?, why))
}

/// TCP. Ranks of a program with NCCL learn that this one lacks it.
#[cfg(not(feature = "nccl"))]
fn automatic(config: &Config) -> Result<(World, String)> {
    let job = config.join()?;
    // The job makes the communicator of all ranks once: somebody holds it from here on.
    let companion = job.companion()?;
    all_have_nccl(config, &companion, false)?;
    Ok((World::over_tcp(job)?, "; this program was built without NCCL".to_owned()))
}

/// Every rank learns whether all have NCCL before any of them begins.
fn all_have_nccl(config: &Config, companion: &Companion, is_here: bool) -> Result<bool> {
    companion.gate().agree_to_begin(is_here, Instant::now(), config.join_timeout)
}
