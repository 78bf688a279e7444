//! The process of one rank of the conformance suite over a vendor's library; see [`unisono_tests::processes`]. Its
//! argument is the backend.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use unisono_communicator::{CALL_TIMEOUT_DEFAULT, Result};
use unisono_engine::EngineOptions;
use unisono_job::Job;
use unisono_offload::{HostMemory, OffloadOptions, Offloaded, Vendor};
use unisono_offload_ccl::{Ccl, CclCommunicator, CclOptions, CclVendor};
use unisono_tests::ccl::ccl_directory;
use unisono_tests::doubles;
use unisono_tests::processes::{Joined, RankProcess, serve};

/// Collectives by oneCCL; sends, receives and groups of members over TCP.
struct CclRank;

/// Many times what it takes.
const INIT_TIMEOUT: Duration = Duration::from_secs(60);

impl RankProcess for CclRank {
    fn join(&self, world: &Job, options: &EngineOptions) -> Result<Joined> {
        let library =
            Ccl::open(&CclOptions { directory: ccl_directory() }).map(CclVendor::on_host).map(Arc::new)?;
        // A test that sets no timeout has that of the communicator, which is how `unisono` treats one that is not set.
        let deadlines = options.timeout != CALL_TIMEOUT_DEFAULT;
        let options = OffloadOptions::new(INIT_TIMEOUT, deadlines);
        let communicator = CclCommunicator::open(world.companion()?, Ok(library), &options)?;
        Ok(Joined { communicator, groups: Box::new(world.clone()) })
    }

    fn is_usable(&self) -> bool {
        let library = Ccl::open(&CclOptions { directory: ccl_directory() });
        library
            .map(CclVendor::on_host)
            .is_ok_and(|library| library.turn().is_none_or(|turn| !turn.is_stuck()))
    }
}

/// A vendor's collectives, with this way for memory of the host; sends, receives and groups of members over TCP. The
/// library is a test double, and opened on the device of this number.
struct DoubleRank<V>(fn(u32) -> Result<V>, HostMemory);

impl<V: Vendor> RankProcess for DoubleRank<V> {
    fn join(&self, world: &Job, options: &EngineOptions) -> Result<Joined> {
        let companion = world.companion()?;
        let library = (self.0)(companion.group().own_job_rank().get() % DEVICES).map(Arc::new);
        let deadlines = options.timeout != CALL_TIMEOUT_DEFAULT;
        let options = OffloadOptions { host_memory: self.1, ..OffloadOptions::new(INIT_TIMEOUT, deadlines) };
        let communicator = Offloaded::open(companion, library, &options)?;
        Ok(Joined { communicator, groups: Box::new(world.clone()) })
    }
}

/// What the doubles have.
const DEVICES: u32 = 8;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("ccl") => serve(CclRank),
        Some("nccl") => serve(DoubleRank(doubles::open_nccl, HostMemory::Staged)),
        Some("hccl") => serve(DoubleRank(doubles::open_hccl, HostMemory::Staged)),
        Some("nccl-by-name") => serve(DoubleRank(doubles::open_nccl, HostMemory::Refused)),
        Some("hccl-by-name") => serve(DoubleRank(doubles::open_hccl, HostMemory::Refused)),
        other => {
            eprintln!("no such backend: {other:?}");
            ExitCode::FAILURE
        }
    }
}
