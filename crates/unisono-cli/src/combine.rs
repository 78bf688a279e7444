//! What the ranks of this program tell each other about their own work.

use unisono::{CallOptions, Collectives, Communicator, Element, ReduceOp, Result};

/// Reduces `values` over all ranks of any backend. Collective. A vendor's library may lack the type, and is what is
/// measured, so the communicator beneath it is taken where there is one.
///
/// # Errors
/// Those of an all-reduce.
pub(crate) fn combine<T: Element>(comm: &dyn Communicator, values: &mut [T], op: ReduceOp) -> Result<()> {
    let needed = CallOptions::new().needed();
    match comm.companion() {
        Some(beneath) => beneath.with(needed).all_reduce(values, op),
        None => comm.with(needed).all_reduce(values, op),
    }
}
