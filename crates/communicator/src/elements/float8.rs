//! The two 8-bit floats of the Open Compute Project (OCP 8-bit Floating Point Specification, revision 1.0, 2023).
//!
//! Conversion from f32 rounds to nearest, ties to even. Like PyTorch (`c10/util/Float8_e4m3fn.h`,
//! `c10/util/Float8_e5m2.h`) it does not saturate, so the overflow of a sum is visible. The conversions have no
//! branches, so loops over them become vector code. They do no arithmetic on subnormals, so the thread's flush-to-zero
//! mode does not matter.

use std::fmt;

use bytemuck::{Pod, Zeroable};

/// Position of the exponent in an f32.
const EXPONENT: i32 = 23;
/// Bias of the exponent of an f32.
const BIAS: i32 = 127;
const MAGNITUDE: i32 = 0x7fff_ffff;
const INFINITE: i32 = 0x7f80_0000;

/// Parameters: stored bits of the significand, exponent bias, and the first code after the largest finite number.
macro_rules! float8 {
    ($(#[$doc:meta])* $name:ident, $stored:literal, $bias:literal, $special:literal) => {
        $(#[$doc])*
        #[allow(non_camel_case_types, reason = "named like f32 and f16")]
        #[derive(Clone, Copy, Default, Pod, Zeroable)]
        #[repr(transparent)]
        pub struct $name(u8);

        impl $name {
            /// Significant binary digits, with the leading one, which is not stored.
            pub const MANTISSA_DIGITS: u32 = $stored + 1;
            /// 0.
            pub const ZERO: $name = $name(0);
            /// 1.
            pub const ONE: $name = $name($bias << $stored);
            /// The largest finite number.
            pub const MAX: $name = $name($special - 1);
            /// The smallest positive number, a subnormal.
            pub const MIN_POSITIVE_SUBNORMAL: $name = $name(1);
            /// Not a number.
            pub const NAN: $name = $name(0x7f);

            /// Unused low bits of an f32's significand.
            const SHIFT: i32 = EXPONENT - $stored;
            /// Added to an exponent of this format, it gives the exponent of the f32.
            const REBIAS: i32 = (BIAS - $bias) << EXPONENT;
            /// The smallest normal number, as an f32's bits.
            const NORMAL: i32 = (BIAS - $bias + 1) << EXPONENT;
            /// The first magnitude that is not finite, as an f32's bits.
            const OVERFLOWS: i32 = ($special << Self::SHIFT) + Self::REBIAS;
            /// Added to the exponent of a number, it gives a power of two. Around that power, f32 is as coarse as this
            /// format is around the number.
            const SPACING: i32 = Self::SHIFT << EXPONENT;

            /// The number with these bits.
            pub const fn from_bits(bits: u8) -> $name {
                $name(bits)
            }

            /// The bits.
            pub const fn to_bits(self) -> u8 {
                self.0
            }

            /// The same number as f32.
            #[inline(always)]
            pub const fn to_f32(self) -> f32 {
                let magnitude = (self.0 as i32 & 0x7f) << Self::SHIFT;
                // The value x is the smaller of two candidates. For a normal x, `normal` is x, and `subnormal` is 2 x -
                // NORMAL, which is not less than x. For a subnormal x, `subnormal` is x, because `behind` is NORMAL +
                // x; `normal` is larger.
                let normal = magnitude + Self::REBIAS;
                let behind = f32::from_bits((magnitude + Self::NORMAL) as u32);
                let subnormal = (behind - f32::from_bits(Self::NORMAL as u32)).to_bits() as i32;
                let finite = if subnormal < normal { subnormal } else { normal };
                let special = if magnitude < $special << Self::SHIFT { 0 } else { Self::SPECIAL };
                f32::from_bits((finite | special | (self.0 as i32 & 0x80) << 24) as u32)
            }

            /// The nearest number; of two equally near numbers, the even one.
            #[inline(always)]
            pub const fn from_f32(wide: f32) -> $name {
                let magnitude = wide.to_bits() as i32 & MAGNITUDE;
                let bounded = if magnitude < Self::OVERFLOWS { magnitude } else { Self::OVERFLOWS };
                let exponent = bounded & INFINITE;
                let exponent = if exponent > Self::NORMAL { exponent } else { Self::NORMAL };
                // At `around`, f32 has the spacing of this format, so the addition rounds. The sum's bits minus the
                // bits of `around` count the spacings; in a normal number they include the leading bit.
                let around = exponent + Self::SPACING;
                let sum = f32::from_bits(bounded as u32) + f32::from_bits(around as u32);
                let steps = sum.to_bits() as i32 - around;
                let code = ((exponent - Self::NORMAL) >> Self::SHIFT) + steps;
                let nan = if magnitude > INFINITE { Self::NAN.0 } else { 0 };
                $name(code as u8 | nan | (wide.to_bits() >> 24) as u8 & 0x80)
            }

            /// Whether this is a NaN.
            pub const fn is_nan(self) -> bool {
                self.to_f32().is_nan()
            }
        }

        impl From<$name> for f32 {
            fn from(narrow: $name) -> f32 {
                narrow.to_f32()
            }
        }

        impl From<$name> for f64 {
            fn from(narrow: $name) -> f64 {
                narrow.to_f32().into()
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &$name) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &$name) -> Option<std::cmp::Ordering> {
                self.to_f32().partial_cmp(&other.to_f32())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_f32(), f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.to_f32(), f)
            }
        }
    };
}

float8! {
    /// 4 bits of exponent, 3 of significand: up to 448, down to 2^-9. It has no infinity (the "FN" form) and one NaN of
    /// each sign. Infinities, and values that round to 480 or more, become NaN.
    ///
    /// ```
    /// # use unisono_communicator as unisono;
    /// use unisono::f8e4m3;
    /// assert_eq!(f8e4m3::from_f32(464.0).to_f32(), 448.0);
    /// assert!(f8e4m3::from_f32(465.0).is_nan() && f8e4m3::from_f32(f32::INFINITY).is_nan());
    /// ```
    f8e4m3, 3, 7, 0x7f
}

float8! {
    /// 5 bits of exponent, 2 of significand: the upper half of an f16, up to 57344, down to 2^-16. A value that rounds
    /// to 65536 or more becomes infinity.
    ///
    /// ```
    /// # use unisono_communicator as unisono;
    /// use unisono::f8e5m2;
    /// assert_eq!(f8e5m2::from_f32(61439.0).to_f32(), 57344.0);
    /// assert_eq!(f8e5m2::from_f32(61440.0), f8e5m2::INFINITY);
    /// ```
    f8e5m2, 2, 15, 0x7c
}

impl f8e4m3 {
    /// The bits that are set in the f32 of a special number.
    const SPECIAL: i32 = f32::NAN.to_bits() as i32;
}

impl f8e5m2 {
    /// Infinity.
    pub const INFINITY: f8e5m2 = f8e5m2(0x7c);
    /// The bits that are set in the f32 of a special number. The significand tells infinity from NaN.
    const SPECIAL: i32 = INFINITE;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A format as the specification defines it, independent of the code above.
    struct Format {
        exponent_bits: u32,
        stored: u32,
        bias: i32,
        has_infinity: bool,
        to_f32: fn(u8) -> f32,
        from_f32: fn(f32) -> u8,
    }

    const FORMATS: [Format; 2] = [
        Format {
            exponent_bits: 4,
            stored: 3,
            bias: 7,
            has_infinity: false,
            to_f32: |bits| f8e4m3::from_bits(bits).to_f32(),
            from_f32: |wide| f8e4m3::from_f32(wide).to_bits(),
        },
        Format {
            exponent_bits: 5,
            stored: 2,
            bias: 15,
            has_infinity: true,
            to_f32: |bits| f8e5m2::from_bits(bits).to_f32(),
            from_f32: |wide| f8e5m2::from_f32(wide).to_bits(),
        },
    ];

    impl Format {
        /// The value of a code without its sign, special codes included.
        fn value(&self, code: u8) -> f64 {
            let (exponent, stored) = (i32::from(code >> self.stored), code & ((1 << self.stored) - 1));
            let fraction = f64::from(stored) / f64::from(1 << self.stored);
            match exponent {
                0 => fraction * f64::from(1 - self.bias).exp2(),
                _ => (1.0 + fraction) * f64::from(exponent - self.bias).exp2(),
            }
        }

        /// The first code that stands for no finite number.
        fn first_special(&self) -> u8 {
            let all_ones = ((1u8 << self.exponent_bits) - 1) << self.stored;
            if self.has_infinity { all_ones } else { all_ones | ((1 << self.stored) - 1) }
        }

        /// The code of `wide`, found by search: the nearest value; of two such values, the value with last bit 0.
        fn nearest(&self, wide: f32) -> u8 {
            let magnitude = f64::from(wide).abs().min(self.value(self.first_special()));
            let distance = |code: &u8| (self.value(*code) - magnitude).abs();
            let closer = |a: &u8, b: &u8| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1)));
            let special = self.first_special();
            let code = if wide.is_nan() { 0x7f } else { (0..=special).min_by(closer).unwrap_or(special) };
            code | if wide.is_sign_negative() { 0x80 } else { 0 }
        }

        fn check(&self, wide: f32) {
            let (found, expected) = ((self.from_f32)(wide), self.nearest(wide));
            let is_nan = |bits: u8| (self.to_f32)(bits).is_nan();
            let same = found == expected || is_nan(found) && is_nan(expected);
            assert!(same, "{wide:?} ({:#x}): {found:#x} instead of {expected:#x}", wide.to_bits());
        }
    }

    #[test]
    fn every_code_has_its_value_and_comes_back() {
        for format in FORMATS {
            for bits in 0..=u8::MAX {
                let (code, wide) = (bits & 0x7f, (format.to_f32)(bits));
                let special = format.first_special();
                match () {
                    () if code < special => {
                        assert_eq!(f64::from(wide.abs()), format.value(code), "{bits:#x}")
                    }
                    () if code == special && format.has_infinity => assert_eq!(wide.abs(), f32::INFINITY),
                    () => assert!(wide.is_nan(), "{bits:#x}"),
                }
                assert_eq!(wide.is_sign_negative(), bits > 0x7f, "{bits:#x}");
                assert!((format.from_f32)(wide) == bits || wide.is_nan(), "{bits:#x}");
            }
        }
    }

    #[test]
    fn every_midpoint_and_its_neighbours_round_to_nearest_even() {
        for format in FORMATS {
            for code in 0..format.first_special() {
                let middle = (format.value(code) + format.value(code + 1)) / 2.0;
                let bits = (middle as f32).to_bits();
                assert_eq!(f64::from(f32::from_bits(bits)), middle);
                for near in [bits - 1, bits, bits + 1] {
                    format.check(f32::from_bits(near));
                    format.check(-f32::from_bits(near));
                }
            }
        }
    }

    /// Every upper half of an f32, with low bits that are zeros, ones or one bit: every exponent, infinities and NaNs.
    #[test]
    fn every_size_of_an_f32_is_rounded_or_overflows() {
        for format in FORMATS {
            for upper in 0..=u16::MAX {
                for lower in [0, 1, 0xffff] {
                    format.check(f32::from_bits(u32::from(upper) << 16 | lower));
                }
            }
        }
    }

    #[test]
    fn constants_are_what_they_say() {
        assert_eq!([f8e4m3::ZERO, f8e4m3::ONE, f8e4m3::MAX].map(f32::from), [0.0, 1.0, 448.0]);
        assert_eq!([f8e5m2::ZERO, f8e5m2::ONE, f8e5m2::MAX].map(f32::from), [0.0, 1.0, 57344.0]);
        assert_eq!(f64::from(f8e4m3::MIN_POSITIVE_SUBNORMAL), f64::exp2(-9.0));
        assert_eq!(f64::from(f8e5m2::MIN_POSITIVE_SUBNORMAL), f64::exp2(-16.0));
        assert!(f8e4m3::NAN.is_nan() && f8e5m2::NAN.is_nan() && f8e4m3::NAN != f8e4m3::NAN);
        assert_eq!(f32::from(f8e5m2::INFINITY), f32::INFINITY);
        assert!(f8e4m3::from_f32(-0.0) == f8e4m3::ZERO && f8e4m3::ONE < f8e4m3::MAX);
        assert_eq!(format!("{:?} {}", f8e5m2::ONE, f8e4m3::MAX), "1.0 448");
    }
}
