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
mod joining;
mod last_messages;
mod late_members;
mod launcher;
mod limits;
mod link_local;
mod listening;
mod measured;
mod member_groups;
mod own_failures;
mod processes;
mod reconnection;
mod retransmissions;
mod stragglers;
mod worlds;
