//! Which backend a world gets: what the settings name, or what `auto` takes.

use std::sync::{Arc, Once};

use unisono_communicator::{Communicator, Error, Result, Severity, Solo, log};
use unisono_offload::{OffloadOptions, Offloaded};
use unisono_offload_ccl::{BACKEND as CCL, Ccl, CclCommunicator, CclOptions, CclVendor};
use unisono_transport_tcp::config::{AUTO, Config};
use unisono_transport_tcp::{BACKEND as TCP, World};

/// The backends of this build, as `UNISONO_BACKEND` names them.
pub const BACKENDS: &[&str] = &[AUTO, TCP, CCL];

/// The communicator of all ranks of the job that the settings describe. A backend that is named is that which does the
/// work, for any number of ranks, or an error.
pub(crate) fn open(config: &Config) -> Result<Arc<dyn Communicator>> {
    let backend = config.backend.as_str();
    let (world, why) = match backend {
        AUTO if config.placement.world_size() == 1 => {
            (alone(config)?, "; no launcher names other ranks: a world of one".to_owned())
        }
        // It takes a vendor's library for the memory of a device only, and none of those that are here has one.
        AUTO => (tcp(config)?, "; there is no device that a vendor's library would serve".to_owned()),
        TCP => (tcp(config)?, String::new()),
        CCL => ccl(config)?,
        unknown => {
            let problem = format!("this build has {}", BACKENDS.join(", "));
            let (name, value) = ("UNISONO_BACKEND".to_owned(), unknown.to_owned());
            return Err(Error::Configuration { name, value, problem });
        }
    };
    let chosen = format_args!("backend {}: UNISONO_BACKEND={backend}{why}", world.backend());
    log(Severity::Info, Some(world.group().rank()), chosen);
    Ok(world)
}

fn alone(config: &Config) -> Result<Arc<dyn Communicator>> {
    config.prepare()?;
    Ok(Arc::new(Solo::new()))
}

fn tcp(config: &Config) -> Result<Arc<dyn Communicator>> {
    World::join(config)?.communicator()
}

/// oneCCL's communicator, on one over TCP, and which oneCCL it is.
fn ccl(config: &Config) -> Result<(Arc<dyn Communicator>, String)> {
    let companion = World::join(config)?.companion()?;
    let library = Ccl::open(&CclOptions { directory: config.ccl_directory.clone() });
    if library.is_ok() {
        warn_of_missing(config);
    }
    let which = library
        .as_ref()
        .map_or_else(|_| String::new(), |ccl| format!("; oneCCL {} ({})", ccl.version(), ccl.file()));
    let options = OffloadOptions::new(config.join_timeout, config.has_call_timeout());
    // A rank that lacks the library tells the others so.
    let world: Arc<CclCommunicator> =
        Offloaded::open(companion, library.map(CclVendor::on_host).map(Arc::new), &options)?;
    Ok((world, which))
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
