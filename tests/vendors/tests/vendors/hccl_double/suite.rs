//! The conformance suite on memory of the host that is staged, with ranks that are processes; and what of it needs no
//! memory of a program's on the host, where such memory is refused.

use unisono_communicator::DType;
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
    program: env!("CARGO_BIN_EXE_vendor_rank"),
    argument: "hccl",
    rank_counts: &[2],
    large_rank_counts: &[4],
    ranks_max: 4,
    algorithms: Algorithms::Named,
    always_reduces: &[DType::F32, DType::I32, DType::I64],
    arithmetic: || ARITHMETIC,
    environment: || Some(&[]),
    worlds_max: 2,
};

unisono_tests::conformance!(HCCL_DOUBLE);

/// As a user has it who only names the backend.
const NAMED: Processes =
    Processes { name: "hccl by name (test double)", argument: "hccl-by-name", ..HCCL_DOUBLE };

mod by_name {
    use super::*;
    unisono_tests::conformance!(@tests NAMED,
        calls: barrier_waits_for_everybody;
        objects: b19_objects_of_every_size b19_texts_and_values b19_malformed_objects_harm_nobody
            b19_objects_that_cannot_travel b19_wrong_arguments_change_nothing
            b19_other_operations_are_a_mismatch b19_messages_of_unknown_length
            b19_refused_messages_harm_nobody b19_threads_do_not_steal_from_each_other;
        monitored_barriers: b18_all_ranks_come b18_missing_ranks_are_named_and_nothing_is_revoked
            b18_a_rank_that_has_left b18_an_abort_ends_it;
        compression: every_codec_on_every_number_of_ranks halves_and_routes what_is_not_finite_harms_nobody
            a_rank_that_does_not_come panics_of_a_codec threads_scopes_and_handles;
    );
}
