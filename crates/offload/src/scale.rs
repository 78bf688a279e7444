//! The arithmetic around a library's sums: the multiplication by a factor before, the division by the number of ranks
//! after.

use unisono_communicator::{DType, FloatFormat, Kind};

use crate::device::Scale;

/// Scales every element of `bytes`. Floats narrower than f32 are computed in f32; integers are divided towards zero.
pub(crate) fn scale(bytes: &mut [u8], dtype: DType, by: Scale) {
    match (dtype, dtype.kind()) {
        (DType::F32, _) => each(bytes, |value: f32| scaled_f32(value, by)),
        (_, Kind::Float(format)) => float(bytes, format, by),
        (_, Kind::Signed) => integer(bytes, dtype, by, true),
        (_, Kind::Unsigned) => integer(bytes, dtype, by, false),
        // No library reduces these types.
        (_, Kind::Complex(_) | Kind::Bool | Kind::Opaque) => {}
    }
}

fn scaled_f32(value: f32, by: Scale) -> f32 {
    match by {
        Scale::Multiply(factor) => value * factor as f32,
        Scale::Divide(ranks) => value / ranks as f32,
    }
}

/// The memory need not be aligned.
fn each<T: bytemuck::Pod>(bytes: &mut [u8], change: impl Fn(T) -> T) {
    for element in bytes.chunks_exact_mut(size_of::<T>()) {
        let value = change(bytemuck::pod_read_unaligned(element));
        element.copy_from_slice(bytemuck::bytes_of(&value));
    }
}

fn float(bytes: &mut [u8], format: FloatFormat, by: Scale) {
    for element in bytes.chunks_exact_mut(format.bytes) {
        let value = format.read(element);
        let value = match by {
            Scale::Multiply(factor) if format.bytes == 8 => value * factor,
            Scale::Divide(ranks) if format.bytes == 8 => value / f64::from(ranks),
            // The f64 is exact, because the value came from an f32.
            _ => f64::from(scaled_f32(value as f32, by)),
        };
        format.write(value, element);
    }
}

fn integer(bytes: &mut [u8], dtype: DType, by: Scale, is_signed: bool) {
    let Scale::Divide(ranks) = by else { return };
    for element in bytes.chunks_exact_mut(dtype.bytes()) {
        let mut wide = [0; 16];
        wide[..element.len()].copy_from_slice(element);
        let is_negative = is_signed && element.last().is_some_and(|last| last & 0x80 != 0);
        wide[element.len()..].fill(if is_negative { 0xff } else { 0 });
        let quotient = i128::from_le_bytes(wide) / i128::from(ranks);
        element.copy_from_slice(&quotient.to_le_bytes()[..dtype.bytes()]);
    }
}

#[cfg(test)]
mod tests {
    use unisono_communicator::{bf16, f16};

    use super::*;

    fn scaled<T: unisono_communicator::Element>(values: &[T], by: Scale) -> Vec<T> {
        let mut values = values.to_vec();
        scale(bytemuck::cast_slice_mut(&mut values), T::DTYPE, by);
        values
    }

    #[test]
    fn floats_are_rounded_once() {
        assert_eq!(scaled(&[1.0f32, -7.0], Scale::Divide(3)), [1.0 / 3.0, -7.0 / 3.0]);
        assert_eq!(scaled(&[1.0f64, -7.0], Scale::Divide(3)), [1.0 / 3.0, -7.0 / 3.0]);
        assert_eq!(scaled(&[0.1f64], Scale::Multiply(0.3)), [0.1 * 0.3]);
        assert_eq!(scaled(&[0.1f32], Scale::Multiply(0.3)), [0.1f32 * 0.3f32]);
        let narrow = [f16::from_f32(5.0)];
        assert_eq!(scaled(&narrow, Scale::Divide(3)), [f16::from_f32(5.0 / 3.0)]);
        assert_eq!(scaled(&[bf16::from_f32(3.0)], Scale::Multiply(0.7)), [bf16::from_f32(3.0 * 0.7f32)]);
    }

    #[test]
    fn integers_are_truncated() {
        assert_eq!(scaled(&[7i8, -7, -128, 127], Scale::Divide(3)), [2, -2, -42, 42]);
        assert_eq!(scaled(&[u64::MAX], Scale::Divide(2)), [u64::MAX / 2]);
        assert_eq!(scaled(&[i64::MIN, -5], Scale::Divide(4)), [i64::MIN / 4, -1]);
        assert_eq!(scaled(&[255u8], Scale::Divide(4)), [63]);
    }
}
