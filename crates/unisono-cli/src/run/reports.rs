//! The reports of the ranks of a job: the ranks that their errors point at, and the lines for these.

use std::collections::BTreeSet;

use unisono::ErrorCode;
use unisono_job::report::ErrorReport;

/// More reports are not kept: a job that survives losses for weeks does not fill the memory.
const REPORTS_MAX: usize = 4096;

/// The kind of the report that ranks are lost.
const LOST: &str = ErrorCode::PeerLost.name();

/// The last report of each communicator of each rank, in the order of the first ones.
#[derive(Default)]
pub(super) struct Reports(Vec<ErrorReport>);

impl Reports {
    /// A report may replace an earlier one: the first cause is known better later.
    pub(super) fn hear(&mut self, report: ErrorReport) {
        let place = |report: &ErrorReport| (report.rank, report.communicator.clone(), report.at_exit);
        match self.0.iter().position(|earlier| place(earlier) == place(&report)) {
            Some(earlier) => {
                // Two threads of a rank report, and the later one may know less.
                let is_returned = report.is_returned || self.0[earlier].is_returned;
                self.0[earlier] = ErrorReport { is_returned, ..report };
            }
            None if self.0.len() < REPORTS_MAX => self.0.push(report),
            None => {}
        }
    }

    /// The ranks that `rank` holds responsible for its error; nobody if it is one of them itself.
    pub(super) fn blamed_by(&self, rank: u32) -> impl Iterator<Item = u32> {
        let own = self.0.iter().filter(move |report| report.rank == rank);
        own.filter(move |report| !report.culprits.contains(&rank)).flat_map(|report| report.culprits.clone())
    }

    /// The error that goes with the failure of `cause`, told once for all ranks that have reported it: its own report,
    /// else a report that points at it.
    pub(super) fn of_failure(&self, cause: u32) -> Option<String> {
        let own = self.0.iter().find(|report| report.rank == cause);
        own.or_else(|| self.0.iter().find(|report| report.culprits.contains(&cause)))
            .map(|report| self.told(report))
    }

    /// Whether `rank` has reported anything.
    pub(super) fn are_from(&self, rank: u32) -> bool {
        self.0.iter().any(|report| report.rank == rank)
    }

    /// Whether `rank` has reported this error, which it has printed as `line`.
    pub(super) fn have(&self, rank: u32, line: &str) -> bool {
        let line = line.strip_suffix("...").unwrap_or(line);
        let message = line.split_once(": ").map_or(line, |(_, message)| message);
        let own = self.0.iter().filter(|report| report.rank == rank);
        own.map(|report| report.text.as_str()).any(|text| text.contains(line) || text.contains(message))
    }

    /// Whether one of the ranks `by` reports that `rank` is lost.
    pub(super) fn say_lost(&self, rank: u32, by: &BTreeSet<u32>) -> bool {
        let of_losses = self.0.iter().filter(|report| report.kind == LOST && by.contains(&report.rank));
        of_losses.flat_map(|report| &report.culprits).any(|culprit| *culprit == rank)
    }

    /// The errors that ranks could not return from a call any more, one line for each kind in a communicator: where
    /// many ranks name each other, each has a text of its own.
    pub(super) fn at_exit(&self) -> Vec<String> {
        let place = |report: &ErrorReport| (report.communicator.clone(), report.kind.clone());
        let mut kinds: Vec<(_, Vec<&ErrorReport>)> = Vec::new();
        for report in self.0.iter().filter(|report| report.at_exit) {
            match kinds.iter_mut().find(|(known, _)| *known == place(report)) {
                Some((_, reports)) => reports.push(report),
                None => kinds.push((place(report), vec![report])),
            }
        }
        let told = kinds.iter().map(|((_, kind), reports)| {
            let (first, ranks) = (reports[0], reports.iter().map(|report| report.rank).collect());
            match reports.iter().all(|report| report.text == first.text) {
                true => self.told(first),
                false => format!("{} report {kind}; rank {}: {}", named(&ranks), first.rank, first.text),
            }
        });
        let mut seen = BTreeSet::new();
        told.filter(|text| seen.insert(text.clone())).collect()
    }

    /// A report, with all ranks that have reported the same error. A rank that sleeps has heard of it too, but its
    /// program has not: it is named only where no call of any rank has returned the error.
    fn told(&self, report: &ErrorReport) -> String {
        let error = |report: &ErrorReport| (report.kind.clone(), report.culprits.clone(), report.at_exit);
        let same: Vec<&ErrorReport> = self.0.iter().filter(|other| error(other) == error(report)).collect();
        let is_returned = same.iter().any(|report| report.is_returned);
        let told = same.iter().filter(|report| report.is_returned == is_returned);
        let ranks: BTreeSet<u32> = told.map(|report| report.rank).collect();
        let verb = if ranks.len() == 1 { "reports" } else { "report" };
        let first = self.0.iter().find(|other| error(other) == error(report)).unwrap_or(report);
        format!("{} {verb}: {}", named(&ranks), first.text)
    }
}

/// Ranks as text: `rank 4`, `ranks 0 to 3 and 7`.
pub(super) fn named(ranks: &BTreeSet<u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let text = |&(first, last): &(u32, u32)| match last - first {
        0 => format!("{first}"),
        1 => format!("{first}, {last}"),
        _ => format!("{first} to {last}"),
    };
    let runs: Vec<String> = runs.iter().map(text).collect();
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    let listed = runs.join(", ");
    match listed.rsplit_once(", ") {
        Some((others, last)) => format!("{noun} {others} and {last}"),
        None => format!("{noun} {listed}"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A report of `rank` that its world has lost `culprits`.
    pub(in crate::run) fn lost(rank: u32, culprits: &[u32]) -> ErrorReport {
        report(rank, "world", culprits)
    }

    fn report(rank: u32, communicator: &str, culprits: &[u32]) -> ErrorReport {
        ErrorReport {
            rank,
            communicator: Some(communicator.to_owned()),
            kind: LOST.to_owned(),
            culprits: culprits.to_vec(),
            call: None,
            code: None,
            text: format!("lost {culprits:?}, says {rank}"),
            at_exit: false,
            is_returned: false,
        }
    }

    fn heard_of(reports: impl IntoIterator<Item = ErrorReport>) -> Reports {
        let mut heard = Reports::default();
        reports.into_iter().for_each(|report| heard.hear(report));
        heard
    }

    #[test]
    fn one_error_is_told_once_for_all_ranks_and_communicators() {
        let heard = heard_of([
            report(3, "world", &[1]),
            report(0, "world", &[1]),
            report(0, "pair", &[1]),
            report(2, "world", &[9]),
        ]);
        assert_eq!(heard.of_failure(1).unwrap(), "ranks 0 and 3 report: lost [1], says 3");
        assert_eq!(heard.of_failure(2).unwrap(), "rank 2 reports: lost [9], says 2");
        assert_eq!(heard.of_failure(4), None);
        assert!(heard.at_exit().is_empty());
    }

    #[test]
    fn a_rank_whose_program_has_heard_nothing_is_no_reporter_beside_others() {
        let returned = |rank| ErrorReport { is_returned: true, ..lost(rank, &[1]) };
        assert_eq!(
            heard_of([lost(0, &[1]), lost(2, &[1])]).of_failure(1).unwrap(),
            "ranks 0 and 2 report: lost [1], says 0"
        );
        let some = heard_of([lost(0, &[1]), lost(2, &[1]), lost(3, &[1]), returned(2), returned(3)]);
        assert_eq!(some.of_failure(1).unwrap(), "ranks 2 and 3 report: lost [1], says 0");
        let late = heard_of([lost(0, &[1]), returned(2), lost(2, &[1])]);
        assert_eq!(
            late.of_failure(1).unwrap(),
            "rank 2 reports: lost [1], says 0",
            "its other thread was slower"
        );
    }

    #[test]
    fn only_a_report_of_a_loss_by_these_ranks_counts() {
        let other = ErrorReport { kind: "Timeout".to_owned(), ..lost(2, &[4]) };
        let some = heard_of([lost(0, &[3]), other]);
        let say_lost = |rank, by: &[u32]| some.say_lost(rank, &by.iter().copied().collect());
        assert!(say_lost(3, &[0, 2]) && !say_lost(3, &[2]) && !say_lost(4, &[0, 2]));
    }

    #[test]
    fn an_error_that_a_rank_has_reported_is_known_by_what_it_prints() {
        let some = heard_of([lost(0, &[1])]);
        for line in ["lost [1], says 0", "Error: lost [1], says 0", "Error: lost [1], sa..."] {
            assert!(some.have(0, line), "{line}");
        }
        assert!(!some.have(0, "Error: no data") && !some.have(1, "lost [1], says 0"));
    }

    #[test]
    fn a_later_report_of_a_communicator_replaces_the_earlier_one() {
        let heard = heard_of([report(0, "world", &[1]), report(0, "world", &[2])]);
        assert_eq!(heard.blamed_by(0).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn who_is_part_of_the_trouble_blames_nobody() {
        let heard = heard_of([report(0, "world", &[0, 1])]);
        assert_eq!(heard.blamed_by(0).count(), 0);
    }

    #[test]
    fn what_is_said_at_exit_is_told_once() {
        let at_exit =
            |rank| ErrorReport { at_exit: true, text: "differs".into(), ..report(rank, "world", &[0, 1]) };
        let heard = heard_of([report(0, "world", &[7]), at_exit(0), at_exit(1)]);
        assert_eq!(heard.at_exit(), ["ranks 0 and 1 report: differs"]);
        let own = |rank: u32| ErrorReport {
            culprits: vec![rank, 63],
            text: format!("{rank} differs"),
            ..at_exit(rank)
        };
        let many = heard_of((0..64).map(own));
        assert_eq!(many.at_exit(), ["ranks 0 to 63 report PeerLost; rank 0: 0 differs"]);
    }

    #[test]
    fn ranks_are_named_in_runs() {
        for (ranks, text) in [
            (&[4][..], "rank 4"),
            (&[0, 1], "ranks 0 and 1"),
            (&[0, 1, 2, 3], "ranks 0 to 3"),
            (&[0, 1, 2, 3, 7], "ranks 0 to 3 and 7"),
            (&[0, 2, 3, 5, 6, 7], "ranks 0, 2, 3 and 5 to 7"),
        ] {
            assert_eq!(named(&ranks.iter().copied().collect()), text);
        }
    }
}
