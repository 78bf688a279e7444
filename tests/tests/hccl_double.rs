//! HCCL's backend over a test double of HCCL, ACL and aclnn: the conformance suite on memory of the host that is staged,
//! with ranks that are processes. What Huawei's libraries do on a device is not shown here.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use unisono_tests::{Algorithms, Arithmetic, NanInMinMax, Processes};

/// How the double adds and compares.
const ARITHMETIC: Arithmetic = Arithmetic {
    nan_in_min_max: NanInMinMax::Propagates,
    orders_zeros: false,
    truncates: &[],
    equal_bits: true,
};

const HCCL_DOUBLE: Processes = Processes {
    name: "hccl (test double)",
    program: env!("CARGO_BIN_EXE_suite_rank"),
    argument: "hccl",
    rank_counts: &[2],
    large_rank_counts: &[4],
    ranks_max: 4,
    algorithms: Algorithms::None,
    arithmetic: ARITHMETIC,
    environment: || Some(&[]),
    worlds_max: 2,
};

unisono_tests::conformance!(HCCL_DOUBLE);
