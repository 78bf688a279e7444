//! A row of results: its numbers, as JSON and as a line of a table with nccl-tests' columns.

use serde::{Deserialize, Serialize};

use super::operations::Operation;
use super::timing::Timing;

const MICROSECONDS: f64 = 1e6;
/// Bytes per second in a GB/s, as nccl-tests counts.
const GIGABYTE: f64 = 1e9;

/// One measured call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) op: String,
    pub(crate) ranks: u32,
    /// Of the larger of a rank's two buffers, after rounding down to whole elements.
    pub(crate) bytes: u64,
    pub(crate) dtype: String,
    pub(crate) redop: Option<String>,
    /// The one that really ran.
    pub(crate) algorithm: String,
    pub(crate) median_us: f64,
    pub(crate) min_us: f64,
    pub(crate) algbw_gb_per_s: f64,
    pub(crate) busbw_gb_per_s: f64,
    /// Wrong elements, summed over the ranks.
    pub(crate) wrong: u64,
}

impl Row {
    /// Fills in the times and what follows from them.
    pub(crate) fn timed(mut self, operation: Operation, timing: Timing) -> Row {
        // A round trip is two messages.
        let ways = if operation == Operation::SendRecv { 2.0 } else { 1.0 };
        let median = timing.median / ways;
        self.median_us = median * MICROSECONDS;
        self.min_us = timing.min / ways * MICROSECONDS;
        // On one rank a call can be shorter than the clock can tell.
        self.algbw_gb_per_s = if median > 0.0 { self.bytes as f64 / median / GIGABYTE } else { 0.0 };
        self.busbw_gb_per_s = self.algbw_gb_per_s * operation.busbw_factor(self.ranks);
        self
    }

    /// A line of the table; `count` and `root` are as nccl-tests prints them, but that every root takes its turn.
    pub(crate) fn line(&self, count: u64, root: Option<u32>) -> String {
        let root = if root.is_some() { "all" } else { "-1" };
        format!(
            "{:<14} {:>12} {:>12} {:>5} {:>7} {:>4} {:<22} {:>10.1} {:>10.1} {:>8.3} {:>8.3} {:>6}",
            self.op,
            self.bytes,
            count,
            self.dtype,
            self.redop.as_deref().unwrap_or("none"),
            root,
            self.algorithm,
            self.median_us,
            self.min_us,
            self.algbw_gb_per_s,
            self.busbw_gb_per_s,
            self.wrong
        )
    }
}

/// The two lines above the table.
pub(crate) fn header() -> String {
    format!(
        "#{:<13} {:>12} {:>12} {:>5} {:>7} {:>4} {:<22} {:>10} {:>10} {:>8} {:>8} {:>6}\n\
         #{:<13} {:>12} {:>12} {:>5} {:>7} {:>4} {:<22} {:>10} {:>10} {:>8} {:>8} {:>6}",
        "op",
        "size",
        "count",
        "type",
        "redop",
        "root",
        "algorithm",
        "time",
        "min",
        "algbw",
        "busbw",
        "#wrong",
        "",
        "(B)",
        "(elements)",
        "",
        "",
        "",
        "",
        "(us)",
        "(us)",
        "(GB/s)",
        "(GB/s)",
        ""
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, ranks: u32, bytes: u64, timing: Timing) -> Row {
        let row = Row {
            op: name.to_owned(),
            ranks,
            bytes,
            dtype: "f32".to_owned(),
            redop: None,
            algorithm: "ring".to_owned(),
            median_us: 0.0,
            min_us: 0.0,
            algbw_gb_per_s: 0.0,
            busbw_gb_per_s: 0.0,
            wrong: 0,
        };
        row.timed(name.parse().unwrap(), timing)
    }

    #[test]
    fn bandwidth_is_bytes_by_time_times_the_factor() {
        let timing = Timing { median: 1e-3, min: 5e-4 };
        let all_reduce = row("all_reduce", 4, 4_000_000, timing);
        assert_eq!((all_reduce.median_us, all_reduce.min_us), (1000.0, 500.0));
        assert!((all_reduce.algbw_gb_per_s - 4.0).abs() < 1e-9, "{all_reduce:?}");
        assert!((all_reduce.busbw_gb_per_s - 6.0).abs() < 1e-9, "{all_reduce:?}");
        let one_way = row("sendrecv", 4, 4_000_000, timing);
        assert_eq!(one_way.median_us, 500.0);
        assert!((one_way.busbw_gb_per_s - 8.0).abs() < 1e-9, "{one_way:?}");
        assert_eq!(row("barrier", 4, 0, timing).busbw_gb_per_s, 0.0);
    }

    #[test]
    fn the_columns_stand_below_their_names() {
        let line = row("all_reduce", 4, 1 << 30, Timing { median: 1.0, min: 1.0 }).line(1 << 28, None);
        assert!(header().lines().all(|header| header.len() == line.len()), "{}\n{line}", header());
    }
}
