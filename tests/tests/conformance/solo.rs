//! The rows of the conformance suite that a world of one rank can run, on the communicator that has no engine.

use unisono_tests::WorldOfOne;

unisono_tests::conformance!(@tests WorldOfOne,
    reductions: all_reduce reduce reduce_scatter user_operators opaque_bytes;
    calls: moves_of_every_dtype moves_at_every_root typed_moves lists_and_coalesced uneven typed_uneven long_buffers
        barrier_waits_for_everybody;
    asynchronous: every_typed_form order_of_issue progress_without_waiting awaited dropped_handles_detach
        cancel_revokes lists messages_in_lists;
    borrowed: calls_on_memory_that_stays keepers_are_dropped_at_the_end keepers_of_detached_work
        keepers_of_refused_calls device_memory_is_refused keepers_that_panic;
    handles: several_threads_wait waits_for_a_time functions_are_called_once a_function_that_panics_harms_nobody
        functions_may_make_calls functions_outlive_the_communicator functions_get_the_error;
    point_to_point: ring_of_messages any_source longer_receives truncation_is_harmless messages_to_oneself;
    forms: a12_uneven_calls a12_uneven_calls_in_place a12_lists a12_coalesced_calls a12_user_operators a12_in_place;
    neighbours: b24_both_ways_at_once b24_nobody_beyond_the_edges b16_batches b24_a_probe_has_a_deadline
        b24_found_messages_go_back b16_waits_for_any;
    lists: b11_all_to_all_of_unequal_buffers b8_b13_b14_gather_and_scatter_of_lists b10_all_gather_coalesced
        b11_h1_reduce_scatter_coalesced;
    objects: b19_objects_of_every_size b19_texts_and_values b19_messages_of_unknown_length;
    groups: subgroups_of_some reordered_ranks duplicates_are_independent wrong_lists labelled_threads_take_turns
        queued_threads_take_turns a_turn_that_does_not_come;
    arguments: closed_communicators_say_so closing_ends_receives;
    failures: receives_have_deadlines first_cause_stays leaving_without_closing_harms_nobody;
    supports: what_is_refused_is_what_the_call_refuses;
    scopes: threads_wait_or_are_refused numbers_and_errors_that_revoke_nothing a_panic_gives_the_turn_back
        moved_to_another_thread handed_to_another_thread threads_take_turns_within failures_within
        asynchronous_parts what_a_scope_refuses a_call_past_the_scope_of_its_thread
        a_call_behind_a_scope_that_stays_open closing_waits_for_a_scope messages_pass_a_scope;
    compression: every_codec_on_every_number_of_ranks halves_and_routes what_is_not_finite_harms_nobody
        threads_scopes_and_handles;
    aborts: collectives_that_wait receives_that_wait handles_that_wait turns_that_are_waited_for shrink_goes_on
        shrink_of_a_copy_goes_on closing_tells_a_later_failure nothing_starts_afterwards;
);
