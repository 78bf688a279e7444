//! The conformance suite on memory of the host that is staged, with ranks that are processes; and what of it needs no
//! memory of a program's on the host, where such memory is refused.

use unisono_tests::capabilities::COMMON_TYPES;
use unisono_tests::cuda::kernels_environment;
use unisono_tests::{Algorithms, Arithmetic, NanInMinMax, Processes};

/// How the double adds and compares.
const ARITHMETIC: Arithmetic = Arithmetic {
    nan_in_min_max: NanInMinMax::Propagates,
    orders_zeros: false,
    truncates: &[],
    equal_bits: true,
};

const NCCL_DOUBLE: Processes = Processes {
    name: "nccl (test double)",
    program: env!("CARGO_BIN_EXE_vendor_rank"),
    argument: "nccl",
    rank_counts: &[2],
    large_rank_counts: &[4],
    ranks_max: 4,
    algorithms: Algorithms::Named,
    always_reduces: COMMON_TYPES,
    arithmetic: || ARITHMETIC,
    environment: kernels_environment,
    worlds_max: 2,
};

unisono_tests::conformance!(NCCL_DOUBLE);

/// As a user has it who only names the backend.
const NAMED: Processes =
    Processes { name: "nccl by name (test double)", argument: "nccl-by-name", ..NCCL_DOUBLE };

mod by_name {
    use super::*;
    unisono_tests::conformance!(@by_name NAMED);
}
