//! A picture per configuration: for each operation, time against size, and below it bus bandwidth against size; one
//! line per system.

use std::fmt::Display;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use unisono::algorithms_cli::axis::{COLOURS, FONT, plain, power_of_two, range};
use unisono_compare::ComparedOperation;

use crate::plan::Configuration;
use crate::problem::{Problem, Result};
use crate::report::Judged;

const PANEL_WIDTH: u32 = 460;
const PANEL_HEIGHT: u32 = 320;
const COLUMNS_MAX: usize = 3;
const HEAD_HEIGHT: u32 = 80;
const LEGEND_STEP: i32 = 150;
/// What the names of our own systems begin with.
const OURS: &str = "unisono";

fn colour(index: usize) -> RGBColor {
    let (red, green, blue) = COLOURS[index % COLOURS.len()];
    RGBColor(red, green, blue)
}

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

/// One system's points in a panel: the binary logarithm of the size, and the value.
type Line = Vec<(f64, f64)>;

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
    let rows = operations.len().div_ceil(columns);
    let size = (PANEL_WIDTH * columns as u32, HEAD_HEIGHT + 2 * PANEL_HEIGHT * rows as u32);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE).map_err(|error| undrawn(path, &error))?;
    let (head, body) = root.split_vertically(HEAD_HEIGHT);
    legend(&head, configuration, &systems).map_err(|error| undrawn(path, &error))?;
    let panels = body.split_evenly((2 * rows, columns));
    for (index, &operation) in operations.iter().enumerate() {
        let (row, column) = (index / columns, index % columns);
        for (below, axis) in [Axis::Time, Axis::Bandwidth].into_iter().enumerate() {
            let panel = &panels[(2 * row + below) * columns + column];
            let of_it = measured.iter().filter(|one| one.cell.operation == operation);
            let lines = lines(&of_it.copied().collect::<Vec<_>>(), &systems, axis);
            chart(panel, operation, axis, &systems, &lines).map_err(|error| undrawn(path, &error))?;
        }
    }
    root.present().map_err(|error| undrawn(path, &error))
}

fn undrawn(path: &Path, error: &dyn Display) -> Problem {
    Problem::Refused(format!("{}: {error}", path.display()))
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
        points.filter(|(_, value)| value.is_finite()).collect()
    };
    systems.iter().map(line).collect()
}

/// Ours are thicker.
fn style(index: usize, name: &str) -> ShapeStyle {
    let is_ours = name.starts_with(OURS);
    colour(index).stroke_width(if is_ours { 3 } else { 1 })
}

type Drawn<'a> = std::result::Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

fn legend<'a>(
    area: &DrawingArea<SVGBackend<'a>, Shift>,
    configuration: Configuration,
    systems: &[&str],
) -> Drawn<'a> {
    let Configuration { ranks, scheduling, congestion } = configuration;
    let title = format!("{ranks} ranks over TCP on one host, {scheduling} scheduling, {congestion}");
    area.draw(&Text::new(title, (16, 10), (FONT, 18)))?;
    let (width, _) = area.dim_in_pixel();
    let per_row = (width as i32 / LEGEND_STEP).max(1) as usize;
    for (index, name) in systems.iter().enumerate() {
        let left = 16 + LEGEND_STEP * (index % per_row) as i32;
        let top = 40 + 18 * (index / per_row) as i32;
        area.draw(&PathElement::new(vec![(left, top + 6), (left + 26, top + 6)], style(index, name)))?;
        area.draw(&Text::new((*name).to_owned(), (left + 32, top), (FONT, 13)))?;
    }
    Ok(())
}

fn chart<'a>(
    area: &DrawingArea<SVGBackend<'a>, Shift>,
    operation: ComparedOperation,
    axis: Axis,
    systems: &[&str],
    lines: &[Line],
) -> Drawn<'a> {
    let points = || lines.iter().flatten();
    let (left, right) = range(points().map(|point| point.0));
    let (low, high) = range(points().map(|point| point.1));
    let mut chart = ChartBuilder::on(area)
        .caption(operation.name(), (FONT, 15))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(62)
        .build_cartesian_2d(left - 0.5..right + 0.5, (low / 1.3..high * 1.3).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(WHITE.mix(0.0))
        .x_labels(8)
        .x_label_formatter(&|exponent| power_of_two(*exponent))
        .y_label_formatter(&|value| plain(*value))
        .x_desc("bytes")
        .y_desc(axis.title())
        .draw()?;
    for (index, (name, line)) in systems.iter().zip(lines).enumerate() {
        chart.draw_series(LineSeries::new(line.iter().copied(), style(index, name)))?;
        let dot = |point: &(f64, f64)| Circle::new(*point, 3, colour(index).filled());
        chart.draw_series(line.iter().map(dot))?;
    }
    Ok(())
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
