//! The result of the analysis, as data and as text.

use std::fmt;

use unisono_communicator::{size_text, write_table};

/// The waits of a communicator's ranks for each other; the same on every rank. `Stragglers::stragglers` gives
/// it.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct StragglerReport {
    /// The collectives that every rank has recorded, of the last 1,024 of the communicator.
    pub calls: u64,
    /// The time from the first entry into them to the last end.
    pub span_ns: u64,
    /// The sum over the calls of the time from the last rank's entry to the end on all ranks.
    pub moving_ns: u64,
    /// The cause.
    pub verdict: Verdict,
    /// A row for each rank.
    pub ranks: Vec<RankWaits>,
    /// A row for each row of the ranks' logs, also of other communicators.
    pub rows: Vec<RowSpread>,
}

/// The waiting of one rank, and for it.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct RankWaits {
    /// The rank in the communicator.
    pub rank: u32,
    /// In how many calls it was the last, by more than the clocks' error.
    pub came_last: u64,
    /// The time for which the others waited for it alone because it had been outside of calls for longer than they.
    pub late_ns: u64,
    /// The time for which they waited for it alone because its previous call had ended later than theirs.
    pub carried_ns: u64,
    /// The time for which it waited for the last rank.
    pub waited_ns: u64,
    /// The part of the time in which the network held bytes on the slowest TCP connection from or to it.
    pub network_part: f64,
    /// The possible error of its entry times against the entry times of rank 0. `None` if nobody has measured its
    /// host's clock; calls are not analysed then.
    pub clock_error_ns: Option<u64>,
}

/// A direction between two ranks in which the network holds bytes.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct SlowLink {
    /// The sender, a rank of the communicator.
    pub from: u32,
    /// The receiver.
    pub to: u32,
    /// The part of the time in which it held bytes.
    pub part: f64,
}

/// The cause of the time in calls.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub enum Verdict {
    /// No call was recorded by all ranks.
    NoCalls,
    /// No rank stands out.
    Nobody,
    /// This rank came late: the others waited for it.
    Late {
        /// The rank in the communicator.
        rank: u32,
    },
    /// This rank ended its calls later than the others, and no network explains it: its process is slow in calls, for
    /// example because it is stopped, or gets no core.
    Slow {
        /// The rank in the communicator.
        rank: u32,
    },
    /// The network moved bytes slowly.
    SlowNetwork {
        /// The rank at one end of all slow links. `None` for a single link, which has two ends, and for links without a
        /// common end.
        rank: Option<u32>,
        /// The slowest link.
        link: SlowLink,
    },
}

/// The durations of one kind of call on all ranks that have recorded it.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct RowSpread {
    /// As [`CommsRow::name`](unisono_communicator::CommsRow::name).
    pub name: String,
    /// As [`CommsRow::parent`](unisono_communicator::CommsRow::parent).
    pub parent: Option<String>,
    /// The number of ranks of the group.
    pub ranks: u32,
    /// The greatest size.
    pub bytes_max: u64,
    /// By how many ranks such calls were recorded.
    pub recorded_by: u32,
    /// The number of calls, on the rank with the most.
    pub count: u64,
    /// The mean duration on the rank where it is least.
    pub mean_min_ns: f64,
    /// On the rank in the middle.
    pub mean_median_ns: f64,
    /// On the rank where it is greatest.
    pub mean_max_ns: f64,
    /// The rank where it is least: it waits least, so it may come last.
    pub quickest_rank: u32,
}

fn ms(ns: f64) -> String {
    format!("{:.3}", ns / 1e6)
}

/// Two tables and the verdict: the waits of ranks, the spread of rows, a last line in words.
impl fmt::Display for StragglerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (span_s, moving_s) = (self.span_ns as f64 / 1e9, self.moving_ns as f64 / 1e9);
        let (calls, ranks) = (self.calls, self.ranks.len());
        writeln!(f, "{calls} calls of {ranks} ranks in {span_s:.3} s, of it moving bytes {moving_s:.3} s")?;
        let mut lines = vec![
            ["rank", "came last", "late ms", "carried ms", "waited ms", "network", "clock error us"]
                .map(str::to_owned)
                .to_vec(),
        ];
        lines.extend(self.ranks.iter().map(|rank| {
            let error =
                rank.clock_error_ns.map_or("unknown".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e3));
            vec![
                rank.rank.to_string(),
                rank.came_last.to_string(),
                ms(rank.late_ns as f64),
                ms(rank.carried_ns as f64),
                ms(rank.waited_ns as f64),
                format!("{:.1} %", rank.network_part * 100.0),
                error,
            ]
        }));
        write_table(f, &lines)?;
        if !self.rows.is_empty() {
            let headings =
                ["operation", "ranks", "size", "recorded by", "count", "least mean ms", "median", "most"];
            let mut lines =
                vec![[&headings[..], &["least on"]].concat().into_iter().map(str::to_owned).collect()];
            lines.extend(self.rows.iter().map(RowSpread::cells));
            write_table(f, &lines)?;
        }
        writeln!(f, "{}", self.verdict_text())
    }
}

impl RowSpread {
    fn cells(&self) -> Vec<String> {
        let indent = if self.parent.is_some() { "  " } else { "" };
        vec![
            format!("{indent}{}", self.name),
            self.ranks.to_string(),
            size_text(self.bytes_max),
            self.recorded_by.to_string(),
            self.count.to_string(),
            ms(self.mean_min_ns),
            ms(self.mean_median_ns),
            ms(self.mean_max_ns),
            self.quickest_rank.to_string(),
        ]
    }
}

impl StragglerReport {
    /// The verdict in words, with its figures.
    pub fn verdict_text(&self) -> String {
        let of = |rank: u32, ns: fn(&RankWaits) -> u64| {
            let waits = self.ranks.get(rank as usize);
            (waits.map_or(0, |waits| waits.came_last), ms(waits.map_or(0, ns) as f64))
        };
        match self.verdict {
            Verdict::NoCalls if self.ranks.iter().any(|rank| rank.clock_error_ns.is_none()) => {
                "no verdict: the clock of a host is not measured yet".to_owned()
            }
            Verdict::NoCalls => "no verdict: no call was recorded by all ranks".to_owned(),
            Verdict::Nobody => "no rank stands out".to_owned(),
            Verdict::Late { rank } => {
                let (came_last, late_ms) = of(rank, |waits| waits.late_ns);
                let calls = self.calls;
                format!(
                    "rank {rank} came late: it was the last in {came_last} of {calls} calls, and all others waited \
                     {late_ms} ms for it alone"
                )
            }
            Verdict::Slow { rank } => {
                let (_, carried_ms) = of(rank, |waits| waits.carried_ns);
                format!(
                    "rank {rank} is slow within calls, and no network explains it: it ended them later than the \
                     others, which waited {carried_ms} ms for it alone"
                )
            }
            Verdict::SlowNetwork { rank, link: SlowLink { from, to, part } } => {
                let who =
                    rank.map_or("the bytes of a link".to_owned(), |rank| format!("the bytes of rank {rank}"));
                let percent = part * 100.0;
                format!(
                    "{who} moved slowly: the network from rank {from} to rank {to} held bytes in {percent:.0} % of the \
                     time"
                )
            }
        }
    }
}
