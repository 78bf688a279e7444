//! The loops of all kernels, which are inlined into functions compiled for one instruction set.

use bytemuck::{Pod, Zeroable};

use super::peer_bytes::{Element, PeerBytes};

/// A `T` at any address: buffers need not be aligned.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, packed)]
struct Unaligned<T>(T);

/// `destination = step(operand, incoming)`, a `U` at a time. Without `operand`, the destination is the operand.
///
/// `U` is an element, or an array of elements if an instruction takes several. Elements left over at the end are padded
/// with zeros to a `U`.
#[inline(always)]
pub(super) fn combine<U: Pod>(
    destination: &mut [u8],
    operand: Option<&[u8]>,
    incoming: PeerBytes<'_>,
    step: impl Fn(U, U) -> U,
) {
    let bytes = destination.len();
    let whole = bytes - bytes % size_of::<U>();
    let units: &mut [Unaligned<U>] = bytemuck::cast_slice_mut(&mut destination[..whole]);
    let right: &[Element<U>] = incoming.elements();
    match operand {
        None => {
            for (unit, right) in units.iter_mut().zip(right) {
                unit.0 = step(unit.0, right.get());
            }
        }
        Some(operand) => {
            let left: &[Unaligned<U>] = bytemuck::cast_slice(&operand[..whole]);
            for ((unit, left), right) in units.iter_mut().zip(left).zip(right) {
                unit.0 = step(left.0, right.get());
            }
        }
    }
    if whole < bytes {
        let left = padded(&operand.unwrap_or(destination)[whole..]);
        let result = step(left, incoming.padded_rest());
        destination[whole..].copy_from_slice(&bytemuck::bytes_of(&result)[..bytes - whole]);
    }
}

/// `buffer = step(buffer)`, a `U` at a time.
#[inline(always)]
pub(super) fn map<U: Pod>(buffer: &mut [u8], step: impl Fn(U) -> U) {
    let bytes = buffer.len();
    let whole = bytes - bytes % size_of::<U>();
    let units: &mut [Unaligned<U>] = bytemuck::cast_slice_mut(&mut buffer[..whole]);
    for unit in units {
        unit.0 = step(unit.0);
    }
    if whole < bytes {
        let result = step(padded(&buffer[whole..]));
        buffer[whole..].copy_from_slice(&bytemuck::bytes_of(&result)[..bytes - whole]);
    }
}

#[inline(always)]
fn padded<U: Pod>(bytes: &[u8]) -> U {
    let mut unit = U::zeroed();
    bytemuck::bytes_of_mut(&mut unit)[..bytes.len()].copy_from_slice(bytes);
    unit
}
