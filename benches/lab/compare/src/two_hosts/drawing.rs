//! A picture: bus bandwidth against size, a panel for each call and speed; dashed, the rate of one TCP stream.

use std::path::Path;

use unisono_algorithms_cli::axis::power_of_two;
use unisono_compare::ComparedOperation;

use super::record::Speed;
use super::summary::{CallFigures, distinct};
use crate::hosts::Job;
use crate::picture::{Line, Panel, Picture, Points};
use crate::problem::Result;

const PANEL_SIZE: (u32, u32) = (440, 280);
/// The dashed line.
const LIMIT: &str = "link";

/// Nothing where there is one size only, since the table says it better.
pub(crate) fn draw(job: Job, rows: &[CallFigures], path: &Path) -> Result<()> {
    let speeds = distinct(rows.iter().map(|row| row.speed));
    let operations = distinct(rows.iter().map(|row| row.operation));
    if distinct(rows.iter().map(|row| row.bytes)).len() < 2 {
        return Ok(());
    }
    let mut systems: Vec<&str> =
        distinct(rows.iter().flat_map(|row| &row.systems).map(|one| one.system.as_str()));
    systems.push(LIMIT);
    let panel = |(speed, operation): (Speed, ComparedOperation)| {
        let of_panel: Vec<&CallFigures> =
            rows.iter().filter(|row| (row.speed, row.operation) == (speed, operation)).collect();
        let caption = match speed {
            Speed(Some(gbit_per_s)) => format!("{operation}, {gbit_per_s} Gbit/s"),
            Speed::UNSHAPED => format!("{operation}, {speed}"),
        };
        (caption, systems.iter().map(|system| line(&of_panel, system)).collect::<Vec<Line>>())
    };
    let places = speeds.iter().flat_map(|&speed| operations.iter().map(move |&operation| (speed, operation)));
    let panels: Vec<(String, Vec<Line>)> = places.map(panel).collect();
    let around =
        |caption| Panel { caption, below: "bytes", label: &power_of_two, beside: "bus bandwidth, Gbit/s" };
    let panels: Vec<(Panel<'_>, &[Line])> =
        panels.iter().map(|(caption, lines)| (around(caption), &lines[..])).collect();
    let title = format!(
        "{} hosts, {} ranks on each; dashed: each host sends the fewest bytes at the rate of one TCP stream",
        job.hosts, job.ranks_per_host
    );
    Picture { title, systems: &systems, columns: operations.len(), panel_size: PANEL_SIZE }
        .draw(&panels, path)
}

fn line(rows: &[&CallFigures], system: &str) -> Line {
    let points = |value: &dyn Fn(&CallFigures) -> Option<f64>| -> Points {
        let point = |row: &&CallFigures| Some(((row.bytes as f64).log2(), value(row)? / 1e9));
        rows.iter().filter_map(point).collect()
    };
    let measured = points(&|row| row.of_system(system).map(|one| one.bus_bits_per_s));
    let predicted = if system == LIMIT { points(&|row| row.limit_bits_per_s) } else { Points::new() };
    Line { measured, predicted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::two_hosts::summary::{self, tests::record};

    #[test]
    fn a_picture_has_a_panel_for_every_call_and_speed() {
        let record = record();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.svg");
        draw(record.job, &summary::of(&record), &path).unwrap();
        let picture = std::fs::read_to_string(&path).unwrap();
        for word in ["all_reduce, 8 Gbit/s", "all_to_all, unshaped", "unisono ring", "torch-gloo", "2 hosts"]
        {
            assert!(picture.contains(word), "{word}");
        }
        // Two speeds of two sizes: three systems in all-reduce, two in all-to-all.
        assert_eq!(picture.matches("<circle").count(), 2 * 2 * (3 + 2));
    }

    #[test]
    fn one_size_is_no_picture() {
        let mut record = record();
        record.links.iter_mut().for_each(|link| link.samples.retain(|sample| sample.bytes == 1 << 20));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.svg");
        draw(record.job, &summary::of(&record), &path).unwrap();
        assert!(!path.exists());
    }
}
