//! What the ranks of this program tell each other about their own work.

use unisono::{Collectives, Communicator, Element, ReduceOp, Result};

/// Reduces `values` over all ranks of any backend. Collective. A vendor's library may lack the type, and is what is
/// measured, so the communicator beneath it is taken where there is one.
///
/// # Errors
/// Those of an all-reduce.
pub(crate) fn combine<T: Element>(comm: &dyn Communicator, values: &mut [T], op: ReduceOp) -> Result<()> {
    match comm.companion() {
        Some(beneath) => beneath.all_reduce(values, op),
        None => comm.all_reduce(values, op),
    }
}
