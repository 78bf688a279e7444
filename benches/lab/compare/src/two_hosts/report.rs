//! The report of a run: a table as Markdown with the aims below it, the record and its figures as JSON, and a picture.

use std::fmt::Write as _;
use std::path::Path;

use unisono_algorithms_cli::axis::plain;

use super::drawing;
use super::record::TwoHostsRecord;
use super::summary::{self, CallFigures, Spread};
use crate::picture::OURS;
use crate::plan::Cell;
use crate::problem::{Result, While};
use crate::saved::save;

/// From this size on, ours is to reach [`OF_LIMIT_MIN`] of its limit.
const LARGE_BYTES: u64 = 16 << 20;
const OF_LIMIT_MIN: f64 = 0.95;

/// Writes `record.json`, `summary.json`, `report.md` and a picture into `out`, and prints the report.
pub(crate) fn write(record: &TwoHostsRecord, out: &Path) -> Result<()> {
    let rows = summary::of(record);
    save(&out.join("record.json"), record)?;
    save(&out.join("summary.json"), &rows)?;
    let report = markdown(record, &rows);
    println!("{report}");
    std::fs::write(out.join("report.md"), report).during("report.md")?;
    drawing::draw(record.job, &rows, &out.join("two-hosts.svg"))
}

fn markdown(record: &TwoHostsRecord, rows: &[CallFigures]) -> String {
    let mut lines: Vec<String> =
        record.facts.iter().map(|(name, fact)| format!("* {name}: {fact}")).collect();
    let (hosts, ranks) = (record.job.hosts, record.job.ranks_per_host);
    lines.push(format!("* {hosts} hosts, {ranks} ranks on each, f32, every result checked on every rank"));
    lines.push(String::new());
    lines.extend(table(rows));
    lines.push(String::new());
    lines.extend(aims(rows));
    lines.iter().fold(String::new(), |mut text, line| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
        text
    })
}

/// All systems but ours, in the order of the rows.
fn others(rows: &[CallFigures]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for name in rows.iter().flat_map(|row| &row.systems).map(|one| one.system.as_str()) {
        if name != OURS && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn table(rows: &[CallFigures]) -> Vec<String> {
    let others = others(rows);
    let head = ["link, Gbit/s", "one stream", "call", "ours, ms", "bus bandwidth, Gbit/s", "of the limit"];
    let mut lines = vec![
        "Ours: median of the rounds (least to most). Bus bandwidth: as NCCL's tests define it. The limit is the lesser \
         of two bus bandwidths: each host sends the fewest bytes at the rate of one TCP stream; the same call on the \
         unshaped link. Other systems: their time divided by ours in the same round."
            .to_owned(),
        String::new(),
        format!("| {} |", head.iter().chain(&others).copied().collect::<Vec<_>>().join(" | ")),
        format!("| ---: | ---: | --- | --- | ---: | ---: |{}", " --- |".repeat(others.len())),
    ];
    for row in rows {
        let Some(ours) = row.ours() else { continue };
        let cell = Cell { operation: row.operation, bytes: row.bytes };
        let mut cells = vec![
            row.speed.to_string(),
            format!("{:.2}", row.stream_bits_per_s / 1e9),
            cell.to_string(),
            spread(ours.us, 1e-3),
            plain(ours.bus_bits_per_s / 1e9),
            row.of_limit.map_or(String::new(), |share| format!("{share:.2}")),
        ];
        let ratio = |name: &&str| row.of_system(name)?.by_ours;
        cells.extend(others.iter().map(|name| ratio(name).map_or(String::new(), |one| spread(one, 1.0))));
        lines.push(format!("| {} |", cells.join(" | ")));
    }
    lines
}

fn spread(of: Spread, unit: f64) -> String {
    let [median, least, most] = [of.median, of.least, of.most].map(|value| plain(value * unit));
    format!("{median} ({least} to {most})")
}

/// One line for each aim, with the calls that miss it.
fn aims(rows: &[CallFigures]) -> Vec<String> {
    let large = rows.iter().filter(|row| row.bytes >= LARGE_BYTES);
    let limit = large.filter_map(|row| row.of_limit.map(|share| (row, share, share >= OF_LIMIT_MIN)));
    let title = format!("{OF_LIMIT_MIN} of the limit from 16 MiB on");
    let mut lines = vec![aim(&title, &limit.collect::<Vec<_>>())];
    for name in others(rows) {
        // Ours is slower if it is so in every round.
        let ratios = rows.iter().filter_map(|row| Some((row, row.of_system(name)?.by_ours?)));
        let found: Vec<_> = ratios.map(|(row, ratio)| (row, ratio.median, ratio.most >= 1.0)).collect();
        lines.push(aim(&format!("not slower than {name} in every round"), &found));
    }
    lines
}

fn aim(title: &str, found: &[(&CallFigures, f64, bool)]) -> String {
    let reached = found.iter().filter(|(_, _, is_reached)| *is_reached).count();
    let missed = found.iter().filter(|(_, _, is_reached)| !is_reached).map(|(row, value, _)| {
        let cell = Cell { operation: row.operation, bytes: row.bytes };
        format!("{cell} at {} ({value:.2})", row.speed)
    });
    let missed: Vec<String> = missed.collect();
    let missed = if missed.is_empty() { String::new() } else { format!("; MISSED: {}", missed.join(", ")) };
    format!("* {title}: {reached} of {} calls{missed}", found.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::saved::read;
    use crate::two_hosts::summary::tests::record;

    #[test]
    fn a_report_is_made_again_from_its_record() {
        let (folder, again) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(&record(), folder.path()).unwrap();
        let read_back: TwoHostsRecord = read(&folder.path().join("record.json")).unwrap();
        assert_eq!(read_back, record());
        write(&read_back, again.path()).unwrap();
        for name in ["report.md", "summary.json", "two-hosts.svg"] {
            let text = |folder: &Path| std::fs::read_to_string(folder.join(name)).unwrap();
            assert_eq!(text(folder.path()), text(again.path()), "{name}");
        }
        assert!(read::<TwoHostsRecord>(Path::new("/no/such/record")).is_err());
    }

    #[test]
    fn the_report_says_which_aims_are_missed_and_where() {
        let mut record = record();
        let slow = record.links[0].samples.iter_mut().filter(|one| one.system == "unisono ring");
        slow.for_each(|sample| sample.median_us /= 2.0);
        let text = markdown(&record, &summary::of(&record));
        assert_eq!(text.lines().filter(|line| line.starts_with("| 8 | ")).count(), 4, "{text}");
        for line in [
            "* 0.95 of the limit from 16 MiB on: 0 of 2 calls; MISSED: all_reduce 64 MiB at 8 (0.88), \
             all_to_all 64 MiB at 8 (0.88)",
            "* not slower than unisono ring in every round: 2 of 4 calls; MISSED: all_reduce 1 MiB at 8 (0.62), \
             all_reduce 64 MiB at 8 (0.62)",
            "* not slower than torch-gloo in every round: 8 of 8 calls",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
