//! What all pictures have in common: a legend, and panels with a logarithmic vertical axis and one line per system.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use unisono_algorithms_cli::axis::{COLOURS, FONT, plain, range};

use crate::problem::Problem;

/// Of the title and the legend.
const HEAD_HEIGHT: u32 = 80;
/// Of a legend's entries.
const LEGEND_STEP: i32 = 150;
/// What the names of our own systems begin with.
pub(crate) const OURS: &str = "unisono";
const DASH_PIXELS: i32 = 5;

/// The binary logarithm of what stands below the panel, and the value.
pub(crate) type Points = Vec<(f64, f64)>;

/// One system in a panel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    pub(crate) measured: Points,
    /// Dashed.
    pub(crate) predicted: Points,
}

/// What stands around the lines of a panel.
pub(crate) struct Panel<'a> {
    pub(crate) caption: &'a str,
    pub(crate) below: &'a str,
    /// What stands below a binary logarithm.
    pub(crate) label: &'a dyn Fn(f64) -> String,
    pub(crate) beside: &'a str,
}

/// A picture of panels in rows, below a legend.
pub(crate) struct Picture<'a> {
    pub(crate) title: String,
    pub(crate) systems: &'a [&'a str],
    pub(crate) columns: usize,
    pub(crate) panel_size: (u32, u32),
}

impl Picture<'_> {
    /// Draws these panels, row by row; each has a line for every system, or no line and stays empty.
    pub(crate) fn draw(self, panels: &[(Panel<'_>, &[Line])], path: &Path) -> Result<(), Problem> {
        let Picture { title, systems, columns, panel_size: (width, height) } = self;
        let rows = panels.len().div_ceil(columns.max(1));
        let size = (width * columns as u32, HEAD_HEIGHT + height * rows as u32);
        let root = SVGBackend::new(path, size).into_drawing_area();
        let draw = || {
            root.fill(&WHITE)?;
            let (head, body) = root.split_vertically(HEAD_HEIGHT);
            legend(&head, title, systems)?;
            let areas = body.split_evenly((rows, columns));
            for (area, (panel, lines)) in areas.iter().zip(panels).filter(|(_, (_, lines))| !lines.is_empty())
            {
                chart(area, panel, systems, lines)?;
            }
            root.present()
        };
        draw().map_err(|error| Problem::Refused(format!("{}: {error}", path.display())))
    }
}

/// What drawing into a picture gives.
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

fn colour(index: usize) -> RGBColor {
    let (red, green, blue) = COLOURS[index % COLOURS.len()];
    RGBColor(red, green, blue)
}

/// Ours are thicker.
fn style(index: usize, name: &str) -> ShapeStyle {
    let is_ours = name.starts_with(OURS);
    colour(index).stroke_width(if is_ours { 3 } else { 1 })
}

/// The title and the names of the lines.
fn legend<'a>(area: &DrawingArea<SVGBackend<'a>, Shift>, title: String, systems: &[&str]) -> Drawn<'a> {
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

/// The lines of these systems, in their order.
fn chart<'a>(
    area: &DrawingArea<SVGBackend<'a>, Shift>,
    panel: &Panel<'_>,
    systems: &[&str],
    lines: &[Line],
) -> Drawn<'a> {
    let points = || lines.iter().flat_map(|line| line.measured.iter().chain(&line.predicted));
    let (left, right) = range(points().map(|point| point.0));
    let (low, high) = range(points().map(|point| point.1));
    let mut chart = ChartBuilder::on(area)
        .caption(panel.caption, (FONT, 15))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(62)
        .build_cartesian_2d(left - 0.5..right + 0.5, (low / 1.3..high * 1.3).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(WHITE.mix(0.0))
        .x_labels(8)
        .x_label_formatter(&|exponent| (panel.label)(*exponent))
        .y_label_formatter(&|value| plain(*value))
        .x_desc(panel.below)
        .y_desc(panel.beside)
        .draw()?;
    for (index, (name, line)) in systems.iter().zip(lines).enumerate() {
        let style = style(index, name);
        chart.draw_series(LineSeries::new(line.measured.iter().copied(), style))?;
        let dot = |point: &(f64, f64)| Circle::new(*point, 3, colour(index).filled());
        chart.draw_series(line.measured.iter().map(dot))?;
        let predicted = line.predicted.iter().copied();
        let thin = style.stroke_width(1);
        chart.draw_series(DashedLineSeries::new(predicted, DASH_PIXELS, DASH_PIXELS, thin))?;
    }
    Ok(())
}
