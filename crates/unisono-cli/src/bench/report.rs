//! A row of results: its numbers, as JSON and as a line of a table with nccl-tests' columns.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::operations::MeasuredOperation;
use super::timing::Timing;

const MICROSECONDS: f64 = 1e6;

/// One measured call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) op: String,
    pub(crate) ranks: u32,
    /// Size of the larger of a rank's two buffers, rounded down to whole elements.
    pub(crate) bytes: u64,
    pub(crate) dtype: String,
    pub(crate) redop: Option<String>,
    /// The algorithm that ran.
    pub(crate) algorithm: String,
    pub(crate) median_us: f64,
    pub(crate) min_us: f64,
    /// Quantiles of single calls; the other times are of calls in blocks.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) algbw_gb_per_s: f64,
    pub(crate) busbw_gb_per_s: f64,
    /// The prediction of the cost model; `None` where no schedule ran.
    pub(crate) predicted_us: Option<f64>,
    /// Whether a call that names no algorithm runs this one.
    pub(crate) chosen: bool,
    /// The median divided by the least median of all algorithms, if all were measured.
    pub(crate) times_best: Option<f64>,
    /// The most memory that was resident in a rank during a call, without the bench's own buffers; `None` where the
    /// system does not tell.
    pub(crate) extra_rss_mib: Option<f64>,
    /// Wrong elements, summed over the ranks.
    pub(crate) wrong: u64,
    /// The figures that only a compressed call has.
    #[serde(flatten)]
    pub(crate) compressed: Option<CompressedFigures>,
}

/// The additional figures of a compressed call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CompressedFigures {
    pub(crate) codec: String,
    /// Its route.
    pub(crate) route: String,
    /// The payload that all ranks together send in one call, with scales and statuses: between hosts, or between ranks
    /// where there is one host.
    pub(crate) wire_bytes: u64,
    /// Of one call without residuals: the Euclidean norm of result minus exact mean, divided by the norm of the exact
    /// mean. The inputs are about standard normal and independent, so it is the error that error feedback must make
    /// good.
    pub(crate) relative_error: f64,
    /// If they were asked for.
    pub(crate) parts: Option<PartTimes>,
}

/// The parts of a compressed call, each measured alone: the median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PartTimes {
    /// Encoding the whole vector, with its residual.
    pub(crate) encode_us: f64,
    /// As many bytes in one all-to-all and one all-gather.
    pub(crate) exchange_us: f64,
    /// Summing this rank's share of all ranks' encoded vectors, and encoding the sum.
    pub(crate) reduce_us: f64,
    /// Decoding the whole vector.
    pub(crate) expand_us: f64,
}

impl Row {
    /// Fills in the times, and the figures that are computed from them. A call moves bytes `ways` times, one after the
    /// other.
    pub(crate) fn timed(mut self, operation: MeasuredOperation, ways: f64, timing: &Timing) -> Row {
        let median = timing.median() / ways;
        self.median_us = median * MICROSECONDS;
        self.min_us = timing.min() / ways * MICROSECONDS;
        [self.p50_us, self.p99_us] =
            [50, 99].map(|percent| timing.call_percentile(percent) / ways * MICROSECONDS);
        // On one rank a call can be shorter than a tick of the clock.
        let bandwidth = operation.bandwidth(self.ranks, self.bytes, median);
        (self.algbw_gb_per_s, self.busbw_gb_per_s) = (bandwidth.algbw_gb_per_s, bandwidth.busbw_gb_per_s);
        self
    }

    /// A line of the table. `count` and `root` are as nccl-tests prints them, except that all roots take turns.
    pub(crate) fn line(&self, count: u64, root: Option<u32>) -> String {
        let root = if root.is_some() { "all" } else { "-1" };
        // Of several algorithms, the library's choice is marked.
        let mark = if self.chosen && self.times_best.is_some() { " *" } else { "" };
        let predicted = self.predicted_us.map_or("none".to_owned(), |predicted| format!("{predicted:.1}"));
        let line = format!(
            "{:<24} {:>12} {:>12} {:>5} {:>7} {:>4} {:<22} {:>10.1} {:>10.1} {:>10.1} {:>10} {:>8.3} {:>8.3} {:>6}",
            self.op,
            self.bytes,
            count,
            self.dtype,
            self.redop.as_deref().unwrap_or("none"),
            root,
            format!("{}{mark}", self.algorithm),
            self.median_us,
            self.min_us,
            self.p99_us,
            predicted,
            self.algbw_gb_per_s,
            self.busbw_gb_per_s,
            self.wrong
        );
        self.compressed.as_ref().map_or(line.clone(), |figures| format!("{line}\n{figures}"))
    }
}

impl fmt::Display for CompressedFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CompressedFigures { codec: _, route, wire_bytes, relative_error, parts } = self;
        write!(f, "#   {route}, {wire_bytes} B on the wire, relative error of one call {relative_error:.5}")?;
        let Some(PartTimes { encode_us, exchange_us, reduce_us, expand_us }) = parts else { return Ok(()) };
        write!(f, "; alone, us: encode {encode_us:.1}, exchange {exchange_us:.1}, reduce {reduce_us:.1}, ")?;
        write!(f, "expand {expand_us:.1}")
    }
}

/// The number of good choices of the library, if every algorithm was measured. A cell is one operation and size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Picks {
    pub(crate) cells: usize,
    /// Cells in which the median of the choice is at most [`PICK_TIMES_BEST_MAX`] times the least.
    pub(crate) good: usize,
}

/// A choice is bad when it takes more than this many times as long as the best.
pub(crate) const PICK_TIMES_BEST_MAX: f64 = 1.25;

impl Picks {
    /// Counts the cells in the rows of `--algorithm all`.
    pub(crate) fn of(rows: &[Row]) -> Picks {
        let picks: Vec<f64> = rows.iter().filter(|row| row.chosen).filter_map(|row| row.times_best).collect();
        let good = picks.iter().filter(|&&times_best| times_best <= PICK_TIMES_BEST_MAX).count();
        Picks { cells: picks.len(), good }
    }
}

impl fmt::Display for Picks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "# pick (*) within {PICK_TIMES_BEST_MAX} of best: {} of {}", self.good, self.cells)
    }
}

/// The two lines above the table.
pub(crate) fn header() -> String {
    format!(
        "#{:<23} {:>12} {:>12} {:>5} {:>7} {:>4} {:<22} {:>10} {:>10} {:>10} {:>10} {:>8} {:>8} {:>6}\n\
         #{:<23} {:>12} {:>12} {:>5} {:>7} {:>4} {:<22} {:>10} {:>10} {:>10} {:>10} {:>8} {:>8} {:>6}",
        "op",
        "size",
        "count",
        "type",
        "redop",
        "root",
        "algorithm",
        "time",
        "min",
        "p99",
        "predicted",
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

    fn row(name: &str, ranks: u32, bytes: u64, timing: &Timing) -> Row {
        let row = Row {
            op: name.to_owned(),
            ranks,
            bytes,
            dtype: "f32".to_owned(),
            algorithm: "ring".to_owned(),
            predicted_us: Some(2.5),
            chosen: true,
            ..Row::default()
        };
        row.timed(name.parse().unwrap(), if name == "sendrecv" { 2.0 } else { 1.0 }, timing)
    }

    fn timing() -> Timing {
        Timing::new(vec![5e-4, 1e-3, 2e-3])
    }

    #[test]
    fn bandwidth_is_bytes_by_time_times_the_factor() {
        let timing = &timing();
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
    fn picks_are_judged_by_the_median_of_the_best() {
        let timing = timing();
        let cell = |chosen, times_best| Row { chosen, times_best, ..row("reduce", 4, 1024, &timing) };
        let rows = [
            cell(true, Some(1.0)),
            cell(false, Some(9.0)),
            cell(true, Some(1.25)),
            cell(true, Some(1.26)),
            cell(true, None),
        ];
        assert_eq!(Picks::of(&rows), Picks { cells: 3, good: 2 });
        assert_eq!(Picks::of(&rows).to_string(), "# pick (*) within 1.25 of best: 2 of 3");
    }

    #[test]
    fn the_columns_stand_below_their_names() {
        let line = row("all_reduce", 4, 1 << 30, &Timing::new(vec![1.0])).line(1 << 28, None);
        assert!(header().lines().all(|header| header.len() == line.len()), "{}\n{line}", header());
    }
}
