//! What a call on memory of a device costs before the vendor's function is entered, by the clock of the test double of
//! NCCL; and what it costs at start to find out that no vendor's library is there. Both without a device.
//!
//! `target/release/device_overhead` prints medians and quartiles of 6,400 calls, and of 20 processes.

#![expect(unsafe_code, reason = "memory and streams of a device, by their addresses")]
#![allow(clippy::unwrap_used, reason = "a program that fails by panicking")]
#![allow(clippy::print_stdout, reason = "a program whose output is its result")]

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_collectives::CollectivesOnDevice;
use unisono_communicator::{Communicator, DeviceSliceMut, DeviceStream, ReduceOp};
use unisono_offload::{OffloadOptions, Vendor};
use unisono_offload_ccl::{Ccl, CclOptions};
use unisono_offload_hccl::{Hccl, HcclOptions};
use unisono_offload_nccl::{Nccl, NcclCommunicator, NcclOptions};
use unisono_tests::doubles::{Control, nccl};
use unisono_tests::overhead::{BURST, burst, quartiles};
use unisono_tests::{companions, watchdog};

const BURSTS: usize = 400;
/// Before the measurement: more calls than are remembered.
const BURSTS_BEFORE: usize = 80;
const PROCESSES: usize = 20;
/// The argument of a process that looks for the libraries.
const PROBE: &str = "probe";

/// For each call, nanoseconds to the entry of NCCL's function, and those of them within the double of the driver.
fn entries(control: &Control) -> Vec<(u64, u64)> {
    let mut of_ranks = companions(1, |companion| {
        let (rank, double) = (companion.group().rank(), Some(nccl()));
        let options = NcclOptions {
            library: double.clone(),
            driver: double,
            device: rank,
            blocking: true,
            ..NcclOptions::default()
        };
        let library = Nccl::open(&options).unwrap();
        let (memory, stream) = {
            let device = library.device().unwrap();
            (device.allocate(4096).unwrap(), device.create_stream().unwrap())
        };
        let options = OffloadOptions::new(Duration::from_secs(60), false);
        let comm = NcclCommunicator::open(companion, Ok(Arc::new(library)), &options).unwrap();
        // SAFETY: the memory and the stream are of this rank's device, and live to the end of the process.
        let (mut elements, stream) = unsafe {
            let elements = DeviceSliceMut::<f32>::from_raw(memory.expose_provenance(), 1024, rank);
            (elements.unwrap(), DeviceStream::from_raw(stream.0, rank))
        };
        let (on, mut found) = (comm.on(stream), Vec::with_capacity(BURST * (BURSTS_BEFORE + BURSTS)));
        let clock = control.clock().unwrap();
        for _ in 0..BURSTS_BEFORE + BURSTS {
            let one = || {
                clock.start();
                let enqueued = on.all_reduce(&mut elements, ReduceOp::Max)?;
                Ok((clock.entered_ns(), enqueued))
            };
            burst(&mut found, one, |last| on.wait(last).map(drop)).unwrap();
        }
        let found = found.split_off(BURST * BURSTS_BEFORE);
        assert!(found.iter().all(|(entered, _)| *entered > 0), "NCCL's function was not entered");
        comm.close().unwrap();
        found
    });
    of_ranks.swap_remove(0)
}

/// Looks for the three libraries, none of which may be there; microseconds of each.
fn probe() -> [f64; 3] {
    let timed = |open: &dyn Fn() -> bool| {
        let started = Instant::now();
        assert!(!open(), "a library is there: nothing to measure");
        started.elapsed().as_secs_f64() * 1e6
    };
    [
        timed(&|| Ccl::open(&CclOptions { directory: None }).is_ok()),
        timed(&|| Nccl::open(&NcclOptions::default()).is_ok()),
        timed(&|| Hccl::open(&HcclOptions { directory: None, device: 0 }).is_ok()),
    ]
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some(PROBE) {
        return probe().iter().for_each(|time| println!("{time}"));
    }
    watchdog(120, "device_overhead", || {
        let found = entries(&Control::open(&nccl()).unwrap());
        let of =
            |value: fn(&(u64, u64)) -> u64| quartiles(found.iter().map(|one| value(one) as f64).collect());
        let all = of(|one| one.0);
        let (inside, own) = (of(|one| one.1), of(|one| one.0 - one.1));
        println!("to the entry of ncclAllReduce, ns: {} ({} to {})", all[1], all[0], all[2]);
        println!("within the double of the driver, ns: {} ({} to {})", inside[1], inside[0], inside[2]);
        println!("without that, ns: {} ({} to {})", own[1], own[0], own[2]);
    });
    let program = std::env::current_exe().unwrap();
    let run = |_| {
        let said = Command::new(&program).arg(PROBE).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        let said = String::from_utf8(said.stdout).unwrap();
        said.lines().map(|line| line.parse::<f64>().unwrap()).sum::<f64>()
    };
    let [low, median, high] = quartiles((0..PROCESSES).map(run).collect());
    println!("three libraries that are absent, us: {median:.0} ({low:.0} to {high:.0})");
}
