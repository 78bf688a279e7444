//! The conformance suite on libraries that have every call, only those that each has, or groups of messages; and on calls
//! that run on their caller's thread.

use unisono_offload::{NanInMinMax, Native};
use unisono_tests::double::{LibraryDouble, LibraryRoom};
use unisono_tests::{Arithmetic, OffloadedDouble};

const ALL: OffloadedDouble = OffloadedDouble {
    name: "double",
    library: LibraryDouble::new,
    deadlines: true,
    arithmetic: Arithmetic::ENGINE,
};

const OLDEST: OffloadedDouble = OffloadedDouble { name: "oldest double", library: oldest, ..ALL };

const GROUPS: OffloadedDouble = OffloadedDouble {
    name: "double with groups",
    library: with_groups,
    arithmetic: Arithmetic { nan_in_min_max: NanInMinMax::AnyOperand, ..Arithmetic::ENGINE },
    ..ALL
};

const INLINE: OffloadedDouble = OffloadedDouble { name: "double without meeting", deadlines: false, ..ALL };

/// With nothing but the calls that every library has.
fn oldest(room: &LibraryRoom) -> LibraryDouble {
    LibraryDouble::new(room).with_natives(&[])
}

/// With groups of messages, for any number of threads, and another rule for NaN.
fn with_groups(room: &LibraryRoom) -> LibraryDouble {
    LibraryDouble::new(room)
        .with_natives(&[Native::Groups])
        .with_nan(NanInMinMax::AnyOperand)
        .serving_all_threads()
}

mod all {
    use super::*;
    unisono_tests::conformance!(ALL);
}

mod oldest_calls {
    use super::*;
    unisono_tests::conformance!(OLDEST);
}

mod groups_of_messages {
    use super::*;
    unisono_tests::conformance!(GROUPS);
}

mod inline {
    use super::*;
    unisono_tests::conformance!(@tests INLINE,
        reductions: all_reduce reduce reduce_scatter user_operators opaque_bytes many_ranks;
        calls: moves_of_every_dtype moves_at_every_root typed_moves lists_and_coalesced uneven typed_uneven
            long_buffers outputs_beyond_the_caches barrier_waits_for_everybody many_ranks;
        algorithms: every_algorithm wrong_names fixed_order_is_canonical every_rank_gets_the_same_bits
            refused_algorithms;
        arithmetic: a_nan_among_numbers zeros_of_either_sign sums_are_rounded sums_of_any_order;
        asynchronous: every_typed_form order_of_issue awaited buffers_come_back lists messages_in_lists;
        point_to_point: ring_of_messages receive_posted_before_a_collective many_in_flight;
        groups: subgroups_of_some reordered_ranks wrong_lists nested_subgroups;
        arguments: bad_arguments_change_nothing closed_communicators_say_so;
        supports: what_is_refused_is_what_the_call_refuses a_running_call_keeps_nobody_waiting;
    );
}
