//! The process of one rank of the conformance suite; see [`unisono_tests::processes`]. Its argument is the backend.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Arc;

use unisono_communicator::{CALL_TIMEOUT_DEFAULT, Communicator, Result};
use unisono_engine::EngineOptions;
use unisono_offload::OffloadOptions;
use unisono_offload_ccl::{Ccl, CclCommunicator, CclOptions};
use unisono_tests::backend::MakeGroup;
use unisono_tests::ccl::ccl_directory;
use unisono_tests::processes::{Joined, RankProcess, serve};
use unisono_transport_tcp::World;

struct TcpRank;

impl RankProcess for TcpRank {
    fn join(&self, world: &World, _options: &EngineOptions) -> Result<Joined> {
        Ok(Joined { communicator: world.communicator()?, groups: Box::new(world.clone()) })
    }
}

/// Collectives by oneCCL, sends and receives over TCP. With deadlines all calls meet.
struct CclRank;

/// Groups of members, each with a communicator of oneCCL's.
struct CclGroups {
    world: World,
    library: Arc<&'static Ccl>,
    options: OffloadOptions,
}

impl MakeGroup for CclGroups {
    fn make_group(&self, key: &str, ranks: &[u32]) -> Result<Arc<dyn Communicator>> {
        let companion = self.world.make_group_companion(key, ranks)?;
        Ok(CclCommunicator::open(companion, Ok(self.library.clone()), &self.options)?)
    }
}

impl RankProcess for CclRank {
    fn join(&self, world: &World, options: &EngineOptions) -> Result<Joined> {
        let library = Ccl::open(&CclOptions { directory: ccl_directory() }).map(Arc::new)?;
        // A test that sets no timeout has that of the communicator, which is how `unisono` treats one that is not set.
        let deadlines = options.timeout != CALL_TIMEOUT_DEFAULT;
        let options = OffloadOptions { init_timeout: options.timeout, deadlines };
        let communicator = CclCommunicator::open(world.companion()?, Ok(library.clone()), &options)?;
        Ok(Joined { communicator, groups: Box::new(CclGroups { world: world.clone(), library, options }) })
    }
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("tcp") => serve(TcpRank),
        Some("ccl") => serve(CclRank),
        other => {
            eprintln!("no such backend: {other:?}");
            ExitCode::FAILURE
        }
    }
}
