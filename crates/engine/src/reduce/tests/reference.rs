//! The expected result of a reduction, one element at a time, computed differently from the kernels: integers in i128,
//! narrow floats in f64 (whose 53 bits make one operation exact), `half`'s conversions, and for 8-bit floats a search
//! among all values.

use std::sync::LazyLock;

use unisono_communicator::{DType, Kind, ReduceOp, bf16, f16};

/// The type of a complex number's parts, which are reduced separately. Any other type is its own part.
pub(super) fn part(dtype: DType) -> DType {
    match dtype {
        DType::Complex64 => DType::F32,
        DType::Complex128 => DType::F64,
        other => other,
    }
}

/// The values of an 8-bit float by code, without sign, up to the first special code, whose value continues the
/// sequence; and the result of an overflow.
struct Float8 {
    values: Vec<f64>,
    overflow: f64,
}

impl Float8 {
    fn new(stored: u32, bias: i32, special: u32, overflow: f64) -> Float8 {
        let value =
            |code: u32| match (code >> stored, f64::from(code % (1 << stored)) / f64::from(1 << stored)) {
                (0, fraction) => fraction * f64::from(1 - bias).exp2(),
                (exponent, fraction) => (1.0 + fraction) * f64::from(exponent as i32 - bias).exp2(),
            };
        Float8 { values: (0..=special).map(value).collect(), overflow }
    }

    fn of(dtype: DType) -> &'static Float8 {
        static E4M3: LazyLock<Float8> = LazyLock::new(|| Float8::new(3, 7, 0x7f, f64::NAN));
        static E5M2: LazyLock<Float8> = LazyLock::new(|| Float8::new(2, 15, 0x7c, f64::INFINITY));
        match dtype {
            DType::F8E4M3 => &E4M3,
            DType::F8E5M2 => &E5M2,
            _ => panic!("{dtype} is no 8-bit float"),
        }
    }

    fn read(&self, bits: u8) -> f64 {
        let (code, special) = (usize::from(bits & 0x7f), self.values.len() - 1);
        let magnitude = match code {
            _ if code < special => self.values[code],
            _ if code == special => self.overflow,
            _ => f64::NAN,
        };
        if bits > 0x7f { -magnitude } else { magnitude }
    }

    fn write(&self, value: f64) -> u8 {
        let special = self.values.len() - 1;
        let magnitude = value.abs().min(self.values[special]);
        let above = self.values.partition_point(|candidate| *candidate < magnitude).min(special);
        let below = above.saturating_sub(1);
        let (up, down) = ((self.values[above] - magnitude).abs(), (magnitude - self.values[below]).abs());
        let code = if down < up || down == up && below % 2 == 0 { below } else { above };
        let code = if value.is_nan() { 0x7f } else { code as u8 };
        if value.is_sign_negative() { code | 0x80 } else { code }
    }
}

/// The number that `bytes`, an element of `dtype`, stands for.
fn integer(dtype: DType, bytes: &[u8]) -> i128 {
    let bits = bytes.len() as u32 * 8;
    let mut padded = [0; 16];
    padded[..bytes.len()].copy_from_slice(bytes);
    let unsigned = i128::from_le_bytes(padded);
    let signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
    if signed && unsigned >> (bits - 1) != 0 { unsigned - (1 << bits) } else { unsigned }
}

pub(super) fn is_float(dtype: DType) -> bool {
    matches!(dtype.kind(), Kind::Float(_))
}

pub(super) fn float(dtype: DType, bytes: &[u8]) -> f64 {
    match dtype {
        DType::F64 => f64::from_le_bytes(bytes.try_into().unwrap()),
        DType::F32 => f32::from_le_bytes(bytes.try_into().unwrap()).into(),
        DType::F16 => f16::from_le_bytes(bytes.try_into().unwrap()).into(),
        DType::BF16 => bf16::from_le_bytes(bytes.try_into().unwrap()).into(),
        DType::F8E4M3 | DType::F8E5M2 => Float8::of(dtype).read(bytes[0]),
        _ => panic!("{dtype} is not a float"),
    }
}

/// Rounds `value` to `dtype`. `value` is a result of f32 (f64) arithmetic, exact or rounded once.
pub(super) fn float_bytes(dtype: DType, value: f64) -> Vec<u8> {
    match dtype {
        DType::F64 => value.to_le_bytes().to_vec(),
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        DType::F16 => f16::from_f32(value as f32).to_le_bytes().to_vec(),
        DType::BF16 => bf16::from_f32(value as f32).to_le_bytes().to_vec(),
        DType::F8E4M3 | DType::F8E5M2 => vec![Float8::of(dtype).write(f64::from(value as f32))],
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

/// The product of two complex numbers whose parts are of dtype `part`.
fn complex_product(part: DType, left: &[u8], right: &[u8]) -> Vec<u8> {
    let rounded = |value: f64| float(part, &float_bytes(part, value));
    let parts = |bytes: &[u8]| (float(part, &bytes[..part.bytes()]), float(part, &bytes[part.bytes()..]));
    let ((a, b), (c, d)) = (parts(left), parts(right));
    let real = rounded(a * c) - rounded(b * d);
    let imaginary = rounded(a * d) + rounded(b * c);
    [float_bytes(part, real), float_bytes(part, imaginary)].concat()
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
    let part = part(dtype);
    if part != dtype && op == ReduceOp::Prod {
        return complex_product(part, left, right);
    }
    if part != dtype {
        let parts = std::iter::zip(left.chunks(part.bytes()), right.chunks(part.bytes()));
        return parts.flat_map(|(left, right)| reduce(part, op, left, right, completes, ranks)).collect();
    }
    if is_float(dtype) {
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

/// Asserts that the elements of two buffers are equal. All NaNs count as equal.
pub(super) fn assert_equal(dtype: DType, found: &[u8], expected: &[u8], context: &dyn Fn(usize) -> String) {
    assert_eq!(found.len(), expected.len(), "{}", context(0));
    if found == expected {
        return;
    }
    let part = part(dtype);
    let (size, is_nan) = (part.bytes(), |bytes: &[u8]| is_float(part) && float(part, bytes).is_nan());
    for (index, (found, expected)) in found.chunks(size).zip(expected.chunks(size)).enumerate() {
        let index = index * size / dtype.bytes();
        let both_nan = || is_nan(found) && is_nan(expected);
        assert!(
            found == expected || both_nan(),
            "{found:02x?} instead of {expected:02x?}, element {index}: {}",
            context(index)
        );
    }
}
