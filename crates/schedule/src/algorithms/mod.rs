//! The registry: one line per algorithm.

use crate::{Algorithm, Collective};

mod recursive_doubling;
mod ring;

/// Every algorithm, those of one collective next to each other.
static ALGORITHMS: &[Algorithm] =
    &[ring::ALL_REDUCE, recursive_doubling::ALL_REDUCE, ring::REDUCE_SCATTER, ring::ALL_GATHER];

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
