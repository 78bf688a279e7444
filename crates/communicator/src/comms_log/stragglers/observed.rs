//! What one rank has seen of a communicator's calls, as the analysis of stragglers gathers it.

use crate::comms_log::clocks::ClockOffset;
use crate::comms_log::recorded::RecordedCall;

/// The times of a collective on one rank, in nanoseconds of its host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct CallTimes {
    pub(super) number: u64,
    /// The code of the operation.
    pub(super) operation: u8,
    pub(super) entered_ns: u64,
    pub(super) ended_ns: u64,
}

impl CallTimes {
    pub(super) fn of((number, call): &(u64, RecordedCall)) -> CallTimes {
        let RecordedCall { key, entered_ns, ended_ns, .. } = *call;
        CallTimes { number: *number, operation: key.operation.code(), entered_ns, ended_ns }
    }
}

/// The calls of one row of a rank's log.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct RowTimes {
    pub(super) name: String,
    pub(super) parent: Option<String>,
    pub(super) ranks: u32,
    /// The power of two from which on its sizes are.
    pub(super) size_class: u8,
    pub(super) bytes_max: u64,
    pub(super) count: u64,
    pub(super) sum_ns: u64,
}

/// All that one rank contributes.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct RankTimes {
    pub(super) calls: Vec<CallTimes>,
    pub(super) rows: Vec<RowTimes>,
    /// The number of its host.
    pub(super) host: u32,
    pub(super) clocks: Vec<ClockOffset>,
    /// For each group rank to which it has sent over TCP: the part of the time in which the network held its bytes, in
    /// millionths.
    pub(super) network_ppm: Vec<(u32, u64)>,
}
