//! What a run has measured, as `record.json` holds it.

use serde::{Deserialize, Serialize};

use crate::hosts::Job;

/// The exact call among the samples.
pub(crate) const EXACT: &str = "exact";

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MeasuredCall {
    AllReduce,
    ReduceScatter,
}

impl MeasuredCall {
    pub(crate) fn name(self) -> &'static str {
        match self {
            MeasuredCall::AllReduce => "all_reduce",
            MeasuredCall::ReduceScatter => "reduce_scatter",
        }
    }
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SlowLinkRecord {
    /// What it was measured on.
    pub(crate) facts: Vec<(String, String)>,
    pub(crate) job: Job,
    pub(crate) links: Vec<Link>,
}

/// One speed of the link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Link {
    /// As it was asked for.
    pub(crate) gbit_per_s: f64,
    /// What one TCP stream carried, before each round.
    pub(crate) stream_bits_per_s: Vec<f64>,
    pub(crate) samples: Vec<Sample>,
}

/// What one system needed for one size in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) call: MeasuredCall,
    /// [`EXACT`], a codec, or a peer.
    pub(crate) system: String,
    /// How it travels, where there are several ways.
    pub(crate) route: Option<String>,
    pub(crate) round: u32,
    /// Of a rank's buffer.
    pub(crate) bytes: u64,
    /// Median of the calls.
    pub(crate) median_us: f64,
    /// Payload that all ranks together send to other hosts in one call, where the bench says it.
    pub(crate) network_bytes: Option<u64>,
    /// What only a codec has.
    pub(crate) compressed: Option<Compressed>,
}

/// What a row of the bench says about a codec.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Compressed {
    /// Of one call.
    pub(crate) relative_error: f64,
    /// Where there is one way only.
    pub(crate) parts: Option<Parts>,
}

/// What a call consists of, each measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Parts {
    pub(crate) encode_us: f64,
    /// The same bytes in the same messages, without kernels.
    pub(crate) exchange_us: f64,
    /// The owner's work on its share.
    pub(crate) reduce_us: f64,
    pub(crate) expand_us: f64,
}

impl Parts {
    /// All that is not exchange.
    pub(crate) fn kernels_us(&self) -> f64 {
        self.encode_us + self.reduce_us + self.expand_us
    }

    /// All of it, one after the other.
    pub(crate) fn sum_us(&self) -> f64 {
        self.kernels_us() + self.exchange_us
    }
}
