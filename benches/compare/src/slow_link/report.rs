//! What a run says: tables as Markdown, the record and its figures as JSON, and a picture.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Serialize;
use unisono::algorithms_cli::axis::plain;

use super::drawing;
use super::record::SlowLinkRecord;
use super::summary::{self, Summary};
use crate::plan::Size;
use crate::problem::{Problem, Result, While};

/// How many times as fast as the exact all-reduce a codec is to be: Gbit/s, codec and times, at 64 MiB between two
/// hosts of one rank each.
const GOALS: [(f64, &str, f64); 4] =
    [(1.0, "sign", 18.0), (1.0, "int8", 3.6), (1.0, "int4", 6.5), (10.0, "sign", 4.0)];
const GOAL_BYTES: u64 = 64 << 20;

pub(crate) fn read(path: &Path) -> Result<SlowLinkRecord> {
    let text = fs::read_to_string(path).during(path.display().to_string())?;
    serde_json::from_str(&text).map_err(|error| Problem::Refused(format!("{}: {error}", path.display())))
}

/// Writes `record.json`, `summary.json`, `report.md` and a picture for each size into `out`, and prints the report.
pub(crate) fn write(record: &SlowLinkRecord, out: &Path) -> Result<()> {
    let figures = summary::of(record);
    save(&out.join("record.json"), record)?;
    save(&out.join("summary.json"), &figures)?;
    let report = markdown(record, &figures);
    println!("{report}");
    fs::write(out.join("report.md"), report).during("report.md")?;
    let mut sizes: Vec<u64> = figures.iter().map(|one| one.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    for bytes in sizes {
        let of_size: Vec<&Summary> = figures.iter().filter(|one| one.bytes == bytes).collect();
        drawing::draw(record.job, bytes, &of_size, &out.join(format!("slow-link-{bytes}.svg")))?;
    }
    Ok(())
}

fn save(path: &Path, document: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec_pretty(document)
        .map_err(|error| Problem::Refused(format!("{}: {error}", path.display())))?;
    fs::write(path, text).during(path.display().to_string())
}

fn markdown(record: &SlowLinkRecord, figures: &[Summary]) -> String {
    let mut lines: Vec<String> =
        record.facts.iter().map(|(name, fact)| format!("* {name}: {fact}")).collect();
    let (hosts, ranks) = (record.job.hosts, record.job.ranks_per_host);
    lines.push(format!("* {hosts} hosts, {ranks} ranks on each, f32, every result checked"));
    lines.push(String::new());
    lines.extend(table(figures));
    lines.extend(parts(figures));
    if (hosts, ranks) == (2, 1) {
        lines.extend(goals(figures));
    }
    lines.iter().fold(String::new(), |mut text, line| {
        // A string takes whatever is written.
        let _ = writeln!(text, "{line}");
        text
    })
}

fn milliseconds(us: f64) -> String {
    plain(us / 1e3)
}

fn table(figures: &[Summary]) -> Vec<String> {
    let mut lines = vec![
        "Times are medians of the rounds (least to most). Predicted: bytes over the measured stream, plus the kernels \
         one after the other; in brackets, hidden as well as they can be."
            .to_owned(),
        String::new(),
        "| link, Gbit/s | one stream | size | all_reduce | ms | times exact | predicted ms | predicted times |"
            .to_owned(),
        "| ---: | ---: | --- | --- | --- | ---: | --- | ---: |".to_owned(),
    ];
    for one in figures {
        let (median, least, most) = (one.median_us, one.least_us, one.most_us);
        let time = format!("{} ({} to {})", milliseconds(median), milliseconds(least), milliseconds(most));
        let predicted = one.predicted.map_or(String::new(), |predicted| {
            format!("{} ({})", milliseconds(predicted.serial_us), milliseconds(predicted.pipelined_us))
        });
        lines.push(format!(
            "| {} | {:.2} | {} | {} | {time} | {} | {predicted} | {} |",
            one.gbit_per_s,
            one.stream_bits_per_s / 1e9,
            Size(one.bytes),
            one.system,
            one.speed_up.map_or(String::new(), plain),
            one.predicted_speed_up.map_or(String::new(), plain),
        ));
    }
    lines
}

fn parts(figures: &[Summary]) -> Vec<String> {
    let mut lines = vec![
        String::new(),
        "Parts of a call, each measured alone in the same rounds, ms. Hidden: the share of the shorter of exchange and \
         kernels that a call saves. Crossover: below this speed the codec wins even if nothing is hidden."
            .to_owned(),
        String::new(),
        "| link, Gbit/s | size | codec | encode | exchange | reduce | expand | sum | call | hidden | MB on the wire | \
         relative error | crossover, Gbit/s |"
            .to_owned(),
        "| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |".to_owned(),
    ];
    for one in figures {
        let Some(codec) = &one.codec else { continue };
        let part = codec.parts;
        let times =
            [part.encode_us, part.exchange_us, part.reduce_us, part.expand_us, part.sum_us(), one.median_us];
        lines.push(format!(
            "| {} | {} | {} | {} | {:.2} | {:.3} | {:.5} | {} |",
            one.gbit_per_s,
            Size(one.bytes),
            one.system,
            times.map(milliseconds).join(" | "),
            codec.hidden,
            codec.wire_bytes as f64 / 1e6,
            codec.relative_error,
            plain(codec.crossover_bits_per_s / 1e9),
        ));
    }
    lines
}

/// One line for each goal that was measured.
fn goals(figures: &[Summary]) -> Vec<String> {
    let mut lines = vec![String::new()];
    for (gbit_per_s, codec, times) in GOALS {
        let is_it = |one: &&Summary| {
            (one.gbit_per_s, one.bytes, one.system.as_str()) == (gbit_per_s, GOAL_BYTES, codec)
        };
        let Some(found) = figures.iter().find(is_it).and_then(|one| one.speed_up) else { continue };
        let verdict = if found >= times { "reached" } else { "MISSED" };
        lines.push(format!(
            "* {codec} at {gbit_per_s} Gbit/s: {found:.2} times exact, goal {times}: {verdict}"
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slow_link::summary::tests::record;

    #[test]
    fn a_report_is_made_again_from_its_record() {
        let folder = tempfile::tempdir().unwrap();
        let again = tempfile::tempdir().unwrap();
        write(&record(), folder.path()).unwrap();
        let read_back = read(&folder.path().join("record.json")).unwrap();
        assert_eq!(read_back, record());
        write(&read_back, again.path()).unwrap();
        for name in ["report.md", "summary.json", "slow-link-1000000.svg", "slow-link-64000000.svg"] {
            let text = |folder: &Path| fs::read_to_string(folder.join(name)).unwrap();
            assert_eq!(text(folder.path()), text(again.path()), "{name}");
        }
        assert!(read(Path::new("/no/such/record")).is_err());
    }

    #[test]
    fn the_report_has_a_row_for_every_system_and_judges_what_has_a_goal() {
        let mut record = record();
        for sample in record.links.iter_mut().flat_map(|link| &mut link.samples) {
            if sample.bytes == 64_000_000 {
                sample.bytes = GOAL_BYTES;
            }
        }
        let figures = summary::of(&record);
        let text = markdown(&record, &figures);
        assert_eq!(text.lines().filter(|line| line.starts_with("| 1 |")).count(), 6 + 2, "{text}");
        assert!(text.contains("* sign at 1 Gbit/s: 7529.41 times exact, goal 18: reached"), "{text}");
        assert!(!text.contains("int8 at"), "{text}");
    }
}
