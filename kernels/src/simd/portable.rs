//! Vectors as arrays, which the compiler turns into the vectors that every processor of the architecture has.

use std::array::from_fn;

use super::{Group, Scales, Simd};
use crate::format::{self, LANES};

/// Lanes of a vector.
const WIDTH: usize = 4;

/// The smallest f32 that has no fraction.
const TWO_TO_23: f32 = 8_388_608.0;

/// No instructions beyond the base of the architecture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

type Floats = [f32; WIDTH];
type Ints = [i32; WIDTH];

#[inline(always)]
fn zip(left: Floats, right: Floats, combine: impl Fn(f32, f32) -> f32) -> Floats {
    from_fn(|lane| combine(left[lane], right[lane]))
}

/// There is an instruction for it only from SSE4.1 on.
#[inline(always)]
fn round(value: f32) -> i32 {
    let magnitude = value.abs();
    // The bits of a number from 2^23 to 2^24, less the bits of 2^23, are the difference of the two numbers.
    let small = (magnitude + TWO_TO_23).to_bits().wrapping_sub(TWO_TO_23.to_bits());
    let large = magnitude.to_bits().wrapping_sub(TWO_TO_23.to_bits()).wrapping_add(1 << 23);
    let rounded = (if magnitude < TWO_TO_23 { small } else { large }) as i32;
    let sign = value.to_bits() as i32 >> 31;
    (rounded ^ sign).wrapping_sub(sign)
}

impl Simd for Portable {
    type Floats = Floats;
    type Ints = Ints;
    type Lanes = [Floats; LANES / WIDTH];
    type Codes = [Ints; LANES / WIDTH];
    type Table = Scales;

    const COUNT: usize = LANES / WIDTH;

    #[inline(always)]
    fn splat(self, value: f32) -> Floats {
        [value; WIDTH]
    }

    #[inline(always)]
    fn zeros(self) -> Self::Lanes {
        [[0.0; WIDTH]; LANES / WIDTH]
    }

    #[inline(always)]
    fn no_codes(self) -> Self::Codes {
        [[0; WIDTH]; LANES / WIDTH]
    }

    #[inline(always)]
    fn load(self, group: &Group, number: usize) -> Floats {
        from_fn(|lane| group[number * WIDTH + lane])
    }

    #[inline(always)]
    fn store(self, group: &mut Group, number: usize, floats: Floats) {
        group[number * WIDTH..][..WIDTH].copy_from_slice(&floats);
    }

    #[inline(always)]
    fn stream(self, group: &mut Group, number: usize, floats: Floats) {
        self.store(group, number, floats);
    }

    #[inline(always)]
    fn prefetch(self, _: &Group, _: usize) {}

    #[inline(always)]
    fn fence(self) {}

    #[inline(always)]
    fn add(self, left: Floats, right: Floats) -> Floats {
        zip(left, right, |left, right| left + right)
    }

    #[inline(always)]
    fn sub(self, left: Floats, right: Floats) -> Floats {
        zip(left, right, |left, right| left - right)
    }

    #[inline(always)]
    fn mul(self, left: Floats, right: Floats) -> Floats {
        zip(left, right, |left, right| left * right)
    }

    #[inline(always)]
    fn add_exact_product(self, sum: Floats, left: Floats, right: Floats) -> Floats {
        self.add(sum, self.mul(left, right))
    }

    #[inline(always)]
    fn sub_exact_product(self, from: Floats, left: Floats, right: Floats) -> Floats {
        self.sub(from, self.mul(left, right))
    }

    #[inline(always)]
    fn flush(self, floats: Floats) -> Floats {
        floats.map(format::flush)
    }

    #[inline(always)]
    fn flush_add(self, left: Floats, right: Floats) -> Floats {
        self.add(self.flush(left), right)
    }

    #[inline(always)]
    fn abs(self, floats: Floats) -> Floats {
        floats.map(f32::abs)
    }

    #[inline(always)]
    fn with_sign(self, magnitude: Floats, sign: Floats) -> Floats {
        zip(magnitude, sign, f32::copysign)
    }

    #[inline(always)]
    fn max_magnitude(self, left: Floats, right: Floats) -> Floats {
        zip(left, right, |left, right| {
            f32::from_bits((left.to_bits() as i32).max(right.to_bits() as i32) as u32)
        })
    }

    #[inline(always)]
    fn min(self, left: Floats, right: Floats) -> Floats {
        zip(left, right, |left, right| if left < right { left } else { right })
    }

    #[inline(always)]
    fn max(self, left: Floats, right: Floats) -> Floats {
        zip(left, right, |left, right| if left > right { left } else { right })
    }

    #[inline(always)]
    fn sum(self, floats: Floats) -> f32 {
        (floats[0] + floats[2]) + (floats[1] + floats[3])
    }

    #[inline(always)]
    fn largest(self, floats: Floats) -> f32 {
        let bits = floats.map(f32::to_bits);
        f32::from_bits(bits[0].max(bits[2]).max(bits[1].max(bits[3])))
    }

    #[inline(always)]
    fn sign_bits(self, floats: Floats) -> u64 {
        let bits: [u32; WIDTH] = from_fn(|lane| floats[lane].to_bits() >> 31 << lane);
        u64::from(bits[0] | bits[1] | bits[2] | bits[3])
    }

    #[inline(always)]
    fn signed(self, bits: u64, number: usize, scale: Floats) -> Floats {
        let clear = !((bits >> (number * WIDTH)) as u32);
        from_fn(|lane| f32::from_bits(scale[lane].to_bits() ^ (clear >> lane) << 31))
    }

    #[inline(always)]
    fn table(self, scales: &[f32]) -> Scales {
        Scales::new(scales)
    }

    #[inline(always)]
    fn look_up(self, table: &Scales, words: &[u64; 4]) -> Self::Lanes {
        table.sum(self, words)
    }

    #[inline(always)]
    fn round(self, floats: Floats) -> Ints {
        floats.map(round)
    }

    #[inline(always)]
    fn to_floats(self, ints: Ints) -> Floats {
        ints.map(|int| int as f32)
    }

    #[inline(always)]
    fn store_ints(self, group: &mut [i32; LANES], number: usize, ints: Ints) {
        group[number * WIDTH..][..WIDTH].copy_from_slice(&ints);
    }

    #[inline(always)]
    fn dither(self, ints: Ints, random: &[u16; LANES], number: usize) -> Ints {
        from_fn(|lane| ints[lane].wrapping_add(i32::from(random[number * WIDTH + lane])) >> 16)
    }

    #[inline(always)]
    fn pack_bytes<const SIGNED: bool>(self, codes: &Self::Codes, bytes: &mut [u8; LANES]) {
        for (bytes, codes) in bytes.as_chunks_mut().0.iter_mut().zip(codes) {
            *bytes = codes.map(|code| code as u8);
        }
    }

    #[inline(always)]
    fn pack_halves(self, codes: &Self::Codes, bytes: &mut [u8; LANES / 2]) {
        for (bytes, codes) in bytes.as_chunks_mut().0.iter_mut().zip(codes) {
            *bytes = from_fn::<u8, 2, _>(|pair| (codes[2 * pair] & 15 | codes[2 * pair + 1] << 4) as u8);
        }
    }

    #[inline(always)]
    fn unpack_bytes<const SIGNED: bool>(self, bytes: &[u8; LANES]) -> Self::Lanes {
        from_fn(|number| {
            from_fn(|lane| {
                let byte = bytes[number * WIDTH + lane];
                if SIGNED { f32::from(byte as i8) } else { f32::from(byte) }
            })
        })
    }

    #[inline(always)]
    fn widen(self, narrow: &[u16; LANES], number: usize) -> Floats {
        from_fn(|lane| f32::from_bits(u32::from(narrow[number * WIDTH + lane]) << 16))
    }

    #[inline(always)]
    fn unpack_halves<const SIGNED: bool>(self, bytes: &[u8; LANES / 2]) -> Self::Lanes {
        from_fn(|number| {
            from_fn(|lane| {
                let half = bytes[(number * WIDTH + lane) / 2] >> (lane % 2 * 4) & 15;
                if SIGNED { f32::from((half ^ 8) as i8 - 8) } else { f32::from(half) }
            })
        })
    }
}
