//! The figures of a run, as `record.json` holds them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use unisono_compare::ComparedOperation;

use crate::hosts::{Job, parse_speed};

const UNSHAPED: &str = "unshaped";

/// The speed of a link in Gbit/s, as it was asked for; `None` if nothing slows the link down.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Speed(pub(crate) Option<f64>);

impl Speed {
    pub(crate) const UNSHAPED: Speed = Speed(None);
}

impl fmt::Display for Speed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(gbit_per_s) => formatter.pad(&gbit_per_s.to_string()),
            None => formatter.pad(UNSHAPED),
        }
    }
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Speed, String> {
        if text == UNSHAPED { Ok(Speed::UNSHAPED) } else { parse_speed(text).map(|speed| Speed(Some(speed))) }
    }
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TwoHostsRecord {
    /// The machine and the revision.
    pub(crate) facts: Vec<(String, String)>,
    pub(crate) job: Job,
    pub(crate) links: Vec<SpeedTurns>,
}

/// One speed of the link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SpeedTurns {
    pub(crate) speed: Speed,
    /// The rate of one TCP stream, before each round.
    pub(crate) stream_bits_per_s: Vec<f64>,
    pub(crate) samples: Vec<TimedTurn>,
}

/// The time of one system for one call in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TimedTurn {
    pub(crate) operation: ComparedOperation,
    /// Of the larger of a rank's two buffers.
    pub(crate) bytes: u64,
    pub(crate) system: String,
    pub(crate) round: u32,
    /// Median of the blocks of calls.
    pub(crate) median_us: f64,
}

impl TwoHostsRecord {
    /// Takes the links of a later run. Its rounds at a speed that both have follow the rounds of this one.
    ///
    /// # Errors
    /// A text if its ranks are not placed alike.
    pub(crate) fn join(&mut self, later: TwoHostsRecord) -> Result<(), String> {
        if self.job != later.job {
            return Err(format!("{:?} and {:?} are not one run", self.job, later.job));
        }
        for link in later.links {
            let Some(own) = self.links.iter_mut().find(|own| own.speed == link.speed) else {
                self.links.push(link);
                continue;
            };
            let rounds = own.stream_bits_per_s.len() as u32;
            own.stream_bits_per_s.extend(link.stream_bits_per_s);
            let after = |sample: TimedTurn| TimedTurn { round: sample.round + rounds, ..sample };
            own.samples.extend(link.samples.into_iter().map(after));
        }
        Ok(())
    }
}
