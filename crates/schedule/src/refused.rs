//! Why an algorithm is not used.

use std::fmt;

use crate::Counterexample;

/// An algorithm that is not used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The qualified name of the algorithm.
    pub algorithm: String,
    /// Why.
    pub reason: Refusal,
}

/// Why an algorithm is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Its name is not allowed.
    BadName(&'static str),
    /// Its collective has another algorithm of this name.
    NameTaken,
    /// The algorithm needs separate buffers for input and output, but in its collective some ranks may pass one buffer
    /// for both and others not: the root, or all ranks of an exscan but rank 0, which has no output. The other ranks
    /// cannot see this, and all ranks must choose the same algorithm.
    PlaceMayDiffer,
    /// It is not in the registry.
    NotRegistered,
    /// It does not fit a group of this shape.
    DoesNotFit {
        /// The number of ranks.
        ranks: u32,
        /// The root; 0 if the collective has none.
        root: u32,
    },
    /// The group has no such rank.
    NoSuchRank {
        /// The rank.
        rank: u32,
        /// The number of ranks.
        ranks: u32,
    },
    /// It is wrong, or does not keep its claims.
    Wrong(Counterexample),
    /// The proof would take more steps than the limit.
    TooLarge {
        /// The limit.
        steps_max: u64,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithm = &self.algorithm;
        match &self.reason {
            Refusal::BadName(problem) => write!(formatter, "{algorithm:?} is no name: {problem}"),
            Refusal::NameTaken => write!(formatter, "there is another {algorithm}"),
            Refusal::PlaceMayDiffer => {
                let problem =
                    "requires an output apart from the input, but some of its ranks may pass one buffer";
                write!(formatter, "{algorithm} {problem}, which the other ranks do not see")
            }
            Refusal::NotRegistered => write!(formatter, "{algorithm} is not registered"),
            Refusal::DoesNotFit { ranks, root } => {
                write!(formatter, "{algorithm} does not support {ranks} ranks with root {root}")
            }
            Refusal::NoSuchRank { rank, ranks } => {
                write!(formatter, "{algorithm} has no schedule for rank {rank} of {ranks}")
            }
            // Its text names the algorithm.
            Refusal::Wrong(counterexample) => counterexample.fmt(formatter),
            Refusal::TooLarge { steps_max } => {
                write!(formatter, "{algorithm} has more than {steps_max} steps here, too many to prove")
            }
        }
    }
}

impl std::error::Error for Refused {}
