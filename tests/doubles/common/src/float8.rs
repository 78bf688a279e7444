//! Floats of eight bits, as NVIDIA's `cuda_fp8.h` and the OCP 8-bit floating point specification have them. What is
//! too large becomes the largest finite number.

use std::marker::PhantomData;

/// How the bits are shared out.
pub(crate) trait Format: Copy {
    /// Bits of the fraction.
    const FRACTION_BITS: i32;
    const BIAS: i32;
    /// The largest finite number's code.
    const LARGEST: u8;
    /// The code of infinity, where there is one. All codes above the largest, and this, are NaN.
    const INFINITY: Option<u8>;
}

/// Four bits of exponent, three of fraction, no infinity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct E4M3;

/// Five bits of exponent, two of fraction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct E5M2;

impl Format for E4M3 {
    const FRACTION_BITS: i32 = 3;
    const BIAS: i32 = 7;
    const LARGEST: u8 = 0x7e;
    const INFINITY: Option<u8> = None;
}

impl Format for E5M2 {
    const FRACTION_BITS: i32 = 2;
    const BIAS: i32 = 15;
    const LARGEST: u8 = 0x7b;
    const INFINITY: Option<u8> = Some(0x7c);
}

/// A float of eight bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Float8<F>(u8, PhantomData<F>);

impl<F: Format> Float8<F> {
    pub(crate) fn from_le_bytes([code]: [u8; 1]) -> Self {
        Float8(code, PhantomData)
    }

    pub(crate) fn to_le_bytes(self) -> [u8; 1] {
        [self.0]
    }

    pub(crate) fn to_f32(self) -> f32 {
        let sign = if self.0 & 0x80 == 0 { 1.0 } else { -1.0 };
        let code = self.0 & 0x7f;
        if Some(code) == F::INFINITY {
            return sign * f32::INFINITY;
        }
        if code > F::LARGEST {
            return f32::NAN;
        }
        let (exponent, fraction) =
            (i32::from(code) >> F::FRACTION_BITS, i32::from(code) & ((1 << F::FRACTION_BITS) - 1));
        let (digits, exponent) = match exponent {
            0 => (fraction, 1),
            _ => (fraction + (1 << F::FRACTION_BITS), exponent),
        };
        sign * digits as f32 * 2f32.powi(exponent - F::BIAS - F::FRACTION_BITS)
    }

    /// The nearest; of two, the even one.
    pub(crate) fn from_f32(value: f32) -> Self {
        let sign = if value.is_sign_negative() { 0x80 } else { 0 };
        if value.is_nan() {
            return Float8(0x7f, PhantomData);
        }
        let magnitude = value.abs();
        // Numbers grow with their codes.
        let above = (0..=F::LARGEST).find(|code| Self(*code, PhantomData).to_f32() >= magnitude);
        let code = match above {
            None => F::LARGEST,
            Some(0) => 0,
            Some(above) => {
                let [low, high] = [above - 1, above].map(|code| Self(code, PhantomData).to_f32());
                let is_upper = match (magnitude - low).total_cmp(&(high - magnitude)) {
                    std::cmp::Ordering::Less => false,
                    std::cmp::Ordering::Equal => above.is_multiple_of(2),
                    std::cmp::Ordering::Greater => true,
                };
                if is_upper { above } else { above - 1 }
            }
        };
        Float8(sign | code, PhantomData)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<F: Format>() {
        for code in 0..=u8::MAX {
            let number = Float8::<F>::from_le_bytes([code]).to_f32();
            let [back] = Float8::<F>::from_f32(number).to_le_bytes();
            if number.is_finite() {
                assert_eq!(back, code);
            }
        }
    }

    #[test]
    fn numbers_are_those_of_the_specification() {
        round_trip::<E4M3>();
        round_trip::<E5M2>();
        let e4m3 = |code| Float8::<E4M3>::from_le_bytes([code]).to_f32();
        let e5m2 = |code| Float8::<E5M2>::from_le_bytes([code]).to_f32();
        assert_eq!([e4m3(0x7e), e4m3(0x38), e4m3(1)], [448.0, 1.0, 2f32.powi(-9)]);
        assert_eq!(
            [e5m2(0x7b), e5m2(0x3c), e5m2(1), e5m2(0x7c)],
            [57344.0, 1.0, 2f32.powi(-16), f32::INFINITY]
        );
        assert!(e4m3(0x7f).is_nan() && e5m2(0x7d).is_nan());
        assert_eq!(Float8::<E4M3>::from_f32(1e9).to_le_bytes(), [0x7e]);
        // 1 + 1/16 lies between 1 and 1 + 1/8: the even one is 1.
        assert_eq!(Float8::<E4M3>::from_f32(1.0625).to_f32(), 1.0);
        assert_eq!(Float8::<E4M3>::from_f32(-1.1875).to_f32(), -1.25);
    }
}
