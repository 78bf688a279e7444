//! The network of namespaces, which tests of jobs have too.

#[path = "../../../../crates/job/tests/support/network.rs"]
mod shared;

pub(crate) use shared::{INTERFACE, Network};
