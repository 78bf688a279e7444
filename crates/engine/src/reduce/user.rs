//! The caller's own reduce function: never given aliasing slices, never allowed to unwind into the engine.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use unisono_communicator::UserFunction;

use super::Panicked;

/// Whole elements of every dtype, and little enough stack.
const CHUNK_BYTES: usize = 4096;

/// A copy of a part of the destination, aligned for every element type so that the function need not copy again.
#[repr(align(64))]
struct Chunk([u8; CHUNK_BYTES]);

/// `destination = function(left, right)`, where left and right are `operand` and `incoming` in the order said;
/// `operand` is the destination if there is none.
pub(super) fn reduce(
    function: &UserFunction,
    destination: &mut [u8],
    operand: Option<&[u8]>,
    incoming: &[u8],
    operand_is_left: bool,
) -> Result<(), Panicked> {
    let call = |operand: &[u8], incoming: &[u8], out: &mut [u8]| {
        if operand_is_left { function(operand, incoming, out) } else { function(incoming, operand, out) }
    };
    // Whatever the function was doing to its own state is the caller's affair; the engine fails the call.
    catch_unwind(AssertUnwindSafe(|| match operand {
        Some(operand) => call(operand, incoming, destination),
        None => {
            let mut chunk = Chunk([0; CHUNK_BYTES]);
            for (out, incoming) in destination.chunks_mut(CHUNK_BYTES).zip(incoming.chunks(CHUNK_BYTES)) {
                let operand = &mut chunk.0[..out.len()];
                operand.copy_from_slice(out);
                call(operand, incoming, out);
            }
        }
    }))
    .map_err(|payload| Panicked { text: text(&*payload) })
}

fn text(payload: &(dyn Any + Send)) -> String {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "a panic without a text".to_owned(),
    }
}
