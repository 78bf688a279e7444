//! Plain arithmetic of a library's double: in the order of the ranks, every step rounded to nearest, ties to even.

use std::sync::Arc;

use unisono_communicator::{FloatFormat, Kind};
use unisono_offload::{Elements, NanInMinMax, NativeOp};

/// The reduction of all ranks' `inputs`, of which that of `own` is the caller's. Inputs of several lengths, which are a
/// mistake of the callers', are mixed up: what is missing changes nothing.
///
/// # Panics
/// For elements that no library reduces.
pub(super) fn reduce(inputs: &[Arc<[u8]>], own: usize, elements: Elements, nan: NanInMinMax) -> Vec<u8> {
    let Elements { dtype, op, .. } = elements;
    let mut result = inputs[0].to_vec();
    result.resize(inputs[own].len(), 0);
    match dtype.kind() {
        Kind::Float(format) => floats(&mut result, inputs, own, (format, op), nan),
        Kind::Signed => integers(&mut result, inputs, (dtype.bytes(), op), true),
        Kind::Unsigned => integers(&mut result, inputs, (dtype.bytes(), op), false),
        Kind::Complex(_) | Kind::Bool | Kind::Opaque => panic!("no library reduces {dtype}"),
    }
    result
}

fn floats(
    result: &mut [u8],
    inputs: &[Arc<[u8]>],
    own: usize,
    (format, op): (FloatFormat, NativeOp),
    nan: NanInMinMax,
) {
    let width = format.bytes;
    for input in &inputs[1..] {
        for (left, right) in result.chunks_exact_mut(width).zip(input.chunks_exact(width)) {
            let (a, b) = (format.read(left), format.read(right));
            let combined = match op {
                NativeOp::Sum | NativeOp::Avg => a + b,
                NativeOp::Prod => a * b,
                NativeOp::Min => extreme(a, b, nan, b < a || (b == a && b.is_sign_negative())),
                NativeOp::Max => extreme(a, b, nan, b > a || (b == a && a.is_sign_negative())),
                NativeOp::PreMulSum(_) => panic!("the double has no {op}"),
            };
            format.write(combined, left);
        }
    }
    if op == NativeOp::Avg {
        for element in result.chunks_exact_mut(width) {
            format.write(format.read(element) / inputs.len() as f64, element);
        }
    }
    // Ranks get different results: each has its own operand where that is a NaN.
    if matches!(op, NativeOp::Min | NativeOp::Max) && nan == NanInMinMax::AnyOperand {
        let places = result.chunks_exact_mut(width).zip(inputs[own].chunks_exact(width));
        places
            .filter(|(_, own)| format.read(own).is_nan())
            .for_each(|(place, own)| place.copy_from_slice(own));
    }
}

/// The lesser or the greater one; `takes_right` says which.
fn extreme(left: f64, right: f64, nan: NanInMinMax, takes_right: bool) -> f64 {
    let has_nan = left.is_nan() || right.is_nan();
    match nan {
        NanInMinMax::Propagates if has_nan => f64::NAN,
        _ if left.is_nan() || takes_right => right,
        _ => left,
    }
}

fn integers(result: &mut [u8], inputs: &[Arc<[u8]>], (width, op): (usize, NativeOp), is_signed: bool) {
    for input in &inputs[1..] {
        for (left, right) in result.chunks_exact_mut(width).zip(input.chunks_exact(width)) {
            let (a, b) = (widened(left, is_signed), widened(right, is_signed));
            let combined = match op {
                NativeOp::Sum | NativeOp::Avg => a.wrapping_add(b),
                NativeOp::Prod => a.wrapping_mul(b),
                NativeOp::Min => a.min(b),
                NativeOp::Max => a.max(b),
                NativeOp::PreMulSum(_) => panic!("the double has no {op}"),
            };
            left.copy_from_slice(&combined.to_le_bytes()[..width]);
        }
    }
    if op == NativeOp::Avg {
        for element in result.chunks_exact_mut(width) {
            let mean = widened(element, is_signed) / inputs.len() as i128;
            element.copy_from_slice(&mean.to_le_bytes()[..width]);
        }
    }
}

fn widened(bytes: &[u8], is_signed: bool) -> i128 {
    let is_negative = is_signed && bytes.last().is_some_and(|last| last & 0x80 != 0);
    let mut wide = [if is_negative { 0xff } else { 0 }; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(wide)
}
