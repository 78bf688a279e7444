//! The program from outside: its output, its end, the work of its ranks.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "every function here is part of a test")]

mod algo;
mod backends;
mod bench;
mod calibrate;
mod demo;
mod discovery;
mod doctor;
mod hosts_support;
mod input;
mod memory_limits;
mod namespaces;
#[path = "../../../job/tests/support/network.rs"]
mod network;
mod run;
mod run_comms;
mod run_ends;
mod run_hosts;
mod run_hosts_ssh;
mod run_hosts_trouble;
mod run_jobs;
mod run_losses;
mod run_mpiexec;
mod run_output;
mod run_signals;
mod run_streams;
mod run_trouble;
mod secret;
mod settings;
mod slow_link;
mod support;

#[test]
fn program_of_this_process() {
    unisono_tests::program::run(&[
        ("a_child_has_no_report_pipe", run_jobs::a_child_has_no_report_pipe),
        ("dropped_handles", run_jobs::dropped_handles),
        ("leaked_world", run_jobs::leaked_world),
        ("program_that_computes_with_oneccl", backends::program_that_computes_with_oneccl),
        ("program_that_joins_twice", settings::program_that_joins_twice),
        ("rank_0_says_why_it_exits", run_losses::rank_0_says_why_it_exits),
        ("rank_1_aborts", run_jobs::rank_1_aborts),
        ("rank_1_exits_and_the_others_crash", run_jobs::rank_1_exits_and_the_others_crash),
        ("rank_1_exits_silently", run_jobs::rank_1_exits_silently),
        ("rank_1_exits_while_rank_2_sleeps", run_losses::rank_1_exits_while_rank_2_sleeps),
        ("rank_1_panics", run_losses::rank_1_panics),
        ("rank_1_says_why_it_exits", run_jobs::rank_1_says_why_it_exits),
        ("rank_2_is_stopped", run_losses::rank_2_is_stopped),
        ("rank_that_drops_everything", run_comms::rank_that_drops_everything),
        ("rank_that_exits", run_comms::rank_that_exits),
        ("rank_that_exits_in_another_thread", run_comms::rank_that_exits_in_another_thread),
        ("rank_that_panics", run_comms::rank_that_panics),
        ("rank_that_sleeps", run_comms::rank_that_sleeps),
        ("sums_of_any_length", run_jobs::sums_of_any_length),
        ("twenty_slow_sums", run_jobs::twenty_slow_sums),
        ("two_roots", run_jobs::two_roots),
    ]);
}
