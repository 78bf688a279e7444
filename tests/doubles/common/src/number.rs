//! Arithmetic of the types of elements, one rounding to nearest even for each operation.

use bytemuck::Pod;
use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

/// An element.
pub(crate) trait Number: Pod {
    const BYTES: usize = size_of::<Self>();

    fn read(bytes: &[u8]) -> Self {
        bytemuck::pod_read_unaligned(&bytes[..Self::BYTES])
    }

    fn write(self, bytes: &mut [u8]) {
        bytes[..Self::BYTES].copy_from_slice(bytemuck::bytes_of(&self));
    }

    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    /// With a NaN, NaN.
    fn maximum(self, other: Self) -> Self;
    /// With a NaN, NaN.
    fn minimum(self, other: Self) -> Self;
    /// One over `count`, for types whose average is the sum of their shares; the others divide the sum.
    fn share(count: usize) -> Option<Self>;
    fn divide(self, count: usize) -> Self;
    fn to_f64(self) -> f64;
    /// The nearest; integers go towards zero, and stop at their ends.
    fn from_f64(value: f64) -> Self;
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Number for $type {
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn multiply(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            fn maximum(self, other: Self) -> Self {
                self.max(other)
            }

            fn minimum(self, other: Self) -> Self {
                self.min(other)
            }

            fn share(_: usize) -> Option<Self> {
                None
            }

            fn divide(self, count: usize) -> Self {
                // Ranks are fewer than 128.
                self / count as $type
            }

            fn to_f64(self) -> f64 {
                self as f64
            }

            fn from_f64(value: f64) -> Self {
                value as $type
            }
        }
    )*};
}

integers!(i8, u8, i16, u16, i32, u32, i64, u64);

/// Types whose operations are done in `$wide`, which has more than twice their digits, so that they round once.
macro_rules! floats {
    ($($type:ty, $wide:ty, $widen:expr, $narrow:expr, $round:expr;)*) => {$(
        impl Number for $type {
            fn add(self, other: Self) -> Self {
                $narrow($widen(self) + $widen(other))
            }

            fn multiply(self, other: Self) -> Self {
                $narrow($widen(self) * $widen(other))
            }

            fn maximum(self, other: Self) -> Self {
                let (left, right) = ($widen(self), $widen(other));
                if left.is_nan() || left > right { self } else { other }
            }

            fn minimum(self, other: Self) -> Self {
                let (left, right) = ($widen(self), $widen(other));
                if left.is_nan() || left < right { self } else { other }
            }

            fn share(count: usize) -> Option<Self> {
                Some($narrow(1.0 / count as $wide))
            }

            fn divide(self, count: usize) -> Self {
                $narrow($widen(self) / count as $wide)
            }

            fn to_f64(self) -> f64 {
                f64::from($widen(self))
            }

            fn from_f64(value: f64) -> Self {
                $round(value)
            }
        }
    )*};
}

floats! {
    f32, f32, |value: f32| value, |value: f32| value, |value: f64| value as f32;
    f64, f64, |value: f64| value, |value: f64| value, |value: f64| value;
    f16, f32, f16::to_f32, f16::from_f32, f16::from_f64;
    bf16, f32, bf16::to_f32, bf16::from_f32, bf16::from_f64;
    // As in NVIDIA's `cuda_fp8.h`: a number that is too large becomes the largest finite one.
    F8E4M3, f32, f32::from, F8E4M3::from_f32, F8E4M3::from_f64;
    F8E5M2, f32, f32::from, F8E5M2::from_f32, F8E5M2::from_f64;
}
