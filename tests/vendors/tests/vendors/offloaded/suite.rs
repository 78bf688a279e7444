//! The conformance suite on libraries that have every call, or groups of messages; what moves and reduces data also on
//! libraries that have only the calls that each has, and by calls that run on their caller's thread.

use unisono_offload::{NanInMinMax, Native};
use unisono_tests::double::{LibraryDouble, LibraryRoom};
use unisono_tests::{Arithmetic, OffloadedDouble};

const ALL: OffloadedDouble = OffloadedDouble {
    name: "double",
    library: LibraryDouble::new,
    deadlines: true,
    rank_counts: &[1, 2, 4],
    large_rank_counts: &[7],
    arithmetic: Arithmetic::ENGINE,
};

/// As [`ALL`], in fewer worlds.
const FEW: OffloadedDouble = OffloadedDouble { rank_counts: &[2, 3], large_rank_counts: &[5], ..ALL };

const OLDEST: OffloadedDouble = OffloadedDouble { name: "oldest double", library: oldest, ..FEW };

const GROUPS: OffloadedDouble = OffloadedDouble {
    name: "double with groups",
    library: with_groups,
    arithmetic: Arithmetic { nan_in_min_max: NanInMinMax::AnyOperand, ..Arithmetic::ENGINE },
    ..FEW
};

const INLINE: OffloadedDouble = OffloadedDouble { name: "double without meeting", deadlines: false, ..FEW };

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

/// Of the suite, what moves and reduces data. Two threads of a rank, each with a call without a deadline, may block
/// each other.
macro_rules! data {
    ($backend:expr) => {
        unisono_tests::conformance!(@tests $backend,
            reductions: all_reduce reduce reduce_scatter user_operators opaque_bytes many_ranks;
            calls: moves_of_every_dtype moves_at_every_root typed_moves lists_and_coalesced uneven typed_uneven
                barrier_waits_for_everybody many_ranks;
            algorithms: wrong_names fixed_order_is_canonical every_rank_gets_the_same_bits refused_algorithms;
            arithmetic: a_nan_among_numbers zeros_of_either_sign sums_are_rounded sums_of_any_order;
            asynchronous: every_typed_form order_of_issue awaited buffers_come_back lists messages_in_lists;
            groups: subgroups_of_some reordered_ranks wrong_lists nested_subgroups;
            group_options: a7_options_hold_in_the_group_and_in_what_is_made_from_it a7_split_by_colour_and_key
                a7_rows a7_a_group_without_the_library;
            monitored_barriers: b18_all_ranks_come b18_missing_ranks_are_named_and_nothing_is_revoked;
            supports: what_is_refused_is_what_the_call_refuses a_running_call_keeps_nobody_waiting
                a13_a15_natives_and_calls_by_name;
        );
    };
}

mod all {
    use super::*;
    unisono_tests::conformance!(ALL);
    unisono_tests::conformance!(@log ALL);
}

mod groups_of_messages {
    use super::*;
    data!(GROUPS);
}

mod oldest_calls {
    use super::*;
    data!(OLDEST);
}

mod inline {
    use super::*;
    data!(INLINE);
}
