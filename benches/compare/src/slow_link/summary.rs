//! The figures of a record: medians over the rounds, and what the model says beside them.

use serde::Serialize;

use super::model::{Job, Prediction, crossover_bits_per_s};
use super::record::{Compressed, EXACT, Link, Parts, Sample, SlowLinkRecord};
use crate::judge::median;
use crate::systems::TORCH;

/// One system at one speed and size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) gbit_per_s: f64,
    /// Median of the streams.
    pub(crate) stream_bits_per_s: f64,
    pub(crate) bytes: u64,
    pub(crate) system: String,
    /// Of the rounds' medians: the median, the least and the most.
    pub(crate) median_us: f64,
    pub(crate) least_us: f64,
    pub(crate) most_us: f64,
    /// Time of the exact all-reduce divided by this one's, the median of the rounds; `None` where no round has both.
    pub(crate) speed_up: Option<f64>,
    /// `None` for peers.
    pub(crate) predicted: Option<Prediction>,
    pub(crate) predicted_speed_up: Option<f64>,
    pub(crate) codec: Option<CodecSummary>,
}

/// What only a codec has; parts are medians of the rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CodecSummary {
    pub(crate) wire_bytes: u64,
    pub(crate) relative_error: f64,
    pub(crate) parts: Parts,
    /// The share of the shorter of exchange and kernels that a call hides behind the other: 1 hides all of it, 0 is
    /// one after the other, and less than 0 is slower than that.
    pub(crate) hidden: f64,
    /// Of the link: below it this codec is predicted to win even if nothing is hidden.
    pub(crate) crossover_bits_per_s: f64,
}

/// Every speed, size and system of the record, in the order in which they were measured.
pub(crate) fn of(record: &SlowLinkRecord) -> Vec<Summary> {
    let of_link =
        |link| keys(link).into_iter().map(move |(bytes, system)| summary(record.job, link, bytes, system));
    record.links.iter().flat_map(of_link).collect()
}

/// Sizes and systems.
fn keys(link: &Link) -> Vec<(u64, &str)> {
    let mut keys: Vec<(u64, &str)> = Vec::new();
    for sample in &link.samples {
        let key = (sample.bytes, sample.system.as_str());
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys.sort_by_key(|(bytes, system)| (*bytes, *system == TORCH));
    keys
}

fn summary(job: Job, link: &Link, bytes: u64, system: &str) -> Summary {
    let of = |name: &str| -> Vec<&Sample> {
        link.samples.iter().filter(|one| one.bytes == bytes && one.system == name).collect()
    };
    let (samples, exact) = (of(system), of(EXACT));
    let times: Vec<f64> = samples.iter().map(|sample| sample.median_us).collect();
    let ratio = |sample: &&Sample| {
        let of_round = exact.iter().find(|exact| exact.round == sample.round)?;
        Some(of_round.median_us / sample.median_us)
    };
    let ratios: Vec<f64> = samples.iter().filter_map(ratio).collect();
    let stream_bits_per_s = median(&link.stream_bits_per_s);
    let predict_exact = Prediction::of(job.exact_bytes(bytes), stream_bits_per_s, 0.0);
    let all: Vec<Compressed> = samples.iter().filter_map(|sample| sample.compressed).collect();
    let codec = codec(job, bytes, &all, median(&times));
    let predicted = match &codec {
        Some(codec) => {
            let host_bytes = job.exchanged_bytes(codec.wire_bytes);
            Some(Prediction::of(host_bytes, stream_bits_per_s, codec.parts.kernels_us()))
        }
        None => (system == EXACT).then_some(predict_exact),
    };
    Summary {
        gbit_per_s: link.gbit_per_s,
        stream_bits_per_s,
        bytes,
        system: system.to_owned(),
        median_us: median(&times),
        least_us: times.iter().copied().fold(f64::INFINITY, f64::min),
        most_us: times.iter().copied().fold(0.0, f64::max),
        speed_up: (!ratios.is_empty()).then(|| median(&ratios)),
        predicted,
        predicted_speed_up: predicted.map(|predicted| predict_exact.serial_us / predicted.serial_us),
        codec,
    }
}

fn codec(job: Job, bytes: u64, all: &[Compressed], median_us: f64) -> Option<CodecSummary> {
    let first = all.first()?;
    let part = |of: fn(&Parts) -> f64| median(&all.iter().map(|one| of(&one.parts)).collect::<Vec<_>>());
    let parts = Parts {
        encode_us: part(|parts| parts.encode_us),
        exchange_us: part(|parts| parts.exchange_us),
        reduce_us: part(|parts| parts.reduce_us),
        expand_us: part(|parts| parts.expand_us),
    };
    let shorter_us = parts.kernels_us().min(parts.exchange_us);
    let saved_bytes = job.exact_bytes(bytes) - job.exchanged_bytes(first.wire_bytes);
    Some(CodecSummary {
        wire_bytes: first.wire_bytes,
        relative_error: median(&all.iter().map(|one| one.relative_error).collect::<Vec<_>>()),
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
                let compressed = Compressed { wire_bytes: bytes / 16, relative_error: 0.5, parts };
                for (system, median_us, compressed) in
                    [(EXACT, exact_us, None), ("sign", 102.0, Some(compressed)), (TORCH, exact_us, None)]
                {
                    link.samples.push(Sample {
                        system: system.to_owned(),
                        round,
                        bytes,
                        median_us,
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
        assert_eq!(torch.predicted, None);
    }
}
