//! The promises of jobs, one subject a file. Each test runs over TCP and through memory: `crate::TRANSPORT` says which.

mod cleanup;
mod closing;
mod communicators;
mod control_corruption;
mod corruption;
mod cycles;
mod deadlocks;
mod departures;
mod failures;
mod forked;
mod host_names;
mod interrupts;
mod joining;
mod last_messages;
mod late_members;
mod launcher;
mod limits;
mod link_local;
mod listening;
mod measured;
mod meeting;
mod member_groups;
mod own_failures;
mod processes;
mod reconnection;
mod retransmissions;
mod reused_memory;
mod stragglers;
mod worlds;

#[test]
fn program_of_this_process() {
    crate::child::run(&[
        ("begins", limits::rank_that_begins),
        ("beside_strangers", listening::rank_beside_strangers),
        ("duplicates", limits::rank_that_duplicates),
        ("forked", forked::one_rank),
        ("joining", joining::one_rank),
        ("joins", limits::rank_that_joins),
        ("last_messages", last_messages::one_rank),
        ("launcher", launcher::one_rank),
        ("link_local", link_local::one_rank),
        ("listening", listening::one_rank),
        ("measured", measured::one_rank),
        ("on_a_host_in_trouble", own_failures::job_on_a_host_in_trouble),
        ("processes", processes::one_rank),
        ("retransmissions", retransmissions::one_rank),
        ("scales", limits::rank_that_scales),
        ("stragglers", stragglers::one_rank),
        ("writes_to_itself", limits::rank_that_writes_to_itself),
    ]);
}
