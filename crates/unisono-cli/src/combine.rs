//! Reductions of this program's own results over all ranks.

use unisono::{CallOptions, Collectives, Communicator, Element, ReduceOp, Result};

/// Reduces `values` over all ranks of any backend. Collective. A vendor's library may lack the type, and is itself
/// measured, so the communicator beneath it is taken where there is one.
///
/// # Errors
/// The errors of an all-reduce.
pub(crate) fn combine<T: Element>(comm: &dyn Communicator, values: &mut [T], op: ReduceOp) -> Result<()> {
    let needed = CallOptions::new().needed();
    match comm.companion() {
        Some(beneath) => beneath.with(needed).all_reduce(values, op),
        None => comm.with(needed).all_reduce(values, op),
    }
}
