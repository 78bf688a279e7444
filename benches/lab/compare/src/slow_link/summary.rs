//! The figures of a record: medians over the rounds, and what the model says beside them.

use serde::Serialize;

use super::model::{Prediction, crossover_bits_per_s};
use super::record::{Compressed, EXACT, Link, MeasuredCall, Parts, Sample, SlowLinkRecord};
use crate::hosts::Job;
use crate::judge::median;
use crate::systems::TORCH;

/// One system at one speed and size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) gbit_per_s: f64,
    /// Median of the streams.
    pub(crate) stream_bits_per_s: f64,
    pub(crate) call: MeasuredCall,
    pub(crate) bytes: u64,
    pub(crate) system: String,
    /// Where there are several.
    pub(crate) route: Option<String>,
    /// Of the rounds' medians: the median, the least and the most.
    pub(crate) median_us: f64,
    pub(crate) least_us: f64,
    pub(crate) most_us: f64,
    /// Time of the exact call divided by this one's, the median of the rounds; `None` where no round has both.
    pub(crate) speed_up: Option<f64>,
    /// What goes between the hosts in one call; `None` for peers.
    pub(crate) network_bytes: Option<f64>,
    /// The same, divided by what an exact call must send.
    pub(crate) network_share: Option<f64>,
    pub(crate) relative_error: Option<f64>,
    /// `None` for peers, and for codecs whose parts were not measured.
    pub(crate) predicted: Option<Prediction>,
    pub(crate) predicted_speed_up: Option<f64>,
    pub(crate) codec: Option<CodecSummary>,
}

/// What only a codec has; parts are medians of the rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CodecSummary {
    pub(crate) parts: Parts,
    /// The share of the shorter of exchange and kernels that a call hides behind the other: 1 hides all of it, 0 is
    /// one after the other, and less than 0 is slower than that.
    pub(crate) hidden: f64,
    /// Of the link: below it this codec is predicted to win even if nothing is hidden.
    pub(crate) crossover_bits_per_s: f64,
}

/// What has one row: a call, its size, a system and its way.
#[derive(Clone, Copy, PartialEq)]
struct Key<'a> {
    call: MeasuredCall,
    bytes: u64,
    system: &'a str,
    route: Option<&'a str>,
}

impl<'a> Key<'a> {
    fn of(sample: &'a Sample) -> Key<'a> {
        let Sample { call, bytes, system, route, .. } = sample;
        Key { call: *call, bytes: *bytes, system, route: route.as_deref() }
    }
}

/// Every speed, call, size and system of the record, in the order in which they were measured.
pub(crate) fn of(record: &SlowLinkRecord) -> Vec<Summary> {
    let of_link = |link| keys(link).into_iter().map(move |key| summary(record.job, link, key));
    record.links.iter().flat_map(of_link).collect()
}

fn keys(link: &Link) -> Vec<Key<'_>> {
    let mut keys: Vec<Key<'_>> = Vec::new();
    for sample in &link.samples {
        let key = Key::of(sample);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    // Exact calls first, which the others are compared with, and peers last.
    let place = |system| if system == TORCH { 2 } else { u32::from(system != EXACT) };
    keys.sort_by_key(|key| (key.call != MeasuredCall::AllReduce, key.bytes, place(key.system)));
    keys
}

fn summary(job: Job, link: &Link, key: Key<'_>) -> Summary {
    let Key { call, bytes, system, route } = key;
    let samples: Vec<&Sample> = link.samples.iter().filter(|one| Key::of(one) == key).collect();
    let times: Vec<f64> = samples.iter().map(|sample| sample.median_us).collect();
    let ratio = |sample: &&Sample| {
        let is_exact = |one: &&Sample| (one.call, one.bytes, one.system.as_str()) == (call, bytes, EXACT);
        let of_round = link.samples.iter().filter(is_exact).find(|exact| exact.round == sample.round)?;
        Some(of_round.median_us / sample.median_us)
    };
    let ratios: Vec<f64> = samples.iter().filter_map(ratio).collect();
    let exact_bytes = job.exact_bytes(call, bytes);
    let hosts = f64::from(job.hosts);
    // What an exact call sends is known where the bench does not say it.
    let least = (system == EXACT).then_some(exact_bytes * hosts);
    let told = samples.first().and_then(|sample| sample.network_bytes).map(|bytes| bytes as f64);
    let network_bytes = told.or(least);
    let stream_bits_per_s = median(&link.stream_bits_per_s);
    let all: Vec<Compressed> = samples.iter().filter_map(|sample| sample.compressed).collect();
    let saved_bytes = exact_bytes - network_bytes.unwrap_or(0.0) / hosts;
    let codec = codec(&all, median(&times), saved_bytes);
    let predict = |bytes: f64, kernels_us| Prediction::of(bytes / hosts, stream_bits_per_s, kernels_us);
    let predicted = match &codec {
        Some(codec) => network_bytes.map(|bytes| predict(bytes, codec.parts.kernels_us())),
        None => least.map(|bytes| predict(bytes, 0.0)),
    };
    let exact = predict(exact_bytes * hosts, 0.0);
    let errors: Vec<f64> = all.iter().map(|one| one.relative_error).collect();
    Summary {
        gbit_per_s: link.gbit_per_s,
        stream_bits_per_s,
        call,
        bytes,
        system: system.to_owned(),
        route: route.map(str::to_owned),
        median_us: median(&times),
        least_us: times.iter().copied().fold(f64::INFINITY, f64::min),
        most_us: times.iter().copied().fold(0.0, f64::max),
        speed_up: (!ratios.is_empty()).then(|| median(&ratios)),
        network_bytes,
        network_share: network_bytes.map(|bytes| bytes / hosts / exact_bytes),
        relative_error: (!errors.is_empty()).then(|| median(&errors)),
        predicted,
        predicted_speed_up: predicted.map(|predicted| exact.serial_us / predicted.serial_us),
        codec,
    }
}

/// `None` where parts were not measured.
fn codec(all: &[Compressed], median_us: f64, saved_bytes: f64) -> Option<CodecSummary> {
    let of_rounds: Vec<Parts> = all.iter().filter_map(|one| one.parts).collect();
    of_rounds.first()?;
    let part = |of: fn(&Parts) -> f64| median(&of_rounds.iter().map(of).collect::<Vec<_>>());
    let parts = Parts {
        encode_us: part(|parts| parts.encode_us),
        exchange_us: part(|parts| parts.exchange_us),
        reduce_us: part(|parts| parts.reduce_us),
        expand_us: part(|parts| parts.expand_us),
    };
    let shorter_us = parts.kernels_us().min(parts.exchange_us);
    Some(CodecSummary {
        parts,
        hidden: (parts.sum_us() - median_us) / shorter_us,
        crossover_bits_per_s: crossover_bits_per_s(saved_bytes, parts.kernels_us()),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two speeds, two sizes, an exact all-reduce, a codec and a peer, in two rounds.
    pub(crate) fn record() -> SlowLinkRecord {
        let job = Job { hosts: 2, ranks_per_host: 1 };
        let link = |gbit_per_s: f64| {
            let mut link =
                Link { gbit_per_s, stream_bits_per_s: vec![gbit_per_s * 1e9; 2], samples: Vec::new() };
            for (round, bytes) in [(0, 1_000_000), (0, 64_000_000), (1, 1_000_000), (1, 64_000_000)] {
                let exact_us = bytes as f64 * 8.0 / gbit_per_s / 1e3 * f64::from(round + 1);
                let parts = Parts { encode_us: 2.0, exchange_us: 100.0, reduce_us: 1.0, expand_us: 1.0 };
                let compressed = Compressed { relative_error: 0.5, parts: Some(parts) };
                for (system, median_us, compressed) in
                    [(EXACT, exact_us, None), ("sign", 102.0, Some(compressed)), (TORCH, exact_us, None)]
                {
                    link.samples.push(Sample {
                        call: MeasuredCall::AllReduce,
                        system: system.to_owned(),
                        route: None,
                        round,
                        bytes,
                        median_us,
                        network_bytes: compressed.map(|_| bytes / 16),
                        compressed,
                    });
                }
            }
            link
        };
        SlowLinkRecord {
            facts: vec![("kernel".to_owned(), "x".to_owned())],
            job,
            links: vec![link(1.0), link(10.0)],
        }
    }

    #[test]
    fn speed_ups_are_of_the_same_round_and_predictions_of_the_measured_stream() {
        let all = of(&record());
        assert_eq!(all.len(), 2 * 2 * 3);
        let [exact, sign, torch] = &all[..3] else { panic!("{all:?}") };
        assert_eq!((exact.bytes, exact.system.as_str(), torch.system.as_str()), (1_000_000, EXACT, TORCH));
        assert_eq!((exact.median_us, exact.least_us, exact.most_us), (12_000.0, 8_000.0, 16_000.0));
        assert_eq!((exact.speed_up, torch.speed_up), (Some(1.0), Some(1.0)));
        assert_eq!(exact.predicted.map(|one| one.serial_us), Some(8_000.0));
        assert_eq!(sign.speed_up, Some((8_000.0 / 102.0 + 16_000.0 / 102.0) / 2.0));
        // 31,250 bytes from each host, and 4 us of kernels.
        assert_eq!(sign.predicted, Some(Prediction { serial_us: 254.0, pipelined_us: 250.0 }));
        let codec = sign.codec.as_ref().unwrap();
        // Of 4 us of kernels, 2 are hidden behind the 100 of the exchange.
        assert_eq!(codec.hidden, 0.5);
        assert_eq!((torch.predicted, torch.network_bytes), (None, None));
        assert_eq!((exact.network_bytes, exact.network_share), (Some(2e6), Some(1.0)));
        assert_eq!((sign.network_share, sign.relative_error), (Some(0.03125), Some(0.5)));
    }

    /// The exact reduce-scatter is what other reduce-scatters are compared with, and ways are told apart.
    #[test]
    fn calls_and_ways_are_told_apart() {
        let mut record = record();
        record.job.ranks_per_host = 2;
        record.links.truncate(1);
        let first = record.links[0].samples[1].clone();
        let scatter = |system: &str, route: &str, median_us, network_bytes| Sample {
            call: MeasuredCall::ReduceScatter,
            system: system.to_owned(),
            route: Some(route.to_owned()),
            median_us,
            network_bytes: Some(network_bytes),
            compressed: (system != EXACT).then_some(Compressed { relative_error: 0.01, parts: None }),
            ..first.clone()
        };
        record.links[0].samples = vec![
            scatter("int8", "direct", 200.0, 500_000),
            scatter("int8", "two levels", 100.0, 260_000),
            scatter(EXACT, "two levels", 400.0, 1_000_000),
            Sample {
                call: MeasuredCall::AllReduce,
                system: EXACT.to_owned(),
                compressed: None,
                ..first.clone()
            },
        ];
        let all = of(&record);
        let [all_reduce, exact, direct, two_levels] = &all[..] else { panic!("{all:?}") };
        assert_eq!((all_reduce.call, exact.call), (MeasuredCall::AllReduce, MeasuredCall::ReduceScatter));
        assert_eq!((exact.speed_up, exact.network_share), (Some(1.0), Some(1.0)));
        assert_eq!((direct.route.as_deref(), direct.speed_up), (Some("direct"), Some(2.0)));
        assert_eq!((two_levels.speed_up, two_levels.network_share), (Some(4.0), Some(0.26)));
        assert_eq!((two_levels.predicted, &two_levels.codec), (None, &None));
    }
}
