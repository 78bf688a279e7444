//! The user's reduce function. It never gets aliasing slices, and its panic never unwinds into the engine.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use unisono_communicator::UserFunction;

use super::Panicked;

/// The size of a chunk on the stack.
const CHUNK_BYTES: usize = 4096;

/// A copy of a part of the destination, aligned for every element type, so that the function need not copy again.
#[repr(align(64))]
struct Chunk([u8; CHUNK_BYTES]);

/// `destination = function(left, right)`: `operand` and `incoming`, in the given order. Without `operand`, the
/// destination is the operand.
pub(super) fn reduce(
    function: &UserFunction,
    element_bytes: usize,
    destination: &mut [u8],
    operand: Option<&[u8]>,
    incoming: &[u8],
    operand_is_left: bool,
) -> Result<(), Panicked> {
    let call = |operand: &[u8], incoming: &[u8], out: &mut [u8]| {
        if operand_is_left { function(operand, incoming, out) } else { function(incoming, operand, out) }
    };
    // After a panic the function's state is its owner's concern. The engine fails the call.
    catch_unwind(AssertUnwindSafe(|| match operand {
        Some(operand) => call(operand, incoming, destination),
        None if element_bytes > CHUNK_BYTES => {
            // Long elements go one at a time, in memory with the largest alignment of Rust's own types.
            let mut chunk = vec![0u128; element_bytes.div_ceil(size_of::<u128>())];
            let chunk = &mut bytemuck::cast_slice_mut(&mut chunk)[..element_bytes];
            in_place(chunk, destination, incoming, call);
        }
        None => {
            let mut chunk = Chunk([0; CHUNK_BYTES]);
            let whole = CHUNK_BYTES / element_bytes * element_bytes;
            in_place(&mut chunk.0[..whole], destination, incoming, call);
        }
    }))
    .map_err(|payload| Panicked { text: text(&*payload) })
}

/// `destination = call(destination, incoming)`, in parts of at most the length of `chunk`, which holds a copy of each.
fn in_place(
    chunk: &mut [u8],
    destination: &mut [u8],
    incoming: &[u8],
    call: impl Fn(&[u8], &[u8], &mut [u8]),
) {
    for (out, incoming) in destination.chunks_mut(chunk.len()).zip(incoming.chunks(chunk.len())) {
        let operand = &mut chunk[..out.len()];
        operand.copy_from_slice(out);
        call(operand, incoming, out);
    }
}

fn text(payload: &(dyn Any + Send)) -> String {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "a panic without a text".to_owned(),
    }
}
