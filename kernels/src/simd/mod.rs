//! The interface of an instruction set to the bodies of the kernels: vectors that hold the 64 lanes of a group.
//!
//! A value of a [`Simd`] type is made only in functions that are compiled for its instructions. All bodies are inlined
//! into those functions, so they are written once and compiled for each instruction set.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
pub(crate) mod portable;

use std::ops::IndexMut;

use crate::format::LANES;

/// The most vectors of a group over which loops are unrolled. The portable target has 16, which do not fit into the
/// registers of x86-64, where hardly a machine needs it: its unrolled bodies were 1.4 MB, and took longer to compile
/// than all others.
pub(crate) const UNROLLED_MAX: usize = if cfg!(target_arch = "x86_64") { 8 } else { 16 };

/// A loop over the vectors of a group of the [`Simd`] type `$simd`. It is unrolled here, since the compiler keeps
/// vectors in registers only where their numbers are constants.
macro_rules! unrolled {
    (for $number:ident in $simd:ident $body:block) => {
        if $simd::COUNT <= $crate::simd::UNROLLED_MAX {
            unrolled!(@ $number $simd $body 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        } else {
            for $number in 0..$simd::COUNT $body
        }
    };
    (@ $number:ident $simd:ident $body:block $($constant:literal)*) => {
        $(
            if $constant < $simd::COUNT {
                let $number: usize = $constant;
                $body
            }
        )*
    };
}
pub(crate) use unrolled;

/// Elements that bodies treat together.
pub(crate) type Group = [f32; LANES];

/// One instruction set. Vectors are [`Simd::COUNT`] to a group; `number` says which of them is meant.
pub(crate) trait Simd: Copy {
    /// A vector of f32.
    type Floats: Copy;
    /// A vector of i32 with as many lanes.
    type Ints: Copy;
    /// A group of f32.
    type Lanes: Copy + IndexMut<usize, Output = Self::Floats>;
    /// A group of i32.
    type Codes: Copy + IndexMut<usize, Output = Self::Ints>;
    /// The form in which [`Simd::look_up`] needs the scales of up to four parts.
    type Table: Copy;

    /// Vectors of a group.
    const COUNT: usize;

    fn splat(self, value: f32) -> Self::Floats;
    fn zeros(self) -> Self::Lanes;
    fn no_codes(self) -> Self::Codes;
    fn load(self, group: &Group, number: usize) -> Self::Floats;
    fn store(self, group: &mut Group, number: usize, floats: Self::Floats);
    /// Past the caches if the group is aligned, otherwise as [`Simd::store`].
    fn stream(self, group: &mut Group, number: usize, floats: Self::Floats);
    /// Asks for the lines of the cache that hold the group `ahead` elements behind the first of `group`, which may be
    /// outside of the slice.
    fn prefetch(self, group: &Group, ahead: usize);
    /// Makes all that was streamed visible to other threads as ordinary stores are.
    fn fence(self);

    fn add(self, left: Self::Floats, right: Self::Floats) -> Self::Floats;
    fn sub(self, left: Self::Floats, right: Self::Floats) -> Self::Floats;
    fn mul(self, left: Self::Floats, right: Self::Floats) -> Self::Floats;
    /// `sum + left x right`, where the product is exact, so that it makes no difference whether it is fused.
    fn add_exact_product(self, sum: Self::Floats, left: Self::Floats, right: Self::Floats) -> Self::Floats;
    /// `difference - left x right`, where the product is exact.
    fn sub_exact_product(self, from: Self::Floats, left: Self::Floats, right: Self::Floats) -> Self::Floats;
    /// As [`crate::format::flush`].
    fn flush(self, floats: Self::Floats) -> Self::Floats;
    /// `flush(left) + right`.
    fn flush_add(self, left: Self::Floats, right: Self::Floats) -> Self::Floats;
    fn abs(self, floats: Self::Floats) -> Self::Floats;
    /// `magnitude`, which is not negative, with the sign of `sign`.
    fn with_sign(self, magnitude: Self::Floats, sign: Self::Floats) -> Self::Floats;
    /// The larger of two that are not negative, where Inf is larger than numbers and NaN larger than Inf.
    fn max_magnitude(self, left: Self::Floats, right: Self::Floats) -> Self::Floats;
    /// Of numbers.
    fn min(self, left: Self::Floats, right: Self::Floats) -> Self::Floats;
    /// Of numbers.
    fn max(self, left: Self::Floats, right: Self::Floats) -> Self::Floats;
    /// The sum of all lanes: halves are added until one lane is left.
    fn sum(self, floats: Self::Floats) -> f32;
    /// The largest lane, in the order of [`Simd::max_magnitude`].
    fn largest(self, floats: Self::Floats) -> f32;
    /// The sign bits, the first lane lowest.
    fn sign_bits(self, floats: Self::Floats) -> u64;
    /// Vector `number` of a group: `scale` where the bit is set, -`scale` elsewhere.
    fn signed(self, bits: u64, number: usize, scale: Self::Floats) -> Self::Floats;

    /// For up to four scales.
    fn table(self, scales: &[f32]) -> Self::Table;
    /// Sums, from the first on, plus or minus the scales of a table, with flushes. Words behind the scales are 0.
    fn look_up(self, table: &Self::Table, words: &[u64; 4]) -> Self::Lanes;

    /// To the nearest, ties to even; for magnitudes up to 2^24.
    fn round(self, floats: Self::Floats) -> Self::Ints;
    fn to_floats(self, ints: Self::Ints) -> Self::Floats;
    fn store_ints(self, group: &mut [i32; LANES], number: usize, ints: Self::Ints);
    /// `(ints + random) >> 16`.
    fn dither(self, ints: Self::Ints, random: &[u16; LANES], number: usize) -> Self::Ints;
    /// One code in each byte: -127 to 127 if they are `SIGNED`, otherwise 0 to 255.
    fn pack_bytes<const SIGNED: bool>(self, codes: &Self::Codes, bytes: &mut [u8; LANES]);
    /// Two codes in each byte, the first in the low half.
    fn pack_halves(self, codes: &Self::Codes, bytes: &mut [u8; LANES / 2]);
    fn unpack_bytes<const SIGNED: bool>(self, bytes: &[u8; LANES]) -> Self::Lanes;
    fn unpack_halves<const SIGNED: bool>(self, bytes: &[u8; LANES / 2]) -> Self::Lanes;
    /// Vector `number` of a group of bf16.
    fn widen(self, narrow: &[u16; LANES], number: usize) -> Self::Floats;
}

/// The scales of up to four parts, for targets that add them one by one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scales {
    scales: [f32; 4],
    count: usize,
}

impl Scales {
    fn new(scales: &[f32]) -> Scales {
        let mut table = Scales { scales: [0.0; 4], count: scales.len() };
        table.scales[..scales.len()].copy_from_slice(scales);
        table
    }

    #[inline(always)]
    fn sum<S: Simd>(&self, simd: S, words: &[u64; 4]) -> S::Lanes {
        let mut sums = simd.zeros();
        for (scale, word) in self.scales.iter().zip(words).take(self.count) {
            let scale = simd.splat(*scale);
            unrolled!(for number in S {
                sums[number] = simd.flush(simd.add(sums[number], simd.signed(*word, number, scale)));
            });
        }
        sums
    }
}
