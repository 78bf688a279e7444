//! A picture: time of one size against the speed of the link, a line for each system, dashed what the model says.

use std::path::Path;

use unisono_algorithms_cli::axis::plain;

use super::summary::Summary;
use crate::hosts::Job;
use crate::picture::{Line, OURS, Panel, Picture};
use crate::plan::Size;
use crate::problem::Result;
use crate::systems::TORCH;

const SIZE: (u32, u32) = (920, 480);

/// Draws the all-reduces of `bytes`; nothing when there is one speed only, since the table says it better.
pub(crate) fn draw(job: Job, bytes: u64, figures: &[&Summary], path: &Path) -> Result<()> {
    let mut systems: Vec<&str> = Vec::new();
    for one in figures {
        if !systems.contains(&one.system.as_str()) {
            systems.push(&one.system);
        }
    }
    let lines: Vec<Line> = systems.iter().map(|system| line(figures, system)).collect();
    if lines.iter().all(|line| line.measured.len() < 2) {
        return Ok(());
    }
    let names: Vec<String> = systems.iter().map(|system| name(system)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (hosts, ranks) = (job.hosts, job.ranks());
    let title = format!(
        "all_reduce of {} between {ranks} ranks on {hosts} hosts; dots: measured, dashed: predicted",
        Size(bytes)
    );
    let around = Panel {
        caption: "",
        below: "link, Gbit/s (one TCP stream)",
        label: &|exponent| plain(exponent.exp2()),
        beside: "time, ms",
    };
    Picture { title, systems: &names, columns: 1, panel_size: SIZE }.draw(&[(around, &lines)], path)
}

/// Ours are drawn as in the other pictures, by their name.
fn name(system: &str) -> String {
    if system == TORCH { system.to_owned() } else { format!("{OURS} {system}") }
}

fn line(figures: &[&Summary], system: &str) -> Line {
    let mut line = Line::default();
    for one in figures.iter().filter(|one| one.system == system) {
        let speed = (one.stream_bits_per_s / 1e9).log2();
        line.measured.push((speed, one.median_us / 1e3));
        line.predicted.extend(one.predicted.map(|predicted| (speed, predicted.serial_us / 1e3)));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slow_link::summary::{self, tests::record};

    #[test]
    fn a_picture_has_a_line_for_every_system() {
        let record = record();
        let figures = summary::of(&record);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.svg");
        let of_size: Vec<&Summary> = figures.iter().filter(|one| one.bytes == 1_000_000).collect();
        draw(record.job, 1_000_000, &of_size, &path).unwrap();
        let picture = std::fs::read_to_string(&path).unwrap();
        for word in ["unisono exact", "unisono sign", TORCH, "link, Gbit/s", "2 ranks on 2 hosts"] {
            assert!(picture.contains(word), "{word}");
        }
        // Two speeds of three systems.
        assert_eq!(picture.matches("<circle").count(), 6);
    }

    #[test]
    fn one_speed_is_no_picture() {
        let mut record = record();
        record.links.pop();
        let figures = summary::of(&record);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.svg");
        let of_size: Vec<&Summary> = figures.iter().filter(|one| one.bytes == 1_000_000).collect();
        draw(record.job, 1_000_000, &of_size, &path).unwrap();
        assert!(!path.exists());
    }
}
