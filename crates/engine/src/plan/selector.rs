//! Which algorithm runs a call: the one that is forced, or the cheapest that fits. Nothing here changes, so any thread
//! may ask at any time.

use unisono_communicator::{
    AlgorithmName, CallOptions, Collective, Counts, Descriptor, Determinism, Error, Group, Place, ReduceOp,
    Result,
};
use unisono_schedule::{Admit, Choice, Chooser, CostModel, Shape, UnknownChoice};

use crate::plan::offset_table::vector_elements;

/// The size that is assumed for the choice of an algorithm when sizes differ by rank, so that all ranks choose the
/// same.
const UNEVEN_BYTES_ASSUMED: u64 = 1024 * 1024;

/// The choice of algorithms in one group.
pub(crate) struct Selector {
    shape: Shape,
    chooser: Chooser,
    /// The algorithm that the group's options force.
    pub(super) forced: Option<AlgorithmName>,
}

impl Selector {
    /// The choice in `group`, by the costs that `cost_model` predicts.
    pub(crate) fn new(group: &Group, cost_model: &CostModel, forced: Option<AlgorithmName>) -> Selector {
        let shape = cost_model.shape(group.hosts());
        Selector { shape, chooser: Chooser::new(&shape, cost_model), forced }
    }

    /// Whether there is an algorithm for such a call. Sizes decide which one it is, and not whether there is one.
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

    /// The algorithm for a call.
    ///
    /// # Errors
    /// `Unsupported` or `InvalidArgument` when no proven algorithm fits the call.
    pub(crate) fn choose(
        &self,
        collective: Collective,
        descriptor: &Descriptor,
        counts: &Counts,
        options: &CallOptions,
    ) -> Result<Choice> {
        let shape = self.shape.with_root(descriptor.root.unwrap_or(0));
        let admit = Admit {
            canonical_only: collective.reduces() && options.determinism == Determinism::Fixed,
            commutative_operator: descriptor.op.is_none_or(ReduceOp::is_commutative),
            uneven: descriptor.uneven,
            in_place: descriptor.place == Place::InPlace,
        };
        if let Some(name) = options.algorithm.or(self.forced).map(AlgorithmName::text).transpose()? {
            match Choice::named(collective, name, &shape) {
                Ok(choice) => {
                    return match admit.refusal(choice.algorithm, &choice.shape) {
                        None => Ok(choice),
                        Some(reason) => {
                            let problem = format!("{name:?} does not fit {descriptor}: {reason}");
                            Err(Error::invalid("algorithm", problem))
                        }
                    };
                }
                // The group's choice holds for the collectives that have an algorithm of this name.
                Err(UnknownChoice::Name { .. }) if options.algorithm.is_none() => {}
                Err(unknown) => return Err(Error::invalid("algorithm", unknown.to_string())),
            }
        }
        let elements = vector_elements(collective, descriptor.count, counts, self.shape.ranks);
        let bytes = elements.map(|elements| elements.saturating_mul(descriptor.dtype.bytes() as u64));
        let bytes = bytes.unwrap_or(UNEVEN_BYTES_ASSUMED);
        let cheapest = self.chooser.choose(collective, bytes, &admit);
        cheapest.map(|algorithm| Choice { algorithm, shape }).ok_or_else(|| Error::Unsupported {
            what: format!("{descriptor} with a fixed summation tree, or with such an operator or place"),
            backend: "engine",
            instead: Some("any order, or another operator".to_owned()),
        })
    }
}
