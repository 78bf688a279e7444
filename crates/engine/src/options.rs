//! Settings of one communicator.

use std::time::Duration;

use unisono_communicator::{AlgorithmName, CALL_TIMEOUT_DEFAULT, Error, Result};
use unisono_schedule::{Choice, CostModel, algorithms};

/// Settings of one communicator; equal on all its ranks.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Default deadline of a call.
    pub timeout: Duration,
    /// Algorithm for the collectives that have one of this name; the chooser's pick when `None`.
    pub algorithm: Option<AlgorithmName>,
    /// Piece size; [`crate::PIECE_BYTES`] shared among the scratch chunks when `None`. For tests.
    pub piece_bytes: Option<u64>,
    /// How long an idle call spins, yielding, before it sleeps.
    pub spin: Duration,
    /// After how long without progress the awaited rank is asked.
    pub probe_after: Duration,
    /// After how long without progress a line in the log names the awaited ranks.
    pub warn_after: Duration,
    /// How long dropping a communicator may wait until what was sent is on its way.
    pub drop_timeout: Duration,
    /// Predicts the time of every algorithm, for the choice of the fastest.
    pub cost_model: CostModel,
}

impl EngineOptions {
    /// Refuses an option that could only be ignored.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an algorithm that no collective has, or a name that is too long.
    pub fn check(&self) -> Result<()> {
        match self.algorithm.map(AlgorithmName::text).transpose()? {
            Some(name) if !Choice::is_known(name) => {
                let mut names: Vec<_> = algorithms().iter().map(|algorithm| algorithm.name).collect();
                names.sort_unstable();
                names.dedup();
                let names = names.join(", ");
                Err(Error::invalid("algorithm", format!("{name:?}, but there are: {names}, leaders:L")))
            }
            _ => Ok(()),
        }
    }
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            timeout: CALL_TIMEOUT_DEFAULT,
            algorithm: None,
            piece_bytes: None,
            spin: Duration::from_micros(50),
            probe_after: Duration::from_millis(50),
            warn_after: Duration::from_secs(30),
            drop_timeout: Duration::from_secs(5),
            cost_model: CostModel::LOOPBACK,
        }
    }
}
