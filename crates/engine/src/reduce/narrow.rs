//! Conversions of the 16- and 8-bit floats, which compile to vector code. Their arithmetic is done in f32.

use bytemuck::{Pod, Zeroable};
use unisono_communicator::{f8e4m3, f8e5m2, f16};

use super::element::{Operator, Scale};

/// Two bf16 in one 32-bit lane. Each half becomes an f32 in its lane, so that no instruction moves elements between
/// lanes.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
pub(super) struct PairOfBf16(u32);

const UPPER: u32 = 0xffff_0000;

impl PairOfBf16 {
    #[inline(always)]
    fn widen(self) -> [f32; 2] {
        [f32::from_bits(self.0 << 16), f32::from_bits(self.0 & UPPER)]
    }

    #[inline(always)]
    fn narrow([lower, upper]: [f32; 2]) -> PairOfBf16 {
        PairOfBf16(rounded_to_upper(lower) >> 16 | (rounded_to_upper(upper) & UPPER))
    }
}

/// Bits whose upper half is `wide` rounded to bf16, to nearest, ties to even: a carry out of the lower half rounds up,
/// possibly to infinity. No NaN becomes a number, because every NaN here has a lower half of 0: it comes from a bf16
/// operand, or is the standard NaN. (A test for NaN would cost a quarter of the speed.)
#[inline(always)]
fn rounded_to_upper(wide: f32) -> u32 {
    let bits = wide.to_bits();
    bits.wrapping_add(0x7fff + (bits >> 16 & 1))
}

impl<O: Operator<f32>> Operator<PairOfBf16> for O {
    #[inline(always)]
    fn combine(left: PairOfBf16, right: PairOfBf16, ranks: u32) -> PairOfBf16 {
        let ([left_0, left_1], [right_0, right_1]) = (left.widen(), right.widen());
        PairOfBf16::narrow([O::combine(left_0, right_0, ranks), O::combine(left_1, right_1, ranks)])
    }
}

impl Scale for PairOfBf16 {
    #[inline(always)]
    fn scale(self, factor: f64) -> PairOfBf16 {
        // Of all NaN factors, only the standard NaN is sure to have a lower half of 0.
        let factor = if factor.is_nan() { f64::NAN } else { factor };
        PairOfBf16::narrow(self.widen().map(|float| float.scale(factor)))
    }
}

/// Four 8-bit floats in one 32-bit lane. Shifts turn each into an f32, so that no instruction moves elements between
/// lanes. (A sum of f8e4m3 one by one: 1.6 instead of 2.2 GB/s with AVX-512, 0.8 instead of 1.1 to 1.4 with AVX2.)
macro_rules! four_of {
    ($($four:ident, $float:ident;)*) => {
        $(#[derive(Clone, Copy, Pod, Zeroable)]
        #[repr(transparent)]
        pub(super) struct $four(u32);

        impl $four {
            #[inline(always)]
            fn widen(self) -> [f32; 4] {
                [0, 8, 16, 24].map(|shift| $float::from_bits((self.0 >> shift) as u8).to_f32())
            }

            #[inline(always)]
            fn narrow(wide: [f32; 4]) -> $four {
                let [a, b, c, d] = wide.map(|float| u32::from($float::from_f32(float).to_bits()));
                $four(a | b << 8 | c << 16 | d << 24)
            }
        }

        impl<O: Operator<f32>> Operator<$four> for O {
            #[inline(always)]
            fn combine(left: $four, right: $four, ranks: u32) -> $four {
                let ([a, b, c, d], [e, f, g, h]) = (left.widen(), right.widen());
                let combine = |left, right| O::combine(left, right, ranks);
                $four::narrow([combine(a, e), combine(b, f), combine(c, g), combine(d, h)])
            }
        }

        impl Scale for $four {
            #[inline(always)]
            fn scale(self, factor: f64) -> $four {
                $four::narrow(self.widen().map(|float| float.scale(factor)))
            }
        })*
    };
}

four_of! {
    FourOfF8E4M3, f8e4m3;
    FourOfF8E5M2, f8e5m2;
}

/// The conversion for machines without an instruction for it. Unlike `half`'s, it has no branches, so it vectorises,
/// and no arithmetic on subnormals, so the thread's flush-to-zero mode does not matter.
#[inline(always)]
pub(super) fn f16_to_f32(narrow: f16) -> f32 {
    let bits = u32::from(narrow.to_bits());
    let magnitude = (bits & 0x7fff) << 13;
    // A subnormal's bits after the exponent of 2^-14 give a value that is 2^-14 too large.
    let subnormal = (f32::from_bits(magnitude + (113 << 23)) - f32::from_bits(113 << 23)).to_bits();
    let normal = magnitude + (112 << 23);
    let finite = if magnitude < 1 << 23 { subnormal } else { normal };
    let wide = if magnitude < 31 << 23 { finite } else { magnitude | 0x7f80_0000 };
    f32::from_bits(wide | (bits & 0x8000) << 16)
}

/// To nearest, ties to even; the counterpart of [`f16_to_f32`].
#[inline(always)]
pub(super) fn f32_to_f16(wide: f32) -> f16 {
    const OVERFLOWS: u32 = 143 << 23;
    const NORMAL: u32 = 113 << 23;
    // From 0.5 on, f32 has the spacing of f16's subnormals, so adding 0.5 rounds to a subnormal of f16.
    const ONE_HALF: u32 = 126 << 23;
    let magnitude = wide.to_bits() & 0x7fff_ffff;
    let sign = (wide.to_bits() >> 16) & 0x8000;
    let not_finite = if wide.is_nan() { 0x7e00 | (magnitude >> 13 & 0x3ff) } else { 0x7c00 };
    let subnormal = (f32::from_bits(magnitude) + f32::from_bits(ONE_HALF)).to_bits().wrapping_sub(ONE_HALF);
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + (magnitude >> 13 & 1)) >> 13;
    let finite = if magnitude < NORMAL { subnormal } else { normal };
    let narrow = if magnitude >= OVERFLOWS { not_finite } else { finite };
    f16::from_bits((narrow | sign) as u16)
}
