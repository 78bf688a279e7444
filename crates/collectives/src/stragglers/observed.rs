//! One rank's observations of a communicator's calls, as the analysis of stragglers gathers them.

use unisono_communicator::{ClockOffset, CommsRow, RecordedCall};

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
        let RecordedCall { entered_ns, ended_ns, .. } = *call;
        CallTimes { number: *number, operation: call.operation().code(), entered_ns, ended_ns }
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

impl RowTimes {
    pub(super) fn of(row: CommsRow) -> RowTimes {
        let size_class = row.size_class();
        let CommsRow { name, parent, ranks, bytes_max, count, times, .. } = row;
        RowTimes { name, parent, ranks, size_class, bytes_max, count, sum_ns: times.sum_ns() }
    }
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
