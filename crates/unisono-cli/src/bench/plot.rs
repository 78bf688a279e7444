//! `--plot`: time against size, both logarithmic, a panel for each operation and a line for each algorithm; the
//! prediction of the cost model is dashed.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use unisono_algorithms_cli::axis::{COLOURS, FONT, plain, power_of_two, range};

use super::report::Row;
use crate::problem::{Problem, Result};

const PANEL_WIDTH: u32 = 660;
/// At the right of a panel.
const LEGEND_WIDTH: u32 = 150;
const LEGEND_STEP: i32 = 17;
const PANEL_HEIGHT: u32 = 380;
const COLUMNS_MAX: usize = 3;
const HEAD_HEIGHT: u32 = 44;
const DASH_PIXELS: i32 = 5;

/// The binary logarithm of the size, and microseconds.
type Points = Vec<(f64, f64)>;

/// One algorithm of one operation.
struct Series<'a> {
    name: &'a str,
    measured: Points,
    predicted: Points,
}

/// That the file can be written, before time is spent on measuring.
pub(super) fn check(path: &Path) -> Result<()> {
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
    opened.map(drop).map_err(|error| unwritten(path, &error))
}

fn unwritten(path: &Path, error: &dyn std::fmt::Display) -> Problem {
    Problem::failed(format!("--plot {}", path.display()), error)
}

/// Draws the rows that have a size.
pub(super) fn write(rows: &[Row], path: &Path) -> Result<()> {
    let mut picture = String::new();
    draw(rows, &mut picture).map_err(|error| unwritten(path, &error))?;
    std::fs::write(path, picture).map_err(|error| unwritten(path, &error))
}

type Drawn<'a> = std::result::Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

fn draw<'a>(rows: &[Row], picture: &'a mut String) -> Drawn<'a> {
    let with_size = || rows.iter().filter(|row| row.bytes > 0 && row.median_us > 0.0);
    let mut operations: Vec<&str> = with_size().map(|row| row.op.as_str()).collect();
    operations.dedup();
    let columns = operations.len().clamp(1, COLUMNS_MAX);
    let lines = operations.len().div_ceil(columns).max(1);
    let size = (PANEL_WIDTH * columns as u32, HEAD_HEIGHT + PANEL_HEIGHT * lines as u32);
    let root = SVGBackend::with_string(picture, size).into_drawing_area();
    root.fill(&WHITE)?;
    let (head, body) = root.split_vertically(HEAD_HEIGHT);
    head.draw(&Text::new(title(rows), (16, 14), (FONT, 17)))?;
    for (panel, operation) in body.split_evenly((lines, columns)).iter().zip(&operations) {
        let of_it: Vec<&Row> = with_size().filter(|row| row.op == *operation).collect();
        chart(panel, operation, &series(&of_it))?;
    }
    root.present()
}

fn title(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return "nothing was measured".to_owned() };
    let redop =
        rows.iter().find_map(|row| row.redop.as_deref()).map_or(String::new(), |redop| format!(" {redop}"));
    let ranks = if first.ranks == 1 { "rank" } else { "ranks" };
    format!("{} {ranks}, {}{redop}; dots: median measured, dashed: predicted", first.ranks, first.dtype)
}

/// A series for each algorithm if they are compared, and for each codec; else one, of the algorithms that the library
/// chose.
fn series<'a>(rows: &[&'a Row]) -> Vec<Series<'a>> {
    // Codecs are never chosen by size.
    let are_compared = rows.iter().any(|row| row.times_best.is_some() || row.compressed.is_some());
    let mut all: Vec<Series<'_>> = Vec::new();
    for row in rows {
        let is_one = rows.iter().all(|other| other.algorithm == row.algorithm);
        let name = if are_compared || is_one { row.algorithm.as_str() } else { "chosen by size" };
        if !all.iter().any(|one| one.name == name) {
            all.push(Series { name, measured: Vec::new(), predicted: Vec::new() });
        }
        let size = (row.bytes as f64).log2();
        for one in all.iter_mut().filter(|one| one.name == name) {
            one.measured.push((size, row.median_us));
            one.predicted.extend(row.predicted_us.filter(|&us| us > 0.0).map(|us| (size, us)));
        }
    }
    for one in &mut all {
        for points in [&mut one.measured, &mut one.predicted] {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
    }
    all
}

/// The colours are used again, then with thin lines.
fn style(index: usize) -> ShapeStyle {
    let (red, green, blue) = COLOURS[index % COLOURS.len()];
    RGBColor(red, green, blue).stroke_width(if index < COLOURS.len() { 2 } else { 1 })
}

fn legend<'a>(area: &DrawingArea<SVGBackend<'a>, Shift>, all: &[Series<'_>]) -> Drawn<'a> {
    for (index, one) in all.iter().enumerate() {
        let top = 40 + LEGEND_STEP * index as i32;
        area.draw(&PathElement::new(vec![(0, top + 6), (20, top + 6)], style(index)))?;
        area.draw(&Text::new(one.name.to_owned(), (26, top), (FONT, 12)))?;
    }
    Ok(())
}

fn chart<'a>(panel: &DrawingArea<SVGBackend<'a>, Shift>, operation: &str, all: &[Series<'_>]) -> Drawn<'a> {
    let points = || all.iter().flat_map(|one| one.measured.iter().chain(&one.predicted));
    let (left, right) = range(points().map(|point| point.0));
    let (low, high) = range(points().map(|point| point.1));
    let (area, right_of_it) = panel.split_horizontally(PANEL_WIDTH - LEGEND_WIDTH);
    legend(&right_of_it, all)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(operation, (FONT, 15))
        .margin(10)
        .x_label_area_size(38)
        .y_label_area_size(62)
        .build_cartesian_2d(left - 0.5..right + 0.5, (low / 1.3..high * 1.3).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(WHITE.mix(0.0))
        .x_labels(8)
        .x_label_formatter(&|exponent| power_of_two(*exponent))
        .y_label_formatter(&|value| plain(*value))
        .x_desc("size, bytes")
        .y_desc("time, us")
        .draw()?;
    for (index, one) in all.iter().enumerate() {
        let style = style(index);
        chart.draw_series(LineSeries::new(one.measured.iter().copied(), style))?;
        let dot = |point: &(f64, f64)| Circle::new(*point, 3, style.filled());
        chart.draw_series(one.measured.iter().map(dot))?;
        let predicted = one.predicted.iter().copied();
        chart.draw_series(DashedLineSeries::new(
            predicted,
            DASH_PIXELS,
            DASH_PIXELS,
            style.stroke_width(1),
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(op: &str, algorithm: &str, bytes: u64, times_best: Option<f64>) -> Row {
        Row {
            op: op.to_owned(),
            ranks: 4,
            bytes,
            dtype: "f32".to_owned(),
            redop: Some("sum".to_owned()),
            algorithm: algorithm.to_owned(),
            median_us: 3.0 + bytes as f64 / 1e3,
            predicted_us: Some(2.0 + bytes as f64 / 1e3),
            chosen: true,
            times_best,
            ..Row::default()
        }
    }

    fn picture(rows: &[Row]) -> String {
        let mut picture = String::new();
        draw(rows, &mut picture).unwrap();
        picture
    }

    #[test]
    fn every_compared_algorithm_has_a_line_and_every_operation_a_panel() {
        let mut rows = Vec::new();
        for (op, bytes) in
            [("all_reduce", 64), ("all_reduce", 1 << 20), ("broadcast", 64), ("broadcast", 4096)]
        {
            rows.extend(["ring", "leaders"].map(|name| row(op, name, bytes, Some(1.0))));
        }
        rows.push(row("barrier", "ring", 0, Some(1.0)));
        let picture = picture(&rows);
        for word in
            ["4 ranks, f32 sum", "all_reduce", "broadcast", "ring", "leaders", "time, us", "size, bytes"]
        {
            assert!(picture.contains(word), "{word}");
        }
        assert!(!picture.contains("barrier"));
        assert_eq!(picture.matches("<circle").count(), 8);
    }

    #[test]
    fn what_the_library_chooses_is_one_line_also_where_the_algorithm_changes() {
        let mut rows = vec![row("all_reduce", "ring", 1 << 20, None), row("all_reduce", "direct", 64, None)];
        assert!(picture(&rows).contains("chosen by size"));
        rows.pop();
        let one = picture(&rows);
        assert!(one.contains("ring") && !one.contains("chosen"), "one size is a dot");
    }

    #[test]
    fn nothing_with_a_size_is_an_empty_picture() {
        assert!(picture(&[row("barrier", "ring", 0, None)]).contains("<svg"));
        assert!(picture(&[]).contains("nothing was measured"));
    }
}
