//! The conformance suite on real oneCCL, with ranks that are processes: with deadlines, so that all calls meet.

use unisono_tests::{Algorithms, Processes, ccl};

const CCL: Processes = Processes {
    name: "ccl",
    program: env!("CARGO_BIN_EXE_suite_rank"),
    argument: "ccl",
    rank_counts: &[2],
    large_rank_counts: &[4],
    ranks_max: 4,
    algorithms: Algorithms::None,
    arithmetic: unisono_offload_ccl::ARITHMETIC,
    environment: ccl::ccl_environment,
    worlds_max: 1,
};

unisono_tests::conformance!(CCL);
