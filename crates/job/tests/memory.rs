//! Jobs whose data goes through memory within a host: the same tests as in `tcp`.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support;
mod topics;

use support::{child, network, proxy};

/// The transport of all these jobs. `tcp` has the same tests over another one.
const TRANSPORT: unisono_transport_tcp::Tcp = unisono_transport_tcp::Tcp { memory: true };
