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

mod cleanup;
mod communicators;
mod control_corruption;
mod corruption;
mod failures;
mod forked;
mod joining;
mod last_messages;
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

/// What the jobs of these tests use. Another transport runs some of the same files.
const TRANSPORT: unisono_transport_tcp::Tcp = unisono_transport_tcp::Tcp { memory: false };
