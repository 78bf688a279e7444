//! Ranks whose settings name different backends learn so before any of them waits for a call. Ranks are processes.

use unisono_communicator::Error;
use unisono_tests::watchdog;

use super::job::{Job, is_rank};
use super::on_device::SECONDS_MAX;

const BACKENDS: [&str; 3] = ["auto", "tcp", "nccl"];

#[test]
fn two_backends_end_the_start_of_all() {
    if is_rank() {
        return watchdog(SECONDS_MAX, "a rank", || {
            let error = unisono::init().err().unwrap();
            assert!(matches!(error, Error::Rendezvous { .. }), "{error:?}");
            let text = error.to_string();
            for (rank, name) in BACKENDS.iter().enumerate() {
                assert!(text.contains(&format!("rank {rank} with UNISONO_BACKEND={name}")), "{text}");
            }
        });
    }
    watchdog(SECONDS_MAX, "backends", || {
        // As the settings are without it, every rank would wait for minutes.
        let name = |rank: u32| BACKENDS[rank as usize].to_owned();
        let test = "nccl_double::backends::two_backends_end_the_start_of_all";
        Job::start(test, 3, |rank| vec![("UNISONO_BACKEND", name(rank))]).end();
    });
}
