//! What a run says: tables as Markdown, the record and its figures as JSON, and a picture.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use unisono_algorithms_cli::axis::plain;

use super::drawing;
use super::record::{MeasuredCall, SlowLinkRecord};
use super::summary::{self, Summary};
use crate::plan::Size;
use crate::problem::{Result, While};
use crate::saved::save;

/// What a codec is to reach at [`GOAL_BYTES`] between two hosts.
struct Goal {
    ranks_per_host: u32,
    gbit_per_s: f64,
    call: MeasuredCall,
    codec: &'static str,
    route: Option<&'static str>,
    /// As fast as the exact call.
    times: f64,
    /// Of the bytes of the exact call between the hosts.
    share: f64,
}

impl Goal {
    const fn direct(gbit_per_s: f64, codec: &'static str, times: f64) -> Goal {
        let call = MeasuredCall::AllReduce;
        Goal { ranks_per_host: 1, gbit_per_s, call, codec, route: None, times, share: 1.0 }
    }

    const fn two_levels(gbit_per_s: f64, codec: &'static str, times: f64, share: f64) -> Goal {
        let (call, route) = (MeasuredCall::ReduceScatter, Some("two levels"));
        Goal { ranks_per_host: 2, gbit_per_s, call, codec, route, times, share }
    }
}

const GOALS: [Goal; 6] = [
    Goal::direct(1.0, "sign", 18.0),
    Goal::direct(1.0, "int8", 3.6),
    Goal::direct(1.0, "int4", 6.5),
    Goal::direct(10.0, "sign", 4.0),
    Goal::two_levels(1.0, "int8", 3.2, 0.27),
    Goal::two_levels(1.0, "int4", 1.0, 0.14),
];
const GOAL_BYTES: u64 = 64 << 20;

/// Writes `record.json`, `summary.json`, `report.md` and a picture for each size into `out`, and prints the report.
pub(crate) fn write(record: &SlowLinkRecord, out: &Path) -> Result<()> {
    let figures = summary::of(record);
    save(&out.join("record.json"), record)?;
    save(&out.join("summary.json"), &figures)?;
    let report = markdown(record, &figures);
    println!("{report}");
    fs::write(out.join("report.md"), report).during("report.md")?;
    // With several ways there are more lines than a picture can hold.
    if figures.iter().any(|one| one.route.is_some()) {
        return Ok(());
    }
    let mut sizes: Vec<u64> = figures.iter().map(|one| one.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    for bytes in sizes {
        let of_size: Vec<&Summary> = figures.iter().filter(|one| one.bytes == bytes).collect();
        drawing::draw(record.job, bytes, &of_size, &out.join(format!("slow-link-{bytes}.svg")))?;
    }
    Ok(())
}

fn markdown(record: &SlowLinkRecord, figures: &[Summary]) -> String {
    let mut lines: Vec<String> =
        record.facts.iter().map(|(name, fact)| format!("* {name}: {fact}")).collect();
    let (hosts, ranks) = (record.job.hosts, record.job.ranks_per_host);
    lines.push(format!("* {hosts} hosts, {ranks} ranks on each, f32, every result checked"));
    lines.push(String::new());
    lines.extend(table(figures));
    lines.extend(parts(figures));
    if hosts == 2 {
        lines.extend(goals(figures, ranks));
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
        "| link, Gbit/s | one stream | size | call | by | ms | times exact | MB between hosts | of exact | \
         relative error | predicted ms | predicted times |"
            .to_owned(),
        "| ---: | ---: | --- | --- | --- | --- | ---: | ---: | ---: | ---: | --- | ---: |".to_owned(),
    ];
    let cell = |value: Option<f64>, text: fn(f64) -> String| value.map_or(String::new(), text);
    for one in figures {
        let (median, least, most) = (one.median_us, one.least_us, one.most_us);
        let predicted = one.predicted.map_or(String::new(), |predicted| {
            format!("{} ({})", milliseconds(predicted.serial_us), milliseconds(predicted.pipelined_us))
        });
        let cells = [
            one.gbit_per_s.to_string(),
            format!("{:.2}", one.stream_bits_per_s / 1e9),
            Size(one.bytes).to_string(),
            one.call.name().to_owned(),
            name(one),
            format!("{} ({} to {})", milliseconds(median), milliseconds(least), milliseconds(most)),
            cell(one.speed_up, plain),
            cell(one.network_bytes, |bytes| format!("{:.2}", bytes / 1e6)),
            cell(one.network_share, |share| format!("{share:.3}")),
            cell(one.relative_error, |error| format!("{error:.5}")),
            predicted,
            cell(one.predicted_speed_up, plain),
        ];
        lines.push(format!("| {} |", cells.join(" | ")));
    }
    lines
}

/// The system, and its way where there are several.
fn name(one: &Summary) -> String {
    one.route.as_ref().map_or(one.system.clone(), |route| format!("{}, {route}", one.system))
}

/// Nothing where they were not measured.
fn parts(figures: &[Summary]) -> Vec<String> {
    if figures.iter().all(|one| one.codec.is_none()) {
        return Vec::new();
    }
    let mut lines = vec![
        String::new(),
        "Parts of a call, each measured alone in the same rounds, ms. Hidden: the share of the shorter of exchange and \
         kernels that a call saves. Crossover: below this speed the codec wins even if nothing is hidden."
            .to_owned(),
        String::new(),
        "| link, Gbit/s | size | codec | encode | exchange | reduce | expand | sum | call | hidden | \
         crossover, Gbit/s |"
            .to_owned(),
        "| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |".to_owned(),
    ];
    for one in figures {
        let Some(codec) = &one.codec else { continue };
        let part = codec.parts;
        let times =
            [part.encode_us, part.exchange_us, part.reduce_us, part.expand_us, part.sum_us(), one.median_us];
        lines.push(format!(
            "| {} | {} | {} | {} | {:.2} | {} |",
            one.gbit_per_s,
            Size(one.bytes),
            one.system,
            times.map(milliseconds).join(" | "),
            codec.hidden,
            plain(codec.crossover_bits_per_s / 1e9),
        ));
    }
    lines
}

/// One line for each goal that was measured.
fn goals(figures: &[Summary], ranks_per_host: u32) -> Vec<String> {
    let mut lines = vec![String::new()];
    for goal in GOALS.iter().filter(|goal| goal.ranks_per_host == ranks_per_host) {
        let is_it = |one: &&Summary| {
            (one.gbit_per_s, one.call, one.bytes) == (goal.gbit_per_s, goal.call, GOAL_BYTES)
                && (one.system.as_str(), one.route.as_deref()) == (goal.codec, goal.route)
        };
        let found = figures.iter().find(is_it);
        let Some((times, share)) = found.and_then(|one| one.speed_up.zip(one.network_share)) else {
            continue;
        };
        let verdict = if times >= goal.times && share <= goal.share { "reached" } else { "MISSED" };
        lines.push(format!(
            "* {} {} at {} Gbit/s: {times:.2} times exact, goal {}; {share:.3} of its bytes, goal {}: {verdict}",
            goal.call.name(),
            goal.codec,
            goal.gbit_per_s,
            goal.times,
            goal.share
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::saved;
    use crate::slow_link::record::Compressed;
    use crate::slow_link::summary::tests::record;

    #[test]
    fn a_report_is_made_again_from_its_record() {
        let folder = tempfile::tempdir().unwrap();
        let again = tempfile::tempdir().unwrap();
        write(&record(), folder.path()).unwrap();
        let read_back: SlowLinkRecord = saved::read(&folder.path().join("record.json")).unwrap();
        assert_eq!(read_back, record());
        write(&read_back, again.path()).unwrap();
        for name in ["report.md", "summary.json", "slow-link-1000000.svg", "slow-link-64000000.svg"] {
            let text = |folder: &Path| fs::read_to_string(folder.join(name)).unwrap();
            assert_eq!(text(folder.path()), text(again.path()), "{name}");
        }
        assert!(saved::read::<SlowLinkRecord>(Path::new("/no/such/record")).is_err());
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
        let reached = "sign at 1 Gbit/s: 7529.41 times exact, goal 18; 0.030 of its bytes, goal 1: reached";
        assert!(text.contains(reached), "{text}");
        assert!(!text.contains("int8 at"), "{text}");
    }

    #[test]
    fn several_ways_have_rows_of_their_own_and_no_picture() {
        let mut record = record();
        record.job.ranks_per_host = 2;
        for sample in record.links.iter_mut().flat_map(|link| &mut link.samples) {
            sample.call = MeasuredCall::ReduceScatter;
            sample.bytes = GOAL_BYTES;
            sample.route = Some("two levels".to_owned());
            sample.compressed = sample.compressed.map(|one| Compressed { parts: None, ..one });
            if sample.system == "sign" {
                (sample.system, sample.network_bytes) = ("int8".to_owned(), Some(GOAL_BYTES * 3 / 10));
            }
        }
        let figures = summary::of(&record);
        let text = markdown(&record, &figures);
        assert!(text.contains("| reduce_scatter | int8, two levels | "), "{text}");
        assert!(text.contains("0.300 of its bytes, goal 0.27: MISSED") && !text.contains("Parts"), "{text}");
        let folder = tempfile::tempdir().unwrap();
        write(&record, folder.path()).unwrap();
        let names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|one| one.unwrap().file_name()).collect();
        assert_eq!(names.len(), 3, "{names:?}");
    }
}
