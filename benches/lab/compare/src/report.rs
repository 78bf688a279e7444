//! What a run says: a table per configuration and system of ours as Markdown, every pair as CSV, and pictures.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::bar::{Bar, Ratio, Verdict, bar};
use crate::bootstrap::{CONFIDENCE, interval};
use crate::judge::{PROBE_TOLERANCE, Reference, Rounds, median};
use crate::plan::{Cell, Configuration};
use crate::plot;
use crate::problem::{Result, While};
use crate::raw::{Note, Record};
use crate::systems::{Role, TORCH};

const SUMMARY_COLUMNS: &str = "configuration,ranks,op,bytes,ours,peer,ours_median_us,ours_min_us,peer_median_us,\
                               peer_min_us,ratio_median,ratio_min,ratio_low,ratio_high,good_rounds,measured_rounds,\
                               is_best_peer,bar,verdict";

/// The rounds of one cell, judged.
pub(crate) struct Judged {
    pub(crate) configuration: Configuration,
    pub(crate) cell: Cell,
    pub(crate) rounds: Rounds,
    /// Good rounds without which nothing is said.
    wanted: u32,
}

impl Judged {
    /// Every cell of the record, in the order of tables.
    pub(crate) fn all(record: &Record, wanted: u32) -> Vec<Judged> {
        let reference = Reference::of(&record.rows);
        let mut keys: Vec<_> = record.rows.iter().map(|row| (row.configuration, row.cell)).collect();
        keys.sort_unstable();
        keys.dedup();
        let judge = |(configuration, cell)| {
            let rounds = Rounds::of(&record.rows, configuration, cell, &reference);
            Judged { configuration, cell, rounds, wanted }
        };
        keys.into_iter().map(judge).collect()
    }

    /// None with fewer good rounds than wanted.
    fn ratio(&self, ours: &str, peer: &str) -> Option<Ratio> {
        let ratios = self.rounds.ratios(ours, peer);
        if ratios.is_empty() || ratios.len() < self.wanted as usize {
            return None;
        }
        let (low, high) = interval(&ratios);
        let min = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        Some(Ratio { median: median(&ratios), min, low, high })
    }

    fn of_role(&self, record: &Record, wanted: impl Fn(Role) -> bool) -> Vec<&str> {
        let all = self.rounds.systems().into_iter();
        all.filter(|name| record.role(name).is_some_and(&wanted)).collect()
    }

    pub(crate) fn is_measured(&self) -> bool {
        !self.rounds.good.is_empty() && self.rounds.good.len() >= self.wanted as usize
    }

    /// The peer with the least median.
    fn best_peer(&self, record: &Record) -> Option<&str> {
        let peers = self.of_role(record, |role| role == Role::Peer);
        peers.into_iter().min_by(|a, b| self.rounds.median_us(a).total_cmp(&self.rounds.median_us(b)))
    }
}

/// Writes `report.md`, `summary.csv` and a picture per configuration into `out`, and prints the report.
pub(crate) fn write(record: &Record, wanted: u32, out: &Path) -> Result<()> {
    let judged = Judged::all(record, wanted);
    let report = markdown(record, &judged, wanted);
    println!("{report}");
    save(&out.join("report.md"), &report)?;
    save(&out.join("summary.csv"), &summary(record, &judged))?;
    let mut configurations: Vec<Configuration> = judged.iter().map(|one| one.configuration).collect();
    configurations.dedup();
    for configuration in configurations {
        let of_it: Vec<&Judged> = judged.iter().filter(|one| one.configuration == configuration).collect();
        plot::draw(configuration, &of_it, &out.join(format!("{configuration}.svg")))?;
    }
    Ok(())
}

fn save(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).during(path.display().to_string())
}

fn markdown(record: &Record, judged: &[Judged], wanted: u32) -> String {
    let mut text = head(record, wanted);
    let mut tables: Vec<(Configuration, &str)> = Vec::new();
    for one in judged {
        let ours = one.of_role(record, |role| role != Role::Peer);
        tables.extend(ours.into_iter().map(|ours| (one.configuration, ours)));
    }
    tables.sort_unstable();
    tables.dedup();
    for (configuration, ours) in tables {
        let rows = judged.iter().filter(|one| one.configuration == configuration);
        table(&mut text, record, configuration, ours, rows);
    }
    losses(&mut text, record);
    text
}

fn head(record: &Record, wanted: u32) -> String {
    let mut text = String::new();
    for note in &record.notes {
        let line = match note {
            Note::Fact(name, fact) => format!("* {name}: {fact}"),
            Note::System { name, role, version } => format!("* {name} ({}): {version}", role.name()),
            Note::Loss { .. } => continue,
        };
        line_to(&mut text, &line);
    }
    let share = CONFIDENCE * 100.0;
    let explanation = [
        "Ratios are peer time / our time in the same round:".to_owned(),
        format!("median [{share:.0} % bootstrap interval of the median], least."),
        format!("A round counts when all its probes were within {PROBE_TOLERANCE} of the reference"),
        format!("(`rounds`: counted of measured); fewer than {wanted} make \"not measured\"."),
        "A bar holds when the whole interval reaches it.".to_owned(),
    ];
    line_to(&mut text, "");
    line_to(&mut text, &explanation.join(" "));
    text
}

fn table<'a>(
    text: &mut String,
    record: &Record,
    configuration: Configuration,
    ours: &str,
    rows: impl Iterator<Item = &'a Judged>,
) {
    let role = record.role(ours).unwrap_or(Role::Peer);
    let Configuration { ranks, scheduling, congestion } = configuration;
    let choice = match role {
        Role::OursOwn => "with its own choice of congestion control",
        Role::OursSame | Role::Peer => "with the same congestion control",
        Role::OursMemory => "through memory",
    };
    line_to(text, "");
    line_to(text, &format!("### {ranks} ranks, {scheduling} scheduling, {congestion}: {ours} {choice}"));
    line_to(text, "");
    line_to(
        text,
        "| operation | ours us | best peer, us | ratio | bar | | torch us | ratio | bar | | rounds |",
    );
    line_to(text, "| --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: | --- | ---: |");
    for one in rows {
        let best = one.best_peer(record);
        let ratio = best.and_then(|peer| one.ratio(ours, peer));
        let against_torch = one.ratio(ours, TORCH);
        let bar = bar(ranks, one.cell, role);
        let mut best_text = match best {
            Some(peer) => format!("{peer} {}", time(one.rounds.median_us(peer))),
            None => "-".to_owned(),
        };
        let lost = record.lost(configuration, one.cell).into_iter();
        for system in lost.filter(|system| record.role(system) == Some(Role::Peer)) {
            best_text.push_str(&format!(", {system} lost"));
        }
        let cells = [
            one.cell.to_string(),
            time(one.rounds.median_us(ours)),
            best_text,
            ratio_text(ratio.as_ref()),
            bar_text(bar.map(|bar| bar.best_peer)),
            Verdict::of(bar.map(|bar| bar.best_peer), ratio.as_ref()).text().to_owned(),
            time(one.rounds.median_us(TORCH)),
            ratio_text(against_torch.as_ref()),
            bar_text(bar.and_then(|bar| bar.torch)),
            Verdict::of(bar.and_then(|bar| bar.torch), against_torch.as_ref()).text().to_owned(),
            format!("{} of {}", one.rounds.good.len(), one.rounds.measured),
        ];
        line_to(text, &format!("| {} |", cells.join(" | ")));
    }
}

fn losses(text: &mut String, record: &Record) {
    let mut has_title = false;
    for note in &record.notes {
        if let Note::Loss { configuration, system, cell, problem } = note {
            if !has_title {
                line_to(text, "\nLost:\n");
                has_title = true;
            }
            let what = cell.map_or_else(|| "its start".to_owned(), |cell| cell.to_string());
            line_to(text, &format!("* {configuration}, {system}, {what}: {problem}"));
        }
    }
}

fn line_to(text: &mut String, line: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}

/// Microseconds with three digits that mean something.
fn time(us: f64) -> String {
    match us {
        us if !us.is_finite() => "-".to_owned(),
        us if us >= 100.0 => format!("{us:.0}"),
        us if us >= 10.0 => format!("{us:.1}"),
        us => format!("{us:.2}"),
    }
}

fn ratio_text(ratio: Option<&Ratio>) -> String {
    ratio.map_or_else(
        || "-".to_owned(),
        |Ratio { median, min, low, high }| format!("**{median:.2}** [{low:.2}, {high:.2}], {min:.2}"),
    )
}

fn bar_text(bar: Option<f64>) -> String {
    bar.map_or_else(|| "-".to_owned(), |bar| bar.to_string())
}

/// Every system of ours against everybody else, other systems of ours included: this is how two builds are compared.
fn summary(record: &Record, judged: &[Judged]) -> String {
    let mut text = String::new();
    line_to(&mut text, SUMMARY_COLUMNS);
    for one in judged {
        let best = one.best_peer(record);
        for ours in one.of_role(record, |role| role != Role::Peer) {
            for other in one.rounds.systems().into_iter().filter(|other| *other != ours) {
                line_to(&mut text, &summary_row(record, one, ours, other, best == Some(other)));
            }
        }
    }
    text
}

fn summary_row(record: &Record, one: &Judged, ours: &str, other: &str, is_best: bool) -> String {
    let Judged { configuration, cell, rounds, .. } = one;
    let ranks = configuration.ranks;
    let bar = record.role(ours).and_then(|role| bar(ranks, *cell, role));
    let wanted = bar.and_then(|Bar { best_peer, torch }| match (is_best, other == TORCH) {
        (true, true) => Some(torch.map_or(best_peer, |torch| best_peer.max(torch))),
        (true, false) => Some(best_peer),
        (false, true) => torch,
        (false, false) => None,
    });
    let ratio = one.ratio(ours, other);
    let verdict = Verdict::of(wanted, ratio.as_ref()).text();
    let figures = ratio.map_or_else(
        || ",,,".to_owned(),
        |Ratio { median, min, low, high }| format!("{median:.4},{min:.4},{low:.4},{high:.4}"),
    );
    let times = [ours, other].map(|name| format!("{:.3},{:.3}", rounds.median_us(name), rounds.min_us(name)));
    format!(
        "{configuration},{ranks},{},{},{ours},{other},{},{figures},{},{},{},{},{verdict}",
        cell.operation,
        cell.bytes,
        times.join(","),
        rounds.good.len(),
        rounds.measured,
        u8::from(is_best),
        bar_text(wanted)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::tests::row;

    /// Eleven rounds in which ours takes 5 us, a fast peer 6.5 us, torch 100 us, and a variant of ours 4 us.
    fn record() -> Record {
        let mut record = Record::default();
        let systems = [
            ("unisono", Role::OursSame, 5.0),
            ("variant", Role::OursSame, 4.0),
            ("fast", Role::Peer, 6.5),
            (TORCH, Role::Peer, 100.0),
        ];
        for (name, role, time_us) in systems {
            let version = "1".to_owned();
            record.notes.push(Note::System { name: name.to_owned(), role, version });
            record.rows.extend((0..11).map(|round| row(name, round, time_us, 300.0)));
        }
        record
    }

    #[test]
    fn a_table_names_the_best_peer_and_judges_by_the_bar() {
        let record = record();
        let text = markdown(&record, &Judged::all(&record, 11), 11);
        let line = "| all_reduce 64 B | 5.00 | fast 6.50 | **1.30** [1.30, 1.30], 1.30 | 1.3 | holds | 100 | \
                    **20.00** [20.00, 20.00], 20.00 | 15 | holds | 11 of 11 |";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("### 2 ranks, rr scheduling, reno: variant"), "{text}");
    }

    #[test]
    fn too_few_good_rounds_say_nothing() {
        let record = record();
        let text = markdown(&record, &Judged::all(&record, 12), 12);
        assert!(!text.contains("holds |") && text.contains("| not measured |"), "{text}");
    }

    #[test]
    fn two_builds_are_compared_with_each_other() {
        let record = record();
        let text = summary(&record, &Judged::all(&record, 11));
        let line = "n2-rr-reno,2,all_reduce,64,unisono,variant,5.000,2.500,4.000,2.000,0.8000,";
        assert!(text.lines().any(|one| one.starts_with(line) && one.ends_with(",0,-,no bar")), "{text}");
        assert!(
            text.lines().all(|one| one.split(',').count() == SUMMARY_COLUMNS.split(',').count()),
            "{text}"
        );
    }

    #[test]
    fn what_was_lost_is_told() {
        let mut record = record();
        let (configuration, cell) = (record.rows[0].configuration, Some(record.rows[0].cell));
        let problem = "no answer within 20 s".to_owned();
        for (system, role) in [("slow", Role::Peer), ("broken", Role::OursSame)] {
            let (name, version) = (system.to_owned(), "did not start".to_owned());
            record.notes.push(Note::System { name, role, version });
            let (system, problem) = (system.to_owned(), problem.clone());
            record.notes.push(Note::Loss { configuration, system, cell, problem });
        }
        let text = markdown(&record, &Judged::all(&record, 11), 11);
        assert!(text.contains("* n2-rr-reno, slow, all_reduce 64 B: no answer within 20 s"), "{text}");
        assert!(text.contains("| fast 6.50, slow lost |"), "{text}");
    }
}
