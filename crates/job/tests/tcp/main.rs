//! Jobs over TCP: who meets whom, what calls do, and what becomes of a job in trouble.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "../support/child.rs"]
mod child;
#[path = "../support/network.rs"]
mod network;
#[path = "../support/proxy.rs"]
mod proxy;
#[path = "../support/mod.rs"]
mod support;

#[path = "../topics/cleanup.rs"]
mod cleanup;
#[path = "../topics/communicators.rs"]
mod communicators;
#[path = "../topics/control_corruption.rs"]
mod control_corruption;
#[path = "../topics/corruption.rs"]
mod corruption;
#[path = "../topics/failures.rs"]
mod failures;
#[path = "../topics/forked.rs"]
mod forked;
#[path = "../topics/joining.rs"]
mod joining;
#[path = "../topics/last_messages.rs"]
mod last_messages;
#[path = "../topics/limits.rs"]
mod limits;
#[path = "../topics/link_local.rs"]
mod link_local;
#[path = "../topics/listening.rs"]
mod listening;
#[path = "../topics/measured.rs"]
mod measured;
#[path = "../topics/member_groups.rs"]
mod member_groups;
#[path = "../topics/own_failures.rs"]
mod own_failures;
#[path = "../topics/processes.rs"]
mod processes;
#[path = "../topics/reconnection.rs"]
mod reconnection;
#[path = "../topics/retransmissions.rs"]
mod retransmissions;
#[path = "../topics/stragglers.rs"]
mod stragglers;
#[path = "../topics/worlds.rs"]
mod worlds;

/// The transport of all these jobs. `memory` has the same tests over another one.
const TRANSPORT: unisono_transport_tcp::Tcp = unisono_transport_tcp::Tcp { memory: false };
