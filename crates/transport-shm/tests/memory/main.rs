//! What `transport-tcp` tests of jobs on one host, with all ranks in memory: what calls do, and what becomes of a job
//! in trouble. And what memory alone could leave behind.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "../../../transport-tcp/tests/support/child.rs"]
mod child;
#[path = "../../../transport-tcp/tests/support/network.rs"]
mod network;
#[path = "../../../transport-tcp/tests/support/mod.rs"]
mod support;

#[path = "../../../transport-tcp/tests/tcp/cleanup.rs"]
mod cleanup;
#[path = "../../../transport-tcp/tests/tcp/failures.rs"]
mod failures;
#[path = "../../../transport-tcp/tests/tcp/forked.rs"]
mod forked;
#[path = "../../../transport-tcp/tests/tcp/last_messages.rs"]
mod last_messages;
#[path = "../../../transport-tcp/tests/tcp/limits.rs"]
mod limits;
#[path = "../../../transport-tcp/tests/tcp/member_groups.rs"]
mod member_groups;
#[path = "../../../transport-tcp/tests/tcp/processes.rs"]
mod processes;
#[path = "../../../transport-tcp/tests/tcp/worlds.rs"]
mod worlds;

mod cycles;

const TRANSPORT: unisono_transport_shm::Shm = unisono_transport_shm::Shm;
