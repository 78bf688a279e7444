//! The tests in `tcp` of jobs on one host, with all ranks in memory: what calls do, and what becomes of a job
//! in trouble. And what memory alone could leave behind.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "../support/child.rs"]
mod child;
#[path = "../support/network.rs"]
mod network;
#[path = "../support/mod.rs"]
mod support;

#[path = "../tcp/cleanup.rs"]
mod cleanup;
#[path = "../tcp/failures.rs"]
mod failures;
#[path = "../tcp/forked.rs"]
mod forked;
#[path = "../tcp/last_messages.rs"]
mod last_messages;
#[path = "../tcp/limits.rs"]
mod limits;
#[path = "../tcp/member_groups.rs"]
mod member_groups;
#[path = "../tcp/processes.rs"]
mod processes;
#[path = "../tcp/worlds.rs"]
mod worlds;

mod cycles;

const TRANSPORT: unisono_transport_tcp::Tcp = unisono_transport_tcp::Tcp { memory: true };
