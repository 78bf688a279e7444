//! The registry: one line per algorithm.

use crate::{Algorithm, Collective};

mod bruck;
mod canonical;
mod chain;
mod circulant;
mod direct;
mod dissemination;
mod double_tree;
mod halving_doubling;
mod k_nomial;
mod leaders;
mod pairwise;
mod recursive_doubling;
mod ring;
mod scatter_all_gather;
mod up_and_down;

/// Every algorithm, sorted by collective.
static ALGORITHMS: &[Algorithm] = &[
    recursive_doubling::ALL_REDUCE,
    halving_doubling::ALL_REDUCE,
    ring::ALL_REDUCE,
    direct::ALL_REDUCE,
    circulant::ALL_REDUCE,
    leaders::ALL_REDUCE,
    double_tree::ALL_REDUCE,
    up_and_down::all_reduce::<2>("binomial"),
    up_and_down::all_reduce::<4>("k_nomial_4"),
    up_and_down::all_reduce::<8>("k_nomial_8"),
    halving_doubling::REDUCE_SCATTER,
    ring::REDUCE_SCATTER,
    direct::REDUCE_SCATTER,
    circulant::REDUCE_SCATTER,
    up_and_down::reduce_scatter::<2>("binomial"),
    up_and_down::reduce_scatter::<4>("k_nomial_4"),
    up_and_down::reduce_scatter::<8>("k_nomial_8"),
    halving_doubling::ALL_GATHER,
    ring::ALL_GATHER,
    direct::ALL_GATHER,
    circulant::ALL_GATHER,
    up_and_down::all_gather::<2>("binomial"),
    up_and_down::all_gather::<4>("k_nomial_4"),
    up_and_down::all_gather::<8>("k_nomial_8"),
    direct::ALL_TO_ALL,
    pairwise::ALL_TO_ALL,
    bruck::ALL_TO_ALL,
    double_tree::BROADCAST,
    scatter_all_gather::BROADCAST,
    k_nomial::broadcast::<2>("binomial"),
    k_nomial::broadcast::<4>("k_nomial_4"),
    k_nomial::broadcast::<8>("k_nomial_8"),
    chain::BROADCAST,
    double_tree::REDUCE,
    scatter_all_gather::REDUCE,
    k_nomial::reduce::<2>("binomial"),
    k_nomial::reduce::<4>("k_nomial_4"),
    k_nomial::reduce::<8>("k_nomial_8"),
    canonical::REDUCE,
    k_nomial::gather::<2>("binomial"),
    k_nomial::gather::<4>("k_nomial_4"),
    k_nomial::gather::<8>("k_nomial_8"),
    k_nomial::scatter::<2>("binomial"),
    k_nomial::scatter::<4>("k_nomial_4"),
    k_nomial::scatter::<8>("k_nomial_8"),
    dissemination::BARRIER,
    up_and_down::barrier::<2>("binomial"),
    up_and_down::barrier::<4>("k_nomial_4"),
    up_and_down::barrier::<8>("k_nomial_8"),
];

/// The name of the only algorithm that takes a number: the number of leaders.
pub(crate) const LEADERS: &str = leaders::ALL_REDUCE.name;

/// Every registered algorithm.
///
/// ```
/// assert!(unisono_schedule::algorithms().iter().any(|a| a.qualified_name() == "all_reduce/ring"));
/// ```
pub fn algorithms() -> &'static [Algorithm] {
    ALGORITHMS
}

/// The algorithm of this name for a collective.
pub fn find(collective: Collective, name: &str) -> Option<&'static Algorithm> {
    ALGORITHMS.iter().find(|algorithm| algorithm.collective == collective && algorithm.name == name)
}

/// The algorithm of this qualified name, such as `all_reduce/ring`.
pub fn find_by_name(qualified_name: &str) -> Option<&'static Algorithm> {
    let (collective, name) = qualified_name.split_once('/')?;
    find(collective.parse().ok()?, name)
}
