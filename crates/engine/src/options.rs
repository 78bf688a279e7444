//! Settings of one communicator.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use unisono_communicator::{
    AlgorithmName, CALL_TIMEOUT_DEFAULT, Error, Group, GroupOptions, Result, SkippedOperations,
};
use unisono_schedule::{Algorithm, Choice, CostModel, Registry, Trust};

use crate::calls::progress_threads::ProgressThreads;
use crate::lock;

/// Settings of one communicator; equal on all its ranks.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Default deadline of a call.
    pub timeout: Duration,
    /// The algorithm to use in each collective that has an algorithm of this name. With `None`, the cost model chooses.
    pub algorithm: Option<AlgorithmName>,
    /// The piece size, for tests. `None` divides [`crate::PIECE_BYTES`] among the scratch chunks.
    pub piece_bytes: Option<u64>,
    /// Operations that do nothing, in a world of the caller's own threads; a job says them to its ranks.
    pub skipped: SkippedOperations,
    /// The time for which an idle call spins, yielding, before it sleeps.
    pub spin: Duration,
    /// The time without progress after which the awaited rank is asked.
    pub probe_after: Duration,
    /// The time without progress after which a line in the log names the awaited ranks.
    pub warn_after: Duration,
    /// The time that the drop of a communicator may wait until all sent messages are on their way.
    pub drop_timeout: Duration,
    /// Predicts the times of algorithms, to choose the fastest.
    pub cost_model: CostModel,
    /// Algorithms that the communicator of all ranks registers before its first call. In a world of the caller's own
    /// threads, and in a group that its members make, they are proved at first use instead.
    pub register: Vec<Arc<Algorithm>>,
    /// The algorithms of the communicator.
    pub registry: SharedRegistry,
    /// The threads that move asynchronous calls. A derived communicator shares them.
    pub progress: ProgressThreads,
}

/// The algorithms of one communicator, which its engine and its control plane share. A derived communicator starts with
/// a copy.
#[derive(Clone, Debug, Default)]
pub struct SharedRegistry(Arc<Mutex<Registry>>);

impl SharedRegistry {
    /// The present algorithms.
    pub fn snapshot(&self) -> Registry {
        lock(&self.0).clone()
    }

    /// A separate registry that starts with the same algorithms.
    #[must_use]
    pub fn inherit(&self) -> SharedRegistry {
        SharedRegistry(Arc::new(Mutex::new(self.snapshot())))
    }

    pub(crate) fn set(&self, registry: Registry) {
        *lock(&self.0) = registry;
    }
}

impl EngineOptions {
    /// Refuses an option that would have no effect.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an algorithm that no collective has, or a name that is too long.
    pub fn check(&self) -> Result<()> {
        self.check_algorithm(self.algorithm)
    }

    /// Refuses an algorithm that no collective has.
    ///
    /// # Errors
    /// As [`EngineOptions::check`].
    pub fn check_algorithm(&self, algorithm: Option<AlgorithmName>) -> Result<()> {
        match algorithm.map(AlgorithmName::text).transpose()? {
            Some(name) if !self.is_known(name) => {
                let nearest = self.registry.snapshot().nearest_of_all(name).join(", ");
                Err(Error::invalid(
                    "algorithm",
                    format!("{name:?} is no algorithm; the nearest are {nearest}"),
                ))
            }
            _ => Ok(()),
        }
    }

    /// The registry with the algorithms of [`EngineOptions::register`], not yet proved.
    ///
    /// # Errors
    /// [`Error::AlgorithmRefused`] for an invalid name, or a name that is taken.
    pub fn configured(&self) -> Result<SharedRegistry> {
        let mut registry = self.registry.snapshot();
        let mut add = |algorithm: &Arc<Algorithm>| registry.add(algorithm.clone(), Trust::Prove);
        self.register.iter().try_for_each(&mut add).map_err(Error::refused)?;
        Ok(SharedRegistry(Arc::new(Mutex::new(registry))))
    }

    /// These settings, with the options of a group where it has them.
    #[must_use]
    pub fn of_group(&self, group: &Group) -> EngineOptions {
        let GroupOptions { timeout, algorithm, spin, .. } = *group.options();
        EngineOptions {
            timeout: timeout.unwrap_or(self.timeout),
            algorithm: algorithm.or(self.algorithm),
            spin: spin.unwrap_or(self.spin),
            ..self.clone()
        }
    }

    fn is_known(&self, name: &str) -> bool {
        Choice::is_known(&self.registry.snapshot(), name) || self.register.iter().any(|one| one.name == name)
    }
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            timeout: CALL_TIMEOUT_DEFAULT,
            algorithm: None,
            piece_bytes: None,
            skipped: SkippedOperations::default(),
            spin: Duration::from_micros(50),
            probe_after: Duration::from_millis(50),
            warn_after: Duration::from_secs(30),
            drop_timeout: Duration::from_secs(5),
            cost_model: CostModel::LOOPBACK,
            register: Vec::new(),
            registry: SharedRegistry::default(),
            progress: ProgressThreads::default(),
        }
    }
}
