//! Worlds whose collectives a vendor's library does.

use std::sync::Arc;

use unisono_communicator::Result;
#[cfg(feature = "ccl")]
use unisono_communicator::{Severity, log};
use unisono_job::Job;
use unisono_offload::{HostMemory, OffloadOptions, Offloaded, Vendor};

use crate::config::backend::Backend;
use crate::config::process::Config;
#[cfg(feature = "ccl")]
use crate::extend::vendors;
use crate::world::World;

/// The communicator of a vendor's library, on one over TCP, and which library it is.
pub(super) fn open<V: Vendor>(config: &Config, library: Result<V>) -> Result<(World, String)> {
    opened(config, config.join()?, library)
}

/// The same in a job that has been joined.
pub(super) fn opened<V: Vendor>(config: &Config, job: Job, library: Result<V>) -> Result<(World, String)> {
    let which = library.as_ref().map_or_else(|_| String::new(), |library| format!("; {}", library.version()));
    let unless_set = match config.backend {
        Backend::Auto => HostMemory::Companion,
        _ => HostMemory::Refused,
    };
    let host_memory = config.devices.host_memory.unwrap_or(unless_set);
    let options =
        OffloadOptions { host_memory, ..OffloadOptions::new(config.join_timeout, config.has_call_timeout()) };
    // A rank that lacks the library tells the others so.
    let whole = Offloaded::open(job.companion()?, library.map(Arc::new), &options)?;
    let communicator = whole.clone();
    Ok((World::on_vendor(job, communicator, Box::new(move |companion| whole.over(companion))), which))
}

/// oneCCL, which reads variables of its own.
#[cfg(feature = "ccl")]
pub(super) fn ccl(config: &Config) -> Result<(World, String)> {
    let library = vendors::ccl(config);
    if library.is_ok() {
        warn_of_missing(config);
    }
    open(config, library)
}

/// Warns of variables that oneCCL would read, once in a process: it reads them once.
#[cfg(feature = "ccl")]
fn warn_of_missing(config: &Config) {
    use std::sync::Once;

    static SAID: Once = Once::new();
    let missing = config.ccl.missing_variables();
    if missing.is_empty() {
        return;
    }
    let listed: Vec<String> =
        missing.iter().map(|(name, value)| format!("{name}={}", value.display())).collect();
    SAID.call_once(|| {
        log(
            Severity::Warn,
            Some(config.placement.rank()),
            format_args!(
                "oneCCL needs {} in the environment in which a rank starts, and is up to 2000 times slower without, or \
                 finds no other rank; unisono run sets this",
                listed.join(" ")
            ),
        );
    });
}
