//! Jobs over TCP: meetings, calls, and the fate of a job in trouble.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support;
mod topics;

use support::{child, network, proxy};

/// The transport of all these jobs. `memory` has the same tests over another one.
const TRANSPORT: unisono_transport_tcp::Tcp = unisono_transport_tcp::Tcp { memory: false };
