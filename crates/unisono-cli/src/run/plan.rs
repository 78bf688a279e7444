//! The plan of one host: its ranks, and all inputs of their start but the secret and the place of the meeting.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use super::cores::Binding;

/// The ranks of one host. Numbers are numbers of the job, unless a name says "local".
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HostPlan {
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    /// The ranks of this host follow each other.
    pub(crate) first_rank: u32,
    pub(crate) local_ranks: u32,
    pub(crate) ranks: u32,
    /// The place of this host among the hosts.
    pub(crate) host: u32,
    pub(crate) hosts: u32,
    /// Additional variables of every rank.
    pub(crate) variables: Vec<(OsString, OsString)>,
    /// The folder of a vendor's libraries.
    pub(crate) vendor_directory: Option<OsString>,
    pub(crate) binding: Binding,
    /// Whether the ranks record their calls.
    pub(crate) records_calls: bool,
}

impl HostPlan {
    /// The numbers of its ranks.
    pub(crate) fn numbers(&self) -> std::ops::Range<u32> {
        self.first_rank..self.first_rank + self.local_ranks
    }
}
