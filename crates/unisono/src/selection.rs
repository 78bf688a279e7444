//! Which backend a world gets: what the settings name, or what `auto` takes.

use std::sync::{Arc, Once};
use std::time::Instant;

use unisono_communicator::{Communicator, Error, Result, Severity, log};
use unisono_offload::{HostMemory, OffloadOptions, Offloaded, Vendor};
use unisono_offload_ccl::BACKEND as CCL;
use unisono_offload_hccl::BACKEND as HCCL;
use unisono_offload_nccl::BACKEND as NCCL;
use unisono_transport_tcp::config::{AUTO, Config, HostMemorySetting};
use unisono_transport_tcp::{BACKEND as TCP, TcpJob};

use crate::vendors;
use crate::world::World;

/// The backends of this build, as `UNISONO_BACKEND` names them.
pub const BACKENDS: &[&str] = &[AUTO, TCP, CCL, NCCL, HCCL];

/// The communicator of all ranks of the job that the settings describe. A backend that is named is that which does the
/// work, for any number of ranks, or an error.
pub(crate) fn open(config: &Config) -> Result<World> {
    let backend = config.backend.as_str();
    let (world, why) = match backend {
        AUTO if config.placement.world_size() == 1 => {
            config.prepare()?;
            (World::alone(), "; no launcher names other ranks: a world of one".to_owned())
        }
        AUTO => automatic(config)?,
        TCP => (World::over_tcp(TcpJob::join(config)?)?, String::new()),
        CCL => ccl(config)?,
        NCCL => on_vendor(config, vendors::nccl(config))?,
        HCCL => on_vendor(config, vendors::hccl(config))?,
        unknown => {
            let problem = format!("this build has {}", BACKENDS.join(", "));
            let (name, value) = ("UNISONO_BACKEND".to_owned(), unknown.to_owned());
            return Err(Error::Configuration { name, value, problem });
        }
    };
    let chosen = format_args!("backend {}: UNISONO_BACKEND={backend}{why}", world.backend());
    log(Severity::Info, Some(world.rank()), chosen);
    Ok(world)
}

/// NCCL where every rank has it and a device; else TCP.
fn automatic(config: &Config) -> Result<(World, String)> {
    let job = TcpJob::join(config)?;
    let library = vendors::nccl(config);
    let companion = job.companion()?;
    // Every rank learns whether all have it before any of them begins.
    if companion.gate().agree_to_begin(library.is_ok(), Instant::now(), config.join_timeout)? {
        return opened(config, job, library);
    }
    let why = match library {
        Err(error) => format!("; no NCCL here: {error}"),
        Ok(_) => "; not every rank has NCCL and a device".to_owned(),
    };
    Ok((World::over_tcp(job)?, why))
}

/// The communicator of a vendor's library, on one over TCP, and which library it is.
fn on_vendor<V: Vendor>(config: &Config, library: Result<V>) -> Result<(World, String)> {
    opened(config, TcpJob::join(config)?, library)
}

fn opened<V: Vendor>(config: &Config, job: TcpJob, library: Result<V>) -> Result<(World, String)> {
    let which = library.as_ref().map_or_else(|_| String::new(), |library| format!("; {}", library.version()));
    let host_memory = match config.devices.host_memory {
        HostMemorySetting::Auto if config.backend == AUTO => HostMemory::Companion,
        HostMemorySetting::Auto | HostMemorySetting::Refused => HostMemory::Refused,
        HostMemorySetting::Staged => HostMemory::Staged,
        HostMemorySetting::Tcp => HostMemory::Companion,
    };
    let options =
        OffloadOptions { host_memory, ..OffloadOptions::new(config.join_timeout, config.has_call_timeout()) };
    // A rank that lacks the library tells the others so.
    let whole = Offloaded::open(job.companion()?, library.map(Arc::new), &options)?;
    let communicator = whole.clone();
    Ok((World::on_vendor(job, communicator, Box::new(move |companion| whole.over(companion))), which))
}

fn ccl(config: &Config) -> Result<(World, String)> {
    let library = vendors::ccl(config);
    if library.is_ok() {
        warn_of_missing(config);
    }
    on_vendor(config, library)
}

/// Warns of variables that oneCCL would read, once in a process: it reads them once.
fn warn_of_missing(config: &Config) {
    static SAID: Once = Once::new();
    let missing = config.missing_ccl_variables();
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
