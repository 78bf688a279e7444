//! A picture per configuration: for each operation, time against size, and below it bus bandwidth against size; one
//! line per system.

use std::path::Path;

use unisono_algorithms_cli::axis::power_of_two;
use unisono_compare::ComparedOperation;

use crate::picture::{Line, OURS, Panel, Picture};
use crate::plan::Configuration;
use crate::problem::Result;
use crate::report::Judged;

const PANEL_WIDTH: u32 = 460;
const PANEL_HEIGHT: u32 = 320;
const COLUMNS_MAX: usize = 3;

/// What a panel's vertical axis is.
#[derive(Clone, Copy)]
enum Axis {
    Time,
    Bandwidth,
}

impl Axis {
    fn title(self) -> &'static str {
        match self {
            Axis::Time => "time, us",
            Axis::Bandwidth => "bus bandwidth, GB/s",
        }
    }

    fn value(self, operation: ComparedOperation, ranks: u32, bytes: u64, time_us: f64) -> f64 {
        match self {
            Axis::Time => time_us,
            Axis::Bandwidth => bytes as f64 / time_us / 1e3 * operation.bus_factor(ranks),
        }
    }
}

/// Draws what was measured; nothing when that is nothing with a size.
pub(crate) fn draw(configuration: Configuration, judged: &[&Judged], path: &Path) -> Result<()> {
    let measured: Vec<&Judged> =
        judged.iter().copied().filter(|one| one.cell.bytes > 0 && one.is_measured()).collect();
    let mut operations: Vec<ComparedOperation> = measured.iter().map(|one| one.cell.operation).collect();
    operations.dedup();
    // One size is no line: the table says it better.
    let sizes = |operation| measured.iter().filter(|one| one.cell.operation == operation).count();
    operations.retain(|operation| sizes(*operation) > 1);
    if operations.is_empty() {
        return Ok(());
    }
    let systems = systems(&measured);
    let columns = operations.len().min(COLUMNS_MAX);
    let mut panels = Vec::new();
    for row in operations.chunks(columns) {
        for axis in [Axis::Time, Axis::Bandwidth] {
            for &operation in row {
                let of_it = measured.iter().filter(|one| one.cell.operation == operation);
                let lines = lines(&of_it.copied().collect::<Vec<_>>(), &systems, axis);
                panels.push((operation.name(), axis, lines));
            }
            // Empty places, so that both axes of an operation are in one column.
            panels.extend((row.len()..columns).map(|_| ("", axis, Vec::new())));
        }
    }
    let around =
        |caption, axis: Axis| Panel { caption, below: "bytes", label: &power_of_two, beside: axis.title() };
    let panels: Vec<(Panel<'_>, &[Line])> =
        panels.iter().map(|(caption, axis, lines)| (around(caption, *axis), &lines[..])).collect();
    let picture = Picture {
        title: title(configuration),
        systems: &systems,
        columns,
        panel_size: (PANEL_WIDTH, PANEL_HEIGHT),
    };
    picture.draw(&panels, path)
}

fn title(Configuration { ranks, scheduling, congestion }: Configuration) -> String {
    format!("{ranks} ranks over TCP on one host, {scheduling} scheduling, {congestion}")
}

/// Ours first, so that they keep their colours from picture to picture.
fn systems<'a>(measured: &[&'a Judged]) -> Vec<&'a str> {
    let mut names: Vec<&str> = measured.iter().flat_map(|one| one.rounds.systems()).collect();
    names.sort_unstable_by_key(|name| (!name.starts_with(OURS), *name));
    names.dedup();
    names
}

fn lines(cells: &[&Judged], systems: &[&str], axis: Axis) -> Vec<Line> {
    let line = |name: &&str| {
        let points = cells.iter().map(|one| {
            let time_us = one.rounds.median_us(name);
            let value = axis.value(one.cell.operation, one.configuration.ranks, one.cell.bytes, time_us);
            ((one.cell.bytes as f64).log2(), value)
        });
        let measured = points.filter(|(_, value)| value.is_finite()).collect();
        Line { measured, predicted: Vec::new() }
    };
    systems.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use unisono::Collective;

    use super::*;
    use crate::raw::Record;
    use crate::raw::tests::row;

    #[test]
    fn a_picture_has_a_line_for_every_system_and_a_panel_for_every_operation() {
        let mut record = Record::default();
        for (bytes, collective) in [64, 1 << 10]
            .into_iter()
            .flat_map(|bytes| [(bytes, Collective::AllReduce), (bytes, Collective::Broadcast)])
        {
            for (name, time_us) in [("unisono", 5.0), ("peer", 7.0)] {
                let mut row = row(name, 0, time_us, 300.0);
                row.cell.bytes = bytes;
                row.cell.operation = collective.into();
                record.rows.push(row);
            }
        }
        let judged = Judged::all(&record, 1);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.svg");
        draw(record.rows[0].configuration, &judged.iter().collect::<Vec<_>>(), &path).unwrap();
        let picture = std::fs::read_to_string(&path).unwrap();
        for word in ["unisono", "peer", "all_reduce", "broadcast", "bus bandwidth", "256 B"] {
            assert!(picture.contains(word), "{word}");
        }
        // Two systems, two operations of two sizes, time and bandwidth.
        assert_eq!(picture.matches("<circle").count(), 2 * 4 * 2);
    }

    #[test]
    fn nothing_measured_is_no_picture() {
        let record = Record { notes: Vec::new(), rows: vec![row("unisono", 0, 5.0, 300.0)] };
        let judged = Judged::all(&record, 2);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.svg");
        draw(record.rows[0].configuration, &judged.iter().collect::<Vec<_>>(), &path).unwrap();
        assert!(!path.exists());
    }
}
