//! The algorithms of this crate, one line each.

use std::sync::{Arc, LazyLock};

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

/// Every algorithm, sorted by collective. Of algorithms that cost the same, the first is taken, so simple ones come
/// first.
fn all() -> Vec<Algorithm> {
    vec![
        recursive_doubling::all_reduce(),
        halving_doubling::all_reduce(),
        ring::all_reduce(),
        direct::all_reduce(),
        circulant::all_reduce(),
        leaders::all_reduce(),
        double_tree::all_reduce(),
        up_and_down::all_reduce::<2>("binomial"),
        up_and_down::all_reduce::<4>("k_nomial_4"),
        up_and_down::all_reduce::<8>("k_nomial_8"),
        halving_doubling::reduce_scatter(),
        ring::reduce_scatter(),
        direct::reduce_scatter(),
        circulant::reduce_scatter(),
        up_and_down::reduce_scatter::<2>("binomial"),
        up_and_down::reduce_scatter::<4>("k_nomial_4"),
        up_and_down::reduce_scatter::<8>("k_nomial_8"),
        halving_doubling::all_gather(),
        ring::all_gather(),
        direct::all_gather(),
        circulant::all_gather(),
        up_and_down::all_gather::<2>("binomial"),
        up_and_down::all_gather::<4>("k_nomial_4"),
        up_and_down::all_gather::<8>("k_nomial_8"),
        direct::all_to_all(),
        pairwise::all_to_all(),
        bruck::all_to_all(),
        k_nomial::broadcast::<2>("binomial"),
        k_nomial::broadcast::<4>("k_nomial_4"),
        k_nomial::broadcast::<8>("k_nomial_8"),
        double_tree::broadcast(),
        scatter_all_gather::broadcast(),
        chain::broadcast(),
        k_nomial::reduce::<2>("binomial"),
        k_nomial::reduce::<4>("k_nomial_4"),
        k_nomial::reduce::<8>("k_nomial_8"),
        double_tree::reduce(),
        scatter_all_gather::reduce(),
        canonical::reduce(),
        k_nomial::gather::<2>("binomial"),
        k_nomial::gather::<4>("k_nomial_4"),
        k_nomial::gather::<8>("k_nomial_8"),
        k_nomial::scatter::<2>("binomial"),
        k_nomial::scatter::<4>("k_nomial_4"),
        k_nomial::scatter::<8>("k_nomial_8"),
        dissemination::barrier(),
        up_and_down::barrier::<2>("binomial"),
        up_and_down::barrier::<4>("k_nomial_4"),
        up_and_down::barrier::<8>("k_nomial_8"),
        recursive_doubling::scan(),
        chain::scan(),
        recursive_doubling::exscan(),
        chain::exscan(),
    ]
}

/// The name of the only algorithm that takes a number: the number of leaders.
pub(crate) use leaders::NAME as LEADERS;

static BUILT_IN: LazyLock<Vec<Arc<Algorithm>>> = LazyLock::new(|| all().into_iter().map(Arc::new).collect());

/// Every algorithm of this crate. A [`crate::Registry`] holds these and the user's.
///
/// ```
/// assert!(unisono_schedule::algorithms().iter().any(|a| a.qualified_name() == "all_reduce/ring"));
/// ```
pub fn algorithms() -> &'static [Arc<Algorithm>] {
    &BUILT_IN
}

/// This crate's algorithm of this name for a collective.
pub fn find(collective: Collective, name: &str) -> Option<&'static Arc<Algorithm>> {
    algorithms().iter().find(|algorithm| algorithm.collective == collective && algorithm.name == name)
}

/// This crate's algorithm of this qualified name, such as `all_reduce/ring`.
pub fn find_by_name(qualified_name: &str) -> Option<&'static Arc<Algorithm>> {
    let (collective, name) = qualified_name.split_once('/')?;
    find(collective.parse().ok()?, name)
}
