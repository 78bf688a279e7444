//! What a reduction must give, one element at a time and written in other terms than the kernels: integers in i128,
//! narrow floats in f64 (whose 53 bits make the detour through it exact for one operation) and `half`'s conversions.

use unisono_communicator::{DType, ReduceOp, bf16, f16};

/// `bytes`, an element of `dtype`, as the number it stands for.
fn integer(dtype: DType, bytes: &[u8]) -> i128 {
    let bits = bytes.len() as u32 * 8;
    let mut padded = [0; 16];
    padded[..bytes.len()].copy_from_slice(bytes);
    let unsigned = i128::from_le_bytes(padded);
    let signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
    if signed && unsigned >> (bits - 1) != 0 { unsigned - (1 << bits) } else { unsigned }
}

pub(super) fn float(dtype: DType, bytes: &[u8]) -> f64 {
    match dtype {
        DType::F64 => f64::from_le_bytes(bytes.try_into().unwrap()),
        DType::F32 => f32::from_le_bytes(bytes.try_into().unwrap()).into(),
        DType::F16 => f16::from_le_bytes(bytes.try_into().unwrap()).into(),
        DType::BF16 => bf16::from_le_bytes(bytes.try_into().unwrap()).into(),
        _ => panic!("{dtype} is not a float"),
    }
}

/// `value`, the exact or once rounded result of f32 (f64) arithmetic, rounded to `dtype`.
pub(super) fn float_bytes(dtype: DType, value: f64) -> Vec<u8> {
    match dtype {
        DType::F64 => value.to_le_bytes().to_vec(),
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        DType::F16 => f16::from_f32(value as f32).to_le_bytes().to_vec(),
        DType::BF16 => bf16::from_f32(value as f32).to_le_bytes().to_vec(),
        _ => panic!("{dtype} is not a float"),
    }
}

fn reduce_integers(op: ReduceOp, left: i128, right: i128, wrap: impl Fn(i128) -> i128, ranks: i128) -> i128 {
    match op {
        ReduceOp::Sum => wrap(left + right),
        ReduceOp::Prod => wrap(left.wrapping_mul(right)),
        ReduceOp::Min => std::cmp::min(left, right),
        ReduceOp::Max => std::cmp::max(left, right),
        ReduceOp::Avg => wrap(left + right) / ranks,
        ReduceOp::BitAnd => left & right,
        ReduceOp::BitOr => left | right,
        ReduceOp::BitXor => left ^ right,
        _ => panic!("{op} is not built in"),
    }
}

fn reduce_floats(dtype: DType, op: ReduceOp, left: f64, right: f64, ranks: u32) -> f64 {
    let single = |value: f64| if dtype == DType::F64 { value } else { f64::from(value as f32) };
    match op {
        ReduceOp::Sum => left + right,
        ReduceOp::Prod => left * right,
        ReduceOp::Avg => single(left + right) / single(f64::from(ranks)),
        ReduceOp::Min | ReduceOp::Max if left.is_nan() || right.is_nan() => f64::NAN,
        ReduceOp::Min => *[left, right].iter().min_by(|a, b| a.total_cmp(b)).unwrap(),
        ReduceOp::Max => *[left, right].iter().max_by(|a, b| a.total_cmp(b)).unwrap(),
        _ => panic!("{op} is not for floats"),
    }
}

/// `op(left, right)` of one element each.
pub(super) fn reduce(
    dtype: DType,
    op: ReduceOp,
    left: &[u8],
    right: &[u8],
    completes: bool,
    ranks: u32,
) -> Vec<u8> {
    let op = if op == ReduceOp::Avg && !completes { ReduceOp::Sum } else { op };
    if dtype.is_float() {
        let (left, right) = (float(dtype, left), float(dtype, right));
        return float_bytes(dtype, reduce_floats(dtype, op, left, right, ranks));
    }
    let operand = |bytes| match (dtype, integer(dtype, bytes)) {
        (DType::Bool, number) => i128::from(number != 0),
        (_, number) => number,
    };
    let wrap = |value: i128| integer(dtype, &value.to_le_bytes()[..dtype.bytes()]);
    let result = reduce_integers(op, operand(left), operand(right), wrap, ranks.into());
    result.to_le_bytes()[..dtype.bytes()].to_vec()
}

/// Asserts that the elements of two buffers are equal, one NaN being as good as another.
pub(super) fn assert_equal(dtype: DType, found: &[u8], expected: &[u8], context: &dyn Fn(usize) -> String) {
    assert_eq!(found.len(), expected.len(), "{}", context(0));
    if found == expected {
        return;
    }
    let size = dtype.bytes();
    for (index, (found, expected)) in found.chunks(size).zip(expected.chunks(size)).enumerate() {
        let both_nan = || dtype.is_float() && float(dtype, found).is_nan() && float(dtype, expected).is_nan();
        assert!(
            found == expected || both_nan(),
            "{found:02x?} instead of {expected:02x?}, element {index}: {}",
            context(index)
        );
    }
}
