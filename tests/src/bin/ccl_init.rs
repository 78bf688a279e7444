//! One rank of the test of a death in oneCCL's init: the last rank ends while all are in it. The others say why their
//! communicator was not made, whether their thread is still in the library, and what they add up without the last one.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the test reads it")]

use std::sync::Arc;
use std::time::Duration;

use unisono_collectives::Collectives;
use unisono_communicator::{Communicator, Error, ReduceOp, Result};
use unisono_job::Job;
use unisono_job::config::Config;
use unisono_offload::{OffloadOptions, Vendor};
use unisono_offload_ccl::{Ccl, CclCommunicator, CclOptions, CclSettings, CclVendor};
use unisono_transport_tcp::Tcp;

/// Longer than any step before the library; its init of three ranks takes many times as long.
const UNTIL_DEATH: Duration = Duration::from_millis(50);

/// Long enough on any machine.
const INIT_TIMEOUT: Duration = Duration::from_secs(20);

fn main() {
    let config = Config::from_environment().unwrap();
    let world = Job::join(&config, &Tcp { memory: false }).unwrap();
    let companion = world.companion().unwrap();
    let group = companion.group().clone();
    let open = || {
        Ccl::open(&CclOptions { directory: CclSettings::of_environment().directory }).map(CclVendor::on_host)
    };
    let library = open().map(Arc::new);
    if group.rank() + 1 == group.size() {
        std::thread::spawn(die_in_init);
    }
    let options = OffloadOptions::new(INIT_TIMEOUT, true);
    let why = match CclCommunicator::open(companion.clone(), library, &options) {
        Ok(_) => "with a communicator".to_owned(),
        Err(error) => words_of(&error),
    };
    let is_inside = open().is_ok_and(|library| library.turn().is_some_and(|turn| turn.is_stuck()));
    let sum = sum_of_survivors(&*companion);
    println!("ended: {why}; over TCP {sum:?}; {}", if is_inside { "inside" } else { "outside" });
}

/// Ends this process a while after the library's thread has started: that is when the ranks have their id.
fn die_in_init() {
    let is_started = || {
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        threads.flatten().any(|thread| {
            let name = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            name.trim() == "unisono-ccl"
        })
    };
    while !is_started() {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(UNTIL_DEATH);
    std::process::abort();
}

fn words_of(error: &Error) -> String {
    match error.root_cause() {
        Error::PeerLost { culprits, .. } => {
            format!("lost {:?}", culprits.iter().map(|culprit| culprit.rank.get()).collect::<Vec<_>>())
        }
        Error::Timeout { .. } => "late".to_owned(),
        other => format!("otherwise: {other}"),
    }
}

fn sum_of_survivors(companion: &dyn Communicator) -> Result<u32> {
    let mut sum = [1u32];
    companion.shrink()?.communicator.all_reduce(&mut sum, ReduceOp::Sum)?;
    Ok(sum[0])
}
