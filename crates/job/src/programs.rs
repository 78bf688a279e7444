//! The processes that tests of this crate start.

use crate::rendezvous::{loopback, process_tests, room_tests};
use crate::{config, program, size_limit};

#[test]
fn program_of_this_process() {
    program::run(&[
        #[cfg(target_os = "linux")]
        ("bound", process_tests::one_bound_process),
        ("host", room_tests::one_host),
        ("host_whose_descriptors_are_taken", room_tests::one_host_whose_descriptors_are_taken),
        ("limited", size_limit::tests::one_limited_process),
        ("rank", process_tests::one_rank_process),
        ("with_paths", config::tests::one_process_with_paths),
        ("without_loopback", loopback::tests::one_process_without_loopback),
    ]);
}
