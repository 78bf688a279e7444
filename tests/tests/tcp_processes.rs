//! The conformance suite over loopback sockets, with ranks that are processes.

use unisono_tests::{Algorithms, Processes};

const TCP: Processes = Processes {
    name: "tcp processes",
    program: env!("CARGO_BIN_EXE_suite_rank"),
    argument: "tcp",
    rank_counts: &[2, 4],
    large_rank_counts: &[4],
    algorithms: Algorithms::BuiltIn,
    worlds_max: 2,
};

unisono_tests::conformance!(TCP);
