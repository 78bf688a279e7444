//! What a call over a slow link should take: the bytes of the busiest host divided by the link's rate, and the kernels.
//!
//! `N` ranks, `n` elements, `w` bytes of payload per element, `f = 2 (N - 1) / N`:
//!
//! ```text
//! exact       f 4n / B                          the additions hide behind the bytes
//! serial      f w n / B + kernels               encode, exchange, reduce, expand one after the other
//! pipelined   max(f w n / B, kernels)           the kernels of one block beside the bytes of another
//! crossover   B at which exact and serial are equal
//! ```

use serde::{Deserialize, Serialize};

use super::record::MeasuredCall;
use crate::hosts::Job;

impl Job {
    /// Bytes that a host must send at least in an exact call over `bytes` on each rank.
    pub(crate) fn exact_bytes(self, call: MeasuredCall, bytes: u64) -> f64 {
        let hosts = f64::from(self.hosts);
        let ways = match call {
            MeasuredCall::AllReduce => 2.0,
            MeasuredCall::ReduceScatter => 1.0,
        };
        ways * (hosts - 1.0) / hosts * bytes as f64
    }
}

/// What is predicted for one call.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Prediction {
    /// One after the other.
    pub(crate) serial_us: f64,
    /// As well as they can overlap.
    pub(crate) pipelined_us: f64,
}

impl Prediction {
    /// For `host_bytes` from each host over a link of `bits_per_s`, beside kernels that take `kernels_us`.
    pub(crate) fn of(host_bytes: f64, bits_per_s: f64, kernels_us: f64) -> Prediction {
        let wire_us = host_bytes * 8.0 / bits_per_s * 1e6;
        Prediction { serial_us: wire_us + kernels_us, pipelined_us: wire_us.max(kernels_us) }
    }
}

/// Bits per second below which a codec wins that saves `saved_bytes` of each host's and costs `kernels_us`.
pub(crate) fn crossover_bits_per_s(saved_bytes: f64, kernels_us: f64) -> f64 {
    saved_bytes * 8.0 / (kernels_us / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Job = Job { hosts: 2, ranks_per_host: 1 };

    #[test]
    fn an_exact_call_sends_what_a_ring_between_hosts_sends() {
        let bytes = |job: Job, call| job.exact_bytes(call, 1 << 20) / f64::from(1 << 20);
        assert_eq!(bytes(TWO, MeasuredCall::AllReduce), 1.0);
        assert_eq!(bytes(TWO, MeasuredCall::ReduceScatter), 0.5);
        assert_eq!(bytes(Job { hosts: 4, ..TWO }, MeasuredCall::AllReduce), 1.5);
        // Ranks of one host add before they send.
        assert_eq!(bytes(Job { ranks_per_host: 2, ..TWO }, MeasuredCall::AllReduce), 1.0);
    }

    /// The example of a 1-bit codec of 64 MiB over 0.96 Gbit/s: 4.125 bits... of payload per element for 32 of f32.
    #[test]
    fn one_bit_per_element_over_a_gigabit_is_some_twenty_times_faster() {
        let elements = (64 << 20) / 4;
        let wire_bytes = 2 * (elements / 8 + elements / 1024 * 4);
        let exact = Prediction::of(TWO.exact_bytes(MeasuredCall::AllReduce, 64 << 20), 0.96e9, 0.0);
        let sign = Prediction::of(wire_bytes as f64 / 2.0, 0.96e9, 8_300.0);
        assert!((559_000.0..560_000.0).contains(&exact.serial_us), "{exact:?}");
        let (serial, pipelined) = (exact.serial_us / sign.serial_us, exact.serial_us / sign.pipelined_us);
        assert!((21.0..22.0).contains(&serial) && (30.0..32.0).contains(&pipelined), "{serial} {pipelined}");
    }

    #[test]
    fn at_the_crossover_both_take_the_same_time() {
        let (exact_bytes, codec_bytes, kernels_us) = (64e6, 2e6, 8e3);
        let at = crossover_bits_per_s(exact_bytes - codec_bytes, kernels_us);
        let exact = Prediction::of(exact_bytes, at, 0.0);
        let codec = Prediction::of(codec_bytes, at, kernels_us);
        assert!((exact.serial_us / codec.serial_us - 1.0).abs() < 1e-12);
    }
}
