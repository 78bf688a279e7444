//! The choice of a call's algorithm: the forced one, or the cheapest that fits. A selector never changes, so any thread
//! may use it; registering an algorithm replaces it.

use std::time::Duration;

use unisono_communicator::{
    AlgorithmName, CallOptions, Collective, Counts, Descriptor, Determinism, Error, Group, Place, ReduceOp,
    Result,
};
use unisono_schedule::{Admit, Choice, Chooser, CostModel, Facts, Registry, Shape, UnknownChoice};

use crate::options::EngineOptions;
use crate::plan::offset_table::vector_elements;
use crate::plan::scheduled::KeptRounds;

/// The size that is assumed when sizes differ by rank, so that all ranks choose the same algorithm.
const UNEVEN_BYTES_ASSUMED: u64 = 1024 * 1024;

/// The choice of algorithms in one group.
pub(crate) struct Selector {
    shape: Shape,
    cost_model: CostModel,
    registry: Registry,
    chooser: Chooser,
    /// The algorithm that the group's options force.
    pub(super) forced: Option<AlgorithmName>,
    pub(super) rounds: KeptRounds,
}

impl Selector {
    /// The choice in `group`, by the cost model of the options.
    pub(crate) fn new(group: &Group, options: &EngineOptions) -> Selector {
        let (cost_model, registry) = (options.cost_model, options.registry.snapshot());
        let shape = cost_model.shape(group.hosts());
        let chooser = Chooser::new(&registry, &shape, &cost_model);
        let rounds = KeptRounds::default();
        Selector { shape, cost_model, registry, chooser, forced: options.algorithm, rounds }
    }

    /// The same choice among another registry's algorithms.
    pub(crate) fn among(&self, registry: Registry) -> Selector {
        let Selector { shape, cost_model, forced, .. } = *self;
        Selector {
            chooser: Chooser::new(&registry, &shape, &cost_model),
            registry,
            shape,
            cost_model,
            forced,
            rounds: KeptRounds::default(),
        }
    }

    /// The shape of the group, with root 0.
    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Whether the group's options force an algorithm that the collective has.
    pub(super) fn has_forced(&self, collective: Collective) -> bool {
        let Some(forced) = self.forced else { return false };
        let unknown = |name| Choice::named(&self.registry, collective, name, &self.shape).err();
        !forced.text().is_ok_and(|name| matches!(unknown(name), Some(UnknownChoice::Name { .. })))
    }

    /// Whether a call has an algorithm. Sizes do not matter: they only decide which algorithm runs.
    ///
    /// # Errors
    /// As [`Selector::choose`].
    pub(crate) fn supports(
        &self,
        collective: Collective,
        descriptor: &Descriptor,
        options: &CallOptions,
    ) -> Result<()> {
        self.choose(collective, descriptor, &Counts::Even, options).map(drop)
    }

    /// The algorithm for a call, and its facts.
    ///
    /// # Errors
    /// `Unsupported`, `InvalidArgument` or `AlgorithmRefused` when no proven algorithm fits the call.
    pub(crate) fn choose(
        &self,
        collective: Collective,
        descriptor: &Descriptor,
        counts: &Counts,
        options: &CallOptions,
    ) -> Result<(Choice, Facts)> {
        let shape = self.shape.with_root(descriptor.root.unwrap_or(0));
        // All ranks must choose alike, so only facts that all know may count. In a rooted call, only the root knows
        // whether it passes one buffer, and in an exscan rank 0 has no output.
        let in_place = descriptor.place == Place::InPlace && !collective.place_may_differ();
        let admit = Admit {
            canonical_only: collective.reduces() && options.determinism == Determinism::Fixed,
            commutative_operator: descriptor.op.is_none_or(ReduceOp::is_commutative),
            uneven: descriptor.uneven,
            in_place,
        };
        if let Some(name) = options.algorithm.or(self.forced).map(AlgorithmName::text).transpose()? {
            match Choice::named(&self.registry, collective, name, &shape) {
                Ok(choice) => {
                    let facts =
                        self.registry.facts(&choice.algorithm, &choice.shape).map_err(Error::refused)?;
                    return match admit.refusal(&choice.algorithm, facts.canonical) {
                        None => Ok((choice, facts)),
                        Some(reason) => {
                            let problem = format!("{name:?} does not fit {descriptor}: {reason}");
                            Err(Error::invalid("algorithm", problem))
                        }
                    };
                }
                // The group's forced name applies only to collectives that have an algorithm of this name.
                Err(UnknownChoice::Name { .. }) if options.algorithm.is_none() => {}
                Err(unknown) => return Err(Error::invalid("algorithm", unknown.to_string())),
            }
        }
        let bytes = self.bytes(collective, descriptor, counts);
        let cheapest = self.chooser.choose(collective, bytes, &admit).ok_or_else(|| Error::Unsupported {
            what: format!("{descriptor} with a fixed summation tree, or with such an operator or place"),
            backend: "engine",
            instead: Some("any order, or another operator".to_owned()),
        })?;
        let facts = self.registry.facts(cheapest, &shape).map_err(Error::refused)?;
        Ok((Choice { algorithm: cheapest.clone(), shape }, facts))
    }
    /// The predicted time of a call by this algorithm; `None` if its cost is not known.
    pub(super) fn predicted(
        &self,
        choice: &Choice,
        facts: &Facts,
        descriptor: &Descriptor,
        counts: &Counts,
    ) -> Option<Duration> {
        let bytes = self.bytes(choice.algorithm.collective, descriptor, counts);
        let predicted_ns =
            |cost| self.cost_model.predicted_ns_of(&choice.algorithm, cost, &choice.shape, bytes);
        facts.cost.as_ref().map(predicted_ns).map(Duration::from_nanos)
    }

    /// The size of a call, for the choice of its algorithm.
    fn bytes(&self, collective: Collective, descriptor: &Descriptor, counts: &Counts) -> u64 {
        let elements = vector_elements(collective, descriptor.count, counts, self.shape.ranks);
        let bytes = elements.map(|elements| elements.saturating_mul(descriptor.dtype.bytes() as u64));
        bytes.unwrap_or(UNEVEN_BYTES_ASSUMED)
    }
}
