//! The suite, by subject. [`conformance`](crate::conformance) makes every function of it a test of one backend.

pub mod aborts;
pub mod algorithms;
pub mod arguments;
pub mod arithmetic;
pub mod asynchronous;
pub mod borrowed;
pub mod calls;
pub mod comms_log;
pub mod compression;
pub mod failures;
pub mod forms;
pub mod group_options;
pub mod grouped;
pub mod groups;
pub mod handles;
pub mod lists;
pub mod member_groups;
pub mod mismatch;
pub mod monitored_barriers;
pub mod neighbours;
pub mod objects;
pub mod outside;
pub mod point_to_point;
pub mod prefixes;
pub mod prepared;
pub mod reductions;
pub mod registries;
pub mod scopes;
pub mod skipped;
pub mod subgroup_errors;
pub mod supports;

/// Every test of the suite for one backend: `conformance!(InProcess)`. `conformance!(@log InProcess)` has the tests of
/// the communication log, which a rank in another process does not show.
#[macro_export]
macro_rules! conformance {
    // A backend that refuses memory of the host: the calls that work without the program's data.
    (@by_name $backend:expr) => {
        $crate::conformance!(@tests $backend,
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
    };
    ($backend:expr) => {
        $crate::conformance!(@tests $backend,
            reductions: all_reduce coalesced reduce reduce_scatter user_operators opaque_bytes many_ranks;
            prefixes: every_operator an_order_that_shows handles handles_of_user_operators what_an_exscan_refuses
                many_ranks_in_a_row;
            calls: moves_of_every_dtype moves_at_every_root typed_moves lists_and_coalesced uneven typed_uneven
                long_buffers outputs_beyond_the_caches barrier_waits_for_everybody many_ranks;
            algorithms: every_algorithm wrong_names fixed_order_is_canonical fixed_order_at_any_piece_size
                every_rank_gets_the_same_bits refused_algorithms;
            arithmetic: a_nan_among_numbers zeros_of_either_sign sums_are_rounded sums_of_any_order;
            outside: shares_cut_further chosen_and_forced wrong_ones_change_nothing differing_ranks_are_named
                derived_ones_inherit two_of_one_name_are_a_mismatch roots_may_pass_one_buffer
                relays_need_even_counts;
            registries: settings_register wrong_settings_are_refused shrunk_ones_inherit
                other_roots_are_proved_when_they_are_used wrong_at_first_use
                two_of_one_name_that_share_no_message;
            asynchronous: every_typed_form operators_of_handles barriers_wait_for_everybody order_of_issue
                progress_without_waiting awaited dropped_handles_detach cancel_revokes buffers_come_back lists
                messages_in_lists;
            borrowed: calls_on_memory_that_stays lent_memory_needs_no_keeper keepers_are_dropped_at_the_end
                keepers_of_detached_work keepers_of_refused_calls device_memory_is_refused keepers_of_failed_calls
                keepers_that_panic;
            handles: several_threads_wait several_threads_get_the_error waits_for_a_time functions_are_called_once
                a_function_that_blocks_delays_no_call a_function_that_panics_harms_nobody functions_may_make_calls
                functions_may_wait_for_later_ones functions_outlive_the_communicator functions_get_the_error;
            point_to_point: ring_of_messages tags_choose order_per_pair_and_tag any_source longer_receives
                truncation_is_harmless receive_posted_before_a_collective many_in_flight messages_to_oneself
                elements_of_another_size;
            neighbours: b24_both_ways_at_once b24_nobody_beyond_the_edges b24_any_tag b16_batches
                b16_a_batch_with_a_short_buffer b24_probes b24_found_messages_go_back b24_found_messages_are_found_again
                b24_a_probe_has_a_deadline b16_waits_for_any b24_threads_exchange_at_once;
            forms: a12_uneven_calls a12_uneven_calls_in_place a12_lists a12_coalesced_calls a12_user_operators
                a12_in_place a12_wrong_arguments_change_nothing;
            grouped: b23_neighbours_travel_together b23_sums_with_factors_travel_alone b23_the_rest_runs_in_order
                b23_all_are_checked_first;
            prepared: b22_prepared_calls_meet_plain_ones b22_options_are_those_of_the_preparation
                b22_calls_by_the_numbers_of_the_program b22_wrong_ones_are_refused_and_stale_ones_planned_anew;
            lists: b11_all_to_all_of_unequal_buffers b8_b13_b14_gather_and_scatter_of_lists b10_all_gather_coalesced
                b11_h1_reduce_scatter_coalesced b10_b11_other_lengths_are_a_mismatch
                b10_b11_wrong_lists_change_nothing;
            objects: b19_objects_of_every_size b19_objects_in_a_group b19_texts_and_values
                b19_malformed_objects_harm_nobody b19_objects_that_nest_or_lie_harm_nobody
                b19_objects_that_cannot_travel b19_wrong_arguments_change_nothing
                b19_other_operations_are_a_mismatch b19_messages_of_unknown_length
                b19_refused_messages_harm_nobody b19_threads_do_not_steal_from_each_other;
            groups: subgroups_of_some reordered_ranks messages_stay_in_their_group duplicates_are_independent
                wrong_lists nested_subgroups concurrent_use_is_refused labelled_threads_take_turns
                queued_threads_take_turns a_turn_that_does_not_come;
            group_options: a7_options_hold_in_the_group_and_in_what_is_made_from_it
                a7_the_label_of_a_group_is_on_its_calls a7_a_group_without_the_library a7_the_algorithm_of_a_group
                b4_prepared_calls_of_a_group_that_spins
                a7_a_difference_names_the_option a8_a_group_has_its_own_deadline a7_split_by_colour_and_key a7_rows;
            monitored_barriers: b18_all_ranks_come b18_missing_ranks_are_named_and_nothing_is_revoked
                b18_a_group_names_ranks_of_the_job b18_a_rank_that_has_left b18_an_abort_ends_it;
            arguments: bad_arguments_change_nothing closed_communicators_say_so closing_ends_receives;
            mismatch: every_compared_field different_roots uneven_counts_differ closing_after_unequal_calls
                closing_names_the_first_difference;
            failures: timeouts_name_who_is_missing receives_have_deadlines revocation_reaches_everybody
                first_cause_stays panics_in_user_functions leaving_without_closing_harms_nobody;
            supports: what_is_refused_is_what_the_call_refuses a_running_call_keeps_nobody_waiting
                a13_a15_natives_and_calls_by_name;
            scopes: threads_wait_or_are_refused parts_and_plain_calls_are_a_mismatch one_deadline_for_all_calls
                numbers_and_errors_that_revoke_nothing a_panic_gives_the_turn_back moved_to_another_thread
                handed_to_another_thread threads_take_turns_within failures_within asynchronous_parts
                options_are_those_of_its_calls of_a_subgroup what_a_scope_refuses
                a_call_past_the_scope_of_its_thread a_call_behind_a_scope_that_stays_open
                closing_waits_for_a_scope messages_pass_a_scope;
            compression: every_codec_on_every_number_of_ranks halves_and_routes codecs_and_plain_calls_differ
                what_is_not_finite_harms_nobody a_rank_that_does_not_come panics_of_a_codec
                threads_scopes_and_handles options_of_a_call;
            skipped: a16_skipped_operations_do_nothing a16_every_collective_is_skipped
                a16_parts_are_made_and_groups_skip a16_objects_are_sent_and_received
                a16_a_compressed_call_is_what_it_replaces;
            aborts: collectives_that_wait receives_that_wait handles_that_wait turns_that_are_waited_for
                shrink_goes_on shrink_of_a_copy_goes_on closing_tells_a_later_failure nothing_starts_afterwards;
            member_groups: overlapping_in_any_order made_again_and_again refused_lists different_lists_name_both
                a_member_that_never_comes;
            subgroup_errors: timeouts mismatches user_panics revocations losses truncated_messages;
        );
    };
    (@log $backend:expr) => {
        $crate::conformance!(@tests $backend,
            comms_log: i1_i3_figures_are_of_the_group i11_asynchronous_calls_are_timed_without_waiting
                derived_communicators_and_parts switched_in_mid_call failures_are_errors messages_are_recorded
                objects_have_their_own_size three_thousand_messages_in_flight_are_all_counted;
        );
    };
    (@tests $backend:expr, $($module:ident: $($test:ident)*;)*) => {
        $(mod $module {
            use super::*;
            $(#[test]
            fn $test() {
                let name = concat!(stringify!($module), "::", stringify!($test));
                if !$crate::Backend::is_there(&$backend) {
                    return;
                }
                let test = || $crate::calls_made::of_suite(|| $crate::suite::$module::$test(&$backend));
                $crate::watchdog($crate::suite::SECONDS_MAX, name, test);
            })*
        })*
    };
}

/// Of one test, on a machine that is busy with others.
pub const SECONDS_MAX: u64 = 300;
