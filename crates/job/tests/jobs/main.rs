//! Jobs as users get them, through memory within a host and over TCP (`UNISONO_SHM=0`): what becomes of them when a
//! rank leaves, hangs or is started wrongly.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "../support/child.rs"]
mod child;
#[path = "../support/mod.rs"]
mod support;

mod closing;
mod deadlocks;
mod departures;
mod late_members;
mod launcher;

/// The transport of all these jobs. It uses memory unless `UNISONO_SHM=0`.
const TRANSPORT: unisono_transport_tcp::Tcp = unisono_transport_tcp::Tcp { memory: true };

/// The setting that makes data go through memory, and the setting that keeps it on TCP.
#[allow(dead_code, reason = "not every test repeats itself over both")]
const BOTH_WAYS: [(&str, &str); 2] = [("UNISONO_SHM", "1"), ("UNISONO_SHM", "0")];
