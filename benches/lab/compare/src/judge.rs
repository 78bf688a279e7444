//! What counts: which probes were good, which rounds were, and the ratio of two systems over the good rounds.

use std::collections::BTreeMap;

use crate::plan::{Cell, Configuration, Scheduling};
use crate::raw::Row;

/// A probe above this multiple of the reference was taken in a slow phase of the machine.
pub(crate) const PROBE_TOLERANCE: f64 = 1.3;
/// The reference is this quantile of all probes of a run: what the machine does in its good phases.
const REFERENCE_QUANTILE: f64 = 0.1;

/// The value below which a share of `quantile` of the values lies; they need not be sorted. NaN of none.
pub(crate) fn quantile(values: &[f64], quantile: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = quantile * (sorted.len().max(1) - 1) as f64;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    match (sorted.get(low), sorted.get(high)) {
        (Some(low_value), Some(high_value)) => low_value + (high_value - low_value) * (place - low as f64),
        _ => f64::NAN,
    }
}

pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// What a good probe takes, by scheduling, since that is the same for all configurations of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Reference(BTreeMap<Scheduling, f64>);

impl Reference {
    pub(crate) fn of(rows: &[Row]) -> Reference {
        let mut probes: BTreeMap<Scheduling, Vec<f64>> = BTreeMap::new();
        for row in rows {
            let of_scheduling = probes.entry(row.configuration.scheduling).or_default();
            of_scheduling.extend([row.probe_before_us, row.probe_after_us]);
        }
        Reference(
            probes.into_iter().map(|(key, values)| (key, quantile(&values, REFERENCE_QUANTILE))).collect(),
        )
    }

    pub(crate) fn us(&self, scheduling: Scheduling) -> Option<f64> {
        self.0.get(&scheduling).copied()
    }

    /// Without a reference yet, every probe is good. Beside busy loops too: there a probe tells when it had its turn on
    /// a core, not how fast the machine is.
    pub(crate) fn accepts_probe(&self, scheduling: Scheduling, probe_us: f64) -> bool {
        match scheduling {
            Scheduling::Busy => true,
            Scheduling::RoundRobin | Scheduling::Plain => {
                self.us(scheduling).is_none_or(|reference| probe_us <= PROBE_TOLERANCE * reference)
            }
        }
    }

    /// Whether both probes around the row's turn were good.
    pub(crate) fn accepts(&self, row: &Row) -> bool {
        self.accepts_probe(row.configuration.scheduling, row.probe_before_us.max(row.probe_after_us))
    }
}

/// The rounds of one cell in one configuration: which system took how long.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rounds {
    /// Rounds all of whose probes were good: round, then system and its row.
    pub(crate) good: BTreeMap<u32, BTreeMap<String, Row>>,
    /// The rounds that were measured at all.
    pub(crate) measured: u32,
}

impl Rounds {
    /// The good rounds of `cell`.
    pub(crate) fn of(
        rows: &[Row],
        configuration: Configuration,
        cell: Cell,
        reference: &Reference,
    ) -> Rounds {
        let mut rounds: BTreeMap<u32, BTreeMap<String, Row>> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.configuration == configuration && row.cell == cell) {
            rounds.entry(row.round).or_default().insert(row.system.clone(), row.clone());
        }
        let measured = rounds.len() as u32;
        rounds.retain(|_, systems| systems.values().all(|row| reference.accepts(row)));
        Rounds { good: rounds, measured }
    }

    pub(crate) fn systems(&self) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.good.values().flat_map(|row| row.keys().map(String::as_str)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn of_system(&self, system: &str) -> impl Iterator<Item = &Row> {
        self.good.values().filter_map(move |systems| systems.get(system))
    }

    /// The median over rounds of a system's medians, in us; NaN where it has none.
    pub(crate) fn median_us(&self, system: &str) -> f64 {
        median(&self.of_system(system).map(|row| row.measured.median_us).collect::<Vec<_>>())
    }

    /// The least block of any round, in us.
    pub(crate) fn min_us(&self, system: &str) -> f64 {
        self.of_system(system).map(|row| row.measured.min_us).fold(f64::INFINITY, f64::min)
    }

    /// Per round in which both were measured: the time of `peer` divided by the time of `ours`.
    pub(crate) fn ratios(&self, ours: &str, peer: &str) -> Vec<f64> {
        let ratio = |systems: &BTreeMap<String, Row>| {
            Some(systems.get(peer)?.measured.median_us / systems.get(ours)?.measured.median_us)
        };
        self.good.values().filter_map(ratio).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::tests::row;

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(quantile(&[0.0, 10.0], 0.1), 1.0);
        assert_eq!(quantile(&[7.0], 0.9), 7.0);
        assert!(median(&[]).is_nan());
    }

    /// Eight rounds of a and b; round 3 has one slow probe at b, round 5 has no b.
    fn rows() -> Vec<Row> {
        let mut rows = Vec::new();
        for round in 0..8 {
            rows.push(row("a", round, 10.0, 300.0));
            if round != 5 {
                rows.push(row("b", round, 20.0 + f64::from(round), if round == 3 { 700.0 } else { 310.0 }));
            }
        }
        rows
    }

    #[test]
    fn a_round_counts_when_all_its_probes_were_good() {
        let rows = rows();
        let reference = Reference::of(&rows);
        assert_eq!(reference.us(Scheduling::RoundRobin), Some(300.0));
        assert_eq!(reference.us(Scheduling::Plain), None);
        let rounds = Rounds::of(&rows, rows[0].configuration, rows[0].cell, &reference);
        assert_eq!(rounds.measured, 8);
        assert_eq!(rounds.good.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 4, 5, 6, 7]);
        assert_eq!(rounds.systems(), ["a", "b"]);
    }

    #[test]
    fn one_slow_side_of_a_turn_is_enough() {
        let mut rows = rows();
        rows[0].probe_after_us = 391.0;
        let reference = Reference::of(&rows);
        assert!(!reference.accepts(&rows[0]));
        assert!(reference.accepts(&rows[1]));
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        let rows = rows();
        let rounds = Rounds::of(&rows, rows[0].configuration, rows[0].cell, &Reference::of(&rows));
        assert_eq!(rounds.ratios("a", "b"), [2.0, 2.1, 2.2, 2.4, 2.6, 2.7]);
        assert_eq!(rounds.ratios("a", "c"), [0.0; 0]);
        assert_eq!((rounds.median_us("a"), rounds.min_us("a")), (10.0, 5.0));
        assert_eq!(rounds.median_us("b"), 23.0);
        assert!(rounds.median_us("c").is_nan());
    }
}
