//! A picture: the training loss against the bytes on the wire, both logarithmic, a line for each method.

use plotters::prelude::*;
use unisono_algorithms_cli::axis::{COLOURS, FONT, plain, power_of_two, range};

use crate::report::{Line, Report};

const SIZE: (u32, u32) = (860, 480);
const HEAD_HEIGHT: u32 = 40;
/// At the right.
const LEGEND_WIDTH: u32 = 170;
const LEGEND_STEP: i32 = 20;
/// Where the axis of losses has marks.
const LOSS_MARKS: [f64; 12] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0];
/// Lines that are there to be worse are thin.
const STROKES: [u32; 2] = [1, 3];

type Drawn<'a, T> = Result<T, DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// The binary logarithm of the bytes, and the loss. On one rank nothing is sent, and there are none.
fn points(line: &Line) -> Vec<(f64, f64)> {
    let sent = line.curve.iter().filter(|point| point.bytes > 0 && point.loss > 0.0);
    sent.map(|point| ((point.bytes as f64).log2(), point.loss)).collect()
}

fn style(index: usize, line: &Line) -> ShapeStyle {
    let (red, green, blue) = COLOURS[index % COLOURS.len()];
    let is_recommended = line.codec == "none" || line.shortfall_max.is_some();
    RGBColor(red, green, blue).stroke_width(STROKES[usize::from(is_recommended)])
}

/// The picture as SVG.
pub(crate) fn draw(report: &Report) -> Result<String, String> {
    let mut picture = String::new();
    draw_into(report, &mut picture).map_err(|error| error.to_string())?;
    Ok(picture)
}

fn draw_into<'a>(report: &Report, picture: &'a mut String) -> Drawn<'a, ()> {
    let root = SVGBackend::with_string(picture, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (head, body) = root.split_vertically(HEAD_HEIGHT);
    head.draw(&Text::new(
        format!("Training loss against gradient bytes: {}", report.title()),
        (16, 14),
        (FONT, 17),
    ))?;
    let (area, legend) = body.split_horizontally(SIZE.0 - LEGEND_WIDTH);
    for (index, line) in report.methods.iter().enumerate() {
        let top = 20 + LEGEND_STEP * index as i32;
        legend.draw(&PathElement::new(vec![(0, top + 6), (24, top + 6)], style(index, line)))?;
        legend.draw(&Text::new(line.codec.clone(), (30, top), (FONT, 13)))?;
    }
    let all = || report.methods.iter().flat_map(points);
    let (left, right) = range(all().map(|point| point.0));
    let (low, high) = range(all().map(|point| point.1));
    if low > high {
        return root.present();
    }
    let losses = low / 1.1..high * 1.1;
    let marks = LOSS_MARKS.into_iter().filter(|mark| losses.contains(mark)).collect();
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(62)
        .build_cartesian_2d(left - 0.3..right + 0.3, losses.log_scale().with_key_points(marks))?;
    chart
        .configure_mesh()
        .light_line_style(WHITE.mix(0.0))
        .x_labels(12)
        .x_label_formatter(&|exponent| power_of_two(*exponent))
        .y_label_formatter(&|value| plain(*value))
        .x_desc("gradient bytes sent so far, all ranks together")
        .y_desc("training loss")
        .draw()?;
    for (index, line) in report.methods.iter().enumerate() {
        chart.draw_series(LineSeries::new(points(line), style(index, line)))?;
    }
    root.present()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn every_method_has_a_line_and_a_name() {
        let picture = draw(&report(0.855)).unwrap();
        for word in ["fashion-mnist, 4 ranks", "sign-gradient", "training loss", "gradient bytes", "1 M"] {
            assert!(picture.contains(word), "{word}\n{picture}");
        }
        // Three lines in the legend and three in the chart, besides the mesh.
        let coloured = COLOURS[..3].iter().map(|(red, green, blue)| {
            picture.matches(&format!("#{red:02X}{green:02X}{blue:02X}\" stroke-width")).count()
        });
        assert_eq!(coloured.collect::<Vec<_>>()[0], 2);
    }

    #[test]
    fn without_bytes_there_is_a_picture_without_lines() {
        let mut report = report(0.855);
        report.methods.iter_mut().flat_map(|line| &mut line.curve).for_each(|point| point.bytes = 0);
        assert!(draw(&report).unwrap().contains("<svg"));
    }
}
