//! The communication log as data and as a table.

use std::fmt;

use crate::call::operation::Operation;
use crate::comms_log::figures::Bandwidth;
use crate::comms_log::histogram::Histogram;
use crate::comms_log::rows::{Key, Row, Rows, size_class};

/// The records of a rank.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CommsReport {
    /// When it was made, in milliseconds of Unix time.
    pub written_ms: u64,
    /// A row for each kind of call: by name, then size. The parts of a parent call come behind it.
    pub rows: Vec<CommsRow>,
    /// The names of `prof_ops` that no recorded call has had since the log was configured. Empty with `prof_all`.
    pub without_calls: Vec<String>,
}

/// The calls of one name and operation whose sizes lie between two powers of two.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CommsRow {
    /// The log name of the calls, else their label, else the operation; with the line, where the log tells lines apart.
    pub name: String,
    /// The operation. Of a parent call the operation that it stands for.
    #[cfg_attr(feature = "serde", serde(serialize_with = "by_name"))]
    pub operation: Operation,
    /// Whether the counts differ by rank.
    pub uneven: bool,
    /// The name of the parent call, for parts of one.
    pub parent: Option<String>,
    /// The number of ranks of the group. 0 in the row of calls for which no row was left.
    pub ranks: u32,
    /// The least and the greatest size.
    pub bytes_min: u64,
    /// See [`CommsRow::bytes_min`].
    pub bytes_max: u64,
    /// The number of calls that ended well.
    pub count: u64,
    /// The number of calls that ended with an error. Nothing else in the row is about them.
    pub errors: u64,
    /// The durations.
    pub times: Histogram,
    /// The bandwidth: all bytes divided by all time.
    pub bandwidth: Bandwidth,
}

#[cfg(feature = "serde")]
fn by_name<S: serde::Serializer>(operation: &Operation, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(operation.name())
}

impl CommsReport {
    pub(super) fn of(rows: &Rows, without_calls: Vec<String>, written_ms: u64) -> CommsReport {
        let mut rows: Vec<CommsRow> = rows.iter().map(|(key, row)| CommsRow::of(key, row)).collect();
        // The parts of a parent call behind it, under any name.
        let order = |row: &CommsRow| {
            let family = row.parent.clone().unwrap_or_else(|| row.name.clone());
            (family, row.parent.is_some(), row.name.clone(), row.ranks, row.bytes_min)
        };
        rows.sort_by_cached_key(order);
        CommsReport { written_ms, rows, without_calls }
    }
}

impl CommsRow {
    /// The number n of the powers of two between which its sizes lie: from 2^(n-1) on, below 2^n. 0 in the row of calls
    /// for which no row was left.
    pub fn size_class(&self) -> u8 {
        if self.ranks == 0 { 0 } else { size_class(self.bytes_max) }
    }

    fn of(key: &Key, row: &Row) -> CommsRow {
        let Key { operation, uneven, ranks, parent, is_rest, .. } = *key;
        let seconds = row.times.sum_ns() as f64 / 1e9;
        // Of calls of groups of several sizes nobody knows the load of a link.
        let bandwidth = Bandwidth::of(operation, ranks.max(1), row.bytes_sum as f64, seconds);
        CommsRow {
            name: key.shown(),
            operation,
            uneven,
            parent: parent.map(|parent| parent.to_string()),
            ranks,
            bytes_min: row.bytes_min,
            bytes_max: row.bytes_max,
            count: row.times.count(),
            errors: row.errors,
            times: row.times.clone(),
            bandwidth: if is_rest { Bandwidth { busbw_gb_per_s: 0.0, ..bandwidth } } else { bandwidth },
        }
    }
}

const HEADINGS: [&str; 10] = [
    "operation",
    "ranks",
    "size",
    "count",
    "total ms",
    "mean ms",
    "median ms",
    "max ms",
    "algbw GB/s",
    "busbw GB/s",
];

/// A table: a line of headings, then a line for each row. A part of a parent call is indented. The last column, errors,
/// is there if there are any. A last line has the names of `prof_ops` without calls.
impl fmt::Display for CommsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_errors = self.rows.iter().any(|row| row.errors > 0);
        let mut lines = vec![HEADINGS.map(str::to_owned).to_vec()];
        lines.extend(self.rows.iter().map(cells));
        if has_errors {
            lines[0].push("errors".to_owned());
            let rows = lines[1..].iter_mut().zip(&self.rows);
            rows.for_each(|(line, row)| line.push(row.errors.to_string()));
        }
        write_table(f, &lines)?;
        if self.without_calls.is_empty() {
            return Ok(());
        }
        writeln!(f, "no call was recorded for these names of prof_ops: {}", self.without_calls.join(", "))
    }
}

/// Writes lines of cells, the first line with the headings: the first column flush left, the others flush right. Every
/// line has as many cells as the first.
pub fn write_table(f: &mut fmt::Formatter<'_>, lines: &[Vec<String>]) -> fmt::Result {
    let Some(headings) = lines.first() else { return Ok(()) };
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    for line in lines {
        write!(f, "{:<1$}", line[0], widths[0])?;
        for (cell, width) in line.iter().zip(&widths).skip(1) {
            write!(f, "  {cell:>width$}")?;
        }
        writeln!(f)?;
    }
    Ok(())
}

fn cells(row: &CommsRow) -> Vec<String> {
    let ms = |ns: f64| format!("{:.3}", ns / 1e6);
    let indent = if row.parent.is_some() { "  " } else { "" };
    let times = &row.times;
    vec![
        format!("{indent}{}", row.name),
        if row.ranks == 0 { "any".to_owned() } else { row.ranks.to_string() },
        sizes_text(row.bytes_min, row.bytes_max),
        row.count.to_string(),
        ms(times.sum_ns() as f64),
        ms(times.mean_ns()),
        ms(times.quantile_ns(0.5) as f64),
        ms(times.max_ns() as f64),
        format!("{:.3}", row.bandwidth.algbw_gb_per_s),
        format!("{:.3}", row.bandwidth.busbw_gb_per_s),
    ]
}

/// One size, or the least and the greatest.
fn sizes_text(min: u64, max: u64) -> String {
    if min == max { size_text(min) } else { format!("{}..{}", size_text(min), size_text(max)) }
}

/// A size with a unit of 1024: `96 B`, `1.50 KiB`.
pub fn size_text(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let unit = (bytes.ilog2() / 10).clamp(1, UNITS.len() as u32);
    let value = bytes as f64 / (1u64 << (10 * unit)) as f64;
    format!("{value:.2} {}", UNITS[unit as usize - 1])
}
