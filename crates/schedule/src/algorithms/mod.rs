//! The registry: one line per algorithm.

use crate::{Algorithm, Collective};

mod binomial;
mod canonical;
mod chain;
mod direct;
mod dissemination;
mod halving_doubling;
mod leaders;
mod pairwise;
mod recursive_doubling;
mod ring;

/// Every algorithm, those of one collective next to each other.
static ALGORITHMS: &[Algorithm] = &[
    recursive_doubling::ALL_REDUCE,
    halving_doubling::ALL_REDUCE,
    ring::ALL_REDUCE,
    direct::ALL_REDUCE,
    leaders::ALL_REDUCE,
    halving_doubling::REDUCE_SCATTER,
    ring::REDUCE_SCATTER,
    direct::REDUCE_SCATTER,
    halving_doubling::ALL_GATHER,
    ring::ALL_GATHER,
    direct::ALL_GATHER,
    direct::ALL_TO_ALL,
    pairwise::ALL_TO_ALL,
    binomial::BROADCAST,
    chain::BROADCAST,
    binomial::REDUCE,
    canonical::REDUCE,
    binomial::GATHER,
    binomial::SCATTER,
    dissemination::BARRIER,
];

/// Every registered algorithm.
///
/// ```
/// assert!(unisono_schedule::algorithms().iter().any(|a| a.qualified_name() == "all_reduce/ring"));
/// ```
pub fn algorithms() -> &'static [Algorithm] {
    ALGORITHMS
}

/// The algorithm of that name for a collective.
pub fn find(collective: Collective, name: &str) -> Option<&'static Algorithm> {
    ALGORITHMS.iter().find(|algorithm| algorithm.collective == collective && algorithm.name == name)
}

/// The algorithm of that qualified name, as in `all_reduce/ring`.
pub fn find_by_name(qualified_name: &str) -> Option<&'static Algorithm> {
    let (collective, name) = qualified_name.split_once('/')?;
    find(collective.parse().ok()?, name)
}
