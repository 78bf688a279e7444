//! The figures of a record: for each speed, call and size the times of all systems, and their ratios to ours.

use std::collections::BTreeSet;

use serde::Serialize;
use unisono::Collective;
use unisono_compare::ComparedOperation;

use super::record::{Speed, SpeedTurns, TimedTurn, TwoHostsRecord};
use crate::hosts::Job;
use crate::judge::median;
use crate::picture::OURS;

/// The median of some values, their least and their most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Spread {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        Spread { median: median(values), least, most }
    }
}

/// One call of one size at one speed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CallFigures {
    pub(crate) speed: Speed,
    /// Median of the streams.
    pub(crate) stream_bits_per_s: f64,
    pub(crate) operation: ComparedOperation,
    pub(crate) bytes: u64,
    /// In the order of the record.
    pub(crate) systems: Vec<Times>,
    /// The bus bandwidth if each host sends the fewest bytes at the rate of one stream.
    pub(crate) limit_bits_per_s: Option<f64>,
    /// Our bus bandwidth divided by the lesser of this limit and our bus bandwidth without shaping; `None` where the
    /// link is not shaped.
    pub(crate) of_limit: Option<f64>,
}

/// One system in a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Times {
    pub(crate) system: String,
    /// Over the rounds.
    pub(crate) us: Spread,
    pub(crate) bus_bits_per_s: f64,
    /// Its time divided by ours in the same round; `None` for ours.
    pub(crate) by_ours: Option<Spread>,
}

impl CallFigures {
    pub(crate) fn of_system(&self, system: &str) -> Option<&Times> {
        self.systems.iter().find(|one| one.system == system)
    }

    pub(crate) fn ours(&self) -> Option<&Times> {
        self.of_system(OURS)
    }
}

/// The bytes that a host sends at least, as a share of the call's bytes; `None` for calls without a bound of this kind.
fn host_share(job: Job, operation: ComparedOperation) -> Option<f64> {
    let others = f64::from(job.hosts - 1) / f64::from(job.hosts);
    let ComparedOperation::Collective(collective) = operation else { return None };
    match collective {
        Collective::AllReduce => Some(2.0 * others),
        Collective::ReduceScatter | Collective::AllGather => Some(others),
        // The bytes of its ranks cannot be merged.
        Collective::AllToAll => Some(others * f64::from(job.ranks_per_host)),
        Collective::Broadcast
        | Collective::Reduce
        | Collective::Gather
        | Collective::Scatter
        | Collective::Barrier
        | Collective::Scan
        | Collective::Exscan => None,
    }
}

/// All rows, in the order in which they were measured.
pub(crate) fn of(record: &TwoHostsRecord) -> Vec<CallFigures> {
    let mut rows: Vec<CallFigures> = record.links.iter().flat_map(|link| rows(record.job, link)).collect();
    let unshaped: Vec<CallFigures> =
        rows.iter().filter(|row| row.speed == Speed::UNSHAPED).cloned().collect();
    for row in rows.iter_mut().filter(|row| row.speed != Speed::UNSHAPED) {
        let is_same = |other: &&CallFigures| (other.operation, other.bytes) == (row.operation, row.bytes);
        let own_limit =
            unshaped.iter().find(is_same).and_then(CallFigures::ours).map(|ours| ours.bus_bits_per_s);
        let limit = row.limit_bits_per_s.map(|limit| limit.min(own_limit.unwrap_or(f64::INFINITY)));
        row.of_limit = row.ours().zip(limit).map(|(ours, limit)| ours.bus_bits_per_s / limit);
    }
    rows
}

fn rows(job: Job, link: &SpeedTurns) -> Vec<CallFigures> {
    let keys: BTreeSet<(ComparedOperation, u64)> =
        link.samples.iter().map(|sample| (sample.operation, sample.bytes)).collect();
    let stream_bits_per_s = median(&link.stream_bits_per_s);
    let row = |(operation, bytes): (ComparedOperation, u64)| {
        let is_of_row = |sample: &&TimedTurn| (sample.operation, sample.bytes) == (operation, bytes);
        let samples: Vec<&TimedTurn> = link.samples.iter().filter(is_of_row).collect();
        let factor = operation.bus_factor(job.ranks());
        let limit = host_share(job, operation).map(|share| factor / share * stream_bits_per_s);
        CallFigures {
            speed: link.speed,
            stream_bits_per_s,
            operation,
            bytes,
            systems: times(&samples, bytes as f64 * 8.0 * factor),
            limit_bits_per_s: limit,
            of_limit: None,
        }
    };
    keys.into_iter().map(row).collect()
}

/// The values in the order of their first places.
pub(super) fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.fold(Vec::new(), |mut found, one| {
        if !found.contains(&one) {
            found.push(one);
        }
        found
    })
}

/// `bus_bits` are the bits of a call on the busiest link, as NCCL's tests define it.
fn times(samples: &[&TimedTurn], bus_bits: f64) -> Vec<Times> {
    // The order of turns rotates; the first round has the order of the systems.
    let names = distinct(samples.iter().map(|sample| sample.system.as_str()));
    let of_round = |round| samples.iter().find(|one| one.system == OURS && one.round == round);
    let one = |name: &str| {
        let own: Vec<&&TimedTurn> = samples.iter().filter(|sample| sample.system == name).collect();
        let us = Spread::of(&own.iter().map(|sample| sample.median_us).collect::<Vec<_>>());
        let ratio = |sample: &&&TimedTurn| Some(sample.median_us / of_round(sample.round)?.median_us);
        let ratios: Vec<f64> = own.iter().filter_map(ratio).collect();
        let by_ours = (name != OURS && !ratios.is_empty()).then(|| Spread::of(&ratios));
        Times { system: name.to_owned(), us, bus_bits_per_s: bus_bits / us.median * 1e6, by_ours }
    };
    names.into_iter().map(one).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::systems::TORCH;

    const SIZES: [u64; 2] = [1 << 20, 64 << 20];

    /// Two speeds, two operations, two sizes, ours, an algorithm by name and a peer, in two rounds. A call takes 1.25
    /// times as long as the link needs. All times have an exact text.
    pub(crate) fn record() -> TwoHostsRecord {
        let link = |speed: Speed, unit: f64| {
            let mut link = SpeedTurns { speed, stream_bits_per_s: vec![10.24e9; 2], samples: Vec::new() };
            for round in 0..2 {
                for operation in [Collective::AllReduce, Collective::AllToAll].map(ComparedOperation::from) {
                    for bytes in SIZES {
                        let us = bytes as f64 / 1024.0 * unit;
                        let forced = format!("{OURS} ring");
                        for (system, median_us) in [(OURS, us), (&forced, us * 1.25), (TORCH, us * 2.0)] {
                            let (system, is_forced) = (system.to_owned(), system == forced);
                            if operation != Collective::AllToAll.into() || !is_forced {
                                link.samples.push(TimedTurn { operation, bytes, system, round, median_us });
                            }
                        }
                    }
                }
            }
            link
        };
        let facts = vec![("kernel".to_owned(), "x".to_owned())];
        let links = vec![link(Speed(Some(8.0)), 1.0), link(Speed::UNSHAPED, 0.875)];
        TwoHostsRecord { facts, job: Job { hosts: 2, ranks_per_host: 2 }, links }
    }

    #[test]
    fn ratios_are_of_the_same_round_and_limits_of_the_stream() {
        let mut record = record();
        record.links.pop();
        record.links[0].samples[0].median_us *= 2.0;
        let rows = of(&record);
        assert_eq!(rows.len(), 4);
        let row = &rows[0];
        assert_eq!((row.operation, row.bytes), (Collective::AllReduce.into(), SIZES[0]));
        let names: Vec<&str> = row.systems.iter().map(|one| one.system.as_str()).collect();
        assert_eq!(names, [OURS, "unisono ring", TORCH]);
        assert_eq!(
            row.of_system(TORCH).unwrap().by_ours,
            Some(Spread { median: 1.5, least: 1.0, most: 2.0 })
        );
        assert_eq!(row.ours().unwrap().by_ours, None);
        // Of 64 MiB, a host sends 64 MiB, and the bus bandwidth counts 1.5 times as many.
        let large = &rows[1];
        assert_eq!(large.limit_bits_per_s, Some(15.36e9));
        assert!((large.of_limit.unwrap() - 0.8).abs() < 1e-9, "{large:?}");
        assert_eq!(rows[3].limit_bits_per_s, Some(7.68e9));
    }

    /// A shaped call cannot be faster than the same call without shaping.
    #[test]
    fn the_call_without_shaping_limits_too() {
        let rows = of(&record());
        assert_eq!(rows.len(), 8);
        assert!((rows[1].of_limit.unwrap() - 0.875).abs() < 1e-9, "{:?}", rows[1]);
        assert!(rows[4..].iter().all(|row| row.speed == Speed::UNSHAPED && row.of_limit.is_none()));
    }

    #[test]
    fn rounds_of_a_later_run_follow() {
        let mut first = record();
        let mut later = record();
        later.links.remove(0);
        later.links[0].samples.iter_mut().for_each(|sample| sample.median_us *= 3.0);
        first.join(later.clone()).unwrap();
        assert_eq!((first.links.len(), first.links[1].stream_bits_per_s.len()), (2, 4));
        let rows = of(&first);
        let unshaped = rows.iter().find(|row| row.speed == Speed::UNSHAPED).unwrap();
        let peer = unshaped.of_system(TORCH).unwrap();
        assert!(
            (peer.by_ours.unwrap().most - 2.0).abs() < 1e-9 && peer.us.most > peer.us.least * 2.9,
            "{peer:?}"
        );
        later.job.ranks_per_host = 3;
        assert!(first.join(later).is_err());
    }
}
