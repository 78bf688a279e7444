//! AVX2 with fused products (Haswell, Zen and later): 8 lanes.

#![expect(unsafe_code, reason = "intrinsics of AVX2")]

use std::arch::x86_64::*;

use super::{Group, Scales, Simd};
use crate::format::LANES;

const WIDTH: usize = 8;

/// Bit patterns of f32.
const EXPONENT: i32 = 0x7f80_0000;
const SIGN: i32 = i32::MIN;

/// The instructions of [`Avx2::is_available`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn is_available() -> bool {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
    }

    /// In a function that is compiled for the instructions: its caller has proved that they are there.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    pub(crate) fn here() -> Avx2 {
        Avx2(())
    }
}

/// Methods whose bodies are intrinsics.
macro_rules! methods {
    ($(
        fn $name:ident $(<const $flag:ident: bool>)? ($self:ident $(, $argument:ident: $kind:ty)*)
        $(-> $result:ty)? $body:block
    )*) => {
        $(
            #[inline(always)]
            fn $name$(<const $flag: bool>)?($self $(, $argument: $kind)*) $(-> $result)? {
                // SAFETY: the processor has the instructions, for `self` is made only where they are (`Avx2::here`).
                // The intrinsics get pointers to arrays that are as long as their reads or writes, and streaming stores
                // get aligned ones.
                unsafe { $body }
            }
        )*
    };
}

/// The order of dwords after the 128-bit parts of four vectors were packed side by side.
const UNPACKED: [i32; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

impl Simd for Avx2 {
    type Floats = __m256;
    type Ints = __m256i;
    type Lanes = [__m256; LANES / WIDTH];
    type Codes = [__m256i; LANES / WIDTH];
    type Table = Scales;

    const COUNT: usize = LANES / WIDTH;

    #[inline(always)]
    fn flush_add(self, left: __m256, right: __m256) -> __m256 {
        self.add(self.flush(left), right)
    }

    #[inline(always)]
    fn table(self, scales: &[f32]) -> Scales {
        Scales::new(scales)
    }

    #[inline(always)]
    fn look_up(self, table: &Scales, words: &[u64; 4]) -> Self::Lanes {
        table.sum(self, words)
    }

    methods! {
        fn splat(self, value: f32) -> __m256 { _mm256_set1_ps(value) }
        fn zeros(self) -> [__m256; 8] { [_mm256_setzero_ps(); 8] }
        fn no_codes(self) -> [__m256i; 8] { [_mm256_setzero_si256(); 8] }

        fn load(self, group: &Group, number: usize) -> __m256 {
            _mm256_loadu_ps(group[number * WIDTH..][..WIDTH].as_ptr())
        }
        fn store(self, group: &mut Group, number: usize, floats: __m256) {
            _mm256_storeu_ps(group[number * WIDTH..][..WIDTH].as_mut_ptr(), floats);
        }
        fn stream(self, group: &mut Group, number: usize, floats: __m256) {
            let to = group[number * WIDTH..][..WIDTH].as_mut_ptr();
            if to.cast::<__m256>().is_aligned() {
                _mm256_stream_ps(to, floats);
            } else if to.cast::<__m128>().is_aligned() {
                // The memory of an allocator. Four such stores fill a line as two do.
                _mm_stream_ps(to, _mm256_castps256_ps128(floats));
                _mm_stream_ps(to.add(4), _mm256_extractf128_ps::<1>(floats));
            } else {
                _mm256_storeu_ps(to, floats);
            }
        }
        fn prefetch(self, group: &Group, ahead: usize) {
            // Any address will do: a prefetch reads nothing that the program could see.
            let at = group.as_ptr().wrapping_add(ahead);
            _mm_prefetch::<_MM_HINT_T0>(at.cast());
            _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(16).cast());
            _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(32).cast());
            _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(48).cast());
        }
        fn fence(self) { _mm_sfence(); }

        fn add(self, left: __m256, right: __m256) -> __m256 { _mm256_add_ps(left, right) }
        fn sub(self, left: __m256, right: __m256) -> __m256 { _mm256_sub_ps(left, right) }
        fn mul(self, left: __m256, right: __m256) -> __m256 { _mm256_mul_ps(left, right) }
        fn add_exact_product(self, sum: __m256, left: __m256, right: __m256) -> __m256 {
            _mm256_fmadd_ps(left, right, sum)
        }
        fn sub_exact_product(self, from: __m256, left: __m256, right: __m256) -> __m256 {
            _mm256_fnmadd_ps(left, right, from)
        }
        fn flush(self, floats: __m256) -> __m256 {
            let exponents = _mm256_and_si256(_mm256_castps_si256(floats), _mm256_set1_epi32(EXPONENT));
            let zero = _mm256_cmpeq_epi32(exponents, _mm256_setzero_si256());
            _mm256_andnot_ps(_mm256_castsi256_ps(zero), floats)
        }
        fn abs(self, floats: __m256) -> __m256 {
            _mm256_andnot_ps(_mm256_castsi256_ps(_mm256_set1_epi32(SIGN)), floats)
        }
        fn with_sign(self, magnitude: __m256, sign: __m256) -> __m256 {
            let sign = _mm256_and_ps(sign, _mm256_castsi256_ps(_mm256_set1_epi32(SIGN)));
            _mm256_or_ps(magnitude, sign)
        }
        fn max_magnitude(self, left: __m256, right: __m256) -> __m256 {
            _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(left), _mm256_castps_si256(right)))
        }
        fn min(self, left: __m256, right: __m256) -> __m256 { _mm256_min_ps(left, right) }
        fn max(self, left: __m256, right: __m256) -> __m256 { _mm256_max_ps(left, right) }
        fn sum(self, floats: __m256) -> f32 {
            let four = _mm_add_ps(_mm256_castps256_ps128(floats), _mm256_extractf128_ps::<1>(floats));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
        fn largest(self, floats: __m256) -> f32 {
            let bits = _mm256_castps_si256(floats);
            let four = _mm_max_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256::<1>(bits));
            let two = _mm_max_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
            f32::from_bits(_mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two))) as u32)
        }
        fn sign_bits(self, floats: __m256) -> u64 { _mm256_movemask_ps(floats) as u64 }
        fn signed(self, bits: u64, number: usize, scale: __m256) -> __m256 {
            // The four vectors of a half share the broadcast. The bit of lane l goes to where the sign is.
            let clear = _mm256_set1_epi32(!(bits >> (number / 4 * 32)) as i32);
            let last = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
            let clear = _mm256_sllv_epi32(clear, _mm256_sub_epi32(last, _mm256_set1_epi32((number % 4 * 8) as i32)));
            _mm256_xor_ps(scale, _mm256_castsi256_ps(_mm256_and_si256(clear, _mm256_set1_epi32(SIGN))))
        }

        fn round(self, floats: __m256) -> __m256i { _mm256_cvtps_epi32(floats) }
        fn to_floats(self, ints: __m256i) -> __m256 { _mm256_cvtepi32_ps(ints) }
        fn store_ints(self, group: &mut [i32; LANES], number: usize, ints: __m256i) {
            _mm256_storeu_si256(group[number * WIDTH..][..WIDTH].as_mut_ptr().cast(), ints);
        }
        fn dither(self, ints: __m256i, random: &[u16; LANES], number: usize) -> __m256i {
            let random = _mm_loadu_si128(random[number * WIDTH..][..WIDTH].as_ptr().cast());
            _mm256_srai_epi32::<16>(_mm256_add_epi32(ints, _mm256_cvtepu16_epi32(random)))
        }
        fn pack_bytes<const SIGNED: bool>(self, codes: &[__m256i; 8], bytes: &mut [u8; LANES]) {
            let (low, high) = bytes.split_at_mut(32);
            let first = packed::<SIGNED>(self, [codes[0], codes[1], codes[2], codes[3]]);
            let second = packed::<SIGNED>(self, [codes[4], codes[5], codes[6], codes[7]]);
            _mm256_storeu_si256(low.as_mut_ptr().cast(), first);
            _mm256_storeu_si256(high.as_mut_ptr().cast(), second);
        }
        fn pack_halves(self, codes: &[__m256i; 8], bytes: &mut [u8; LANES / 2]) {
            let low = pairs(self, [codes[0], codes[1], codes[2], codes[3]]);
            let high = pairs(self, [codes[4], codes[5], codes[6], codes[7]]);
            let packed = _mm256_permute4x64_epi64::<0b1101_1000>(_mm256_packus_epi16(low, high));
            _mm256_storeu_si256(bytes.as_mut_ptr().cast(), packed);
        }
        fn unpack_bytes<const SIGNED: bool>(self, bytes: &[u8; LANES]) -> [__m256; 8] {
            let mut lanes = self.zeros();
            for (lanes, bytes) in lanes.iter_mut().zip(bytes.as_chunks::<WIDTH>().0) {
                let bytes = _mm_loadl_epi64(bytes.as_ptr().cast());
                let ints = if SIGNED { _mm256_cvtepi8_epi32(bytes) } else { _mm256_cvtepu8_epi32(bytes) };
                *lanes = _mm256_cvtepi32_ps(ints);
            }
            lanes
        }
        fn widen(self, narrow: &[u16; LANES], number: usize) -> __m256 {
            let narrow = _mm_loadu_si128(narrow[number * WIDTH..][..WIDTH].as_ptr().cast());
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(narrow)))
        }
        fn unpack_halves<const SIGNED: bool>(self, bytes: &[u8; LANES / 2]) -> [__m256; 8] {
            // Half l goes to the top of lane l, and from there to the bottom with or without its sign.
            let shifts = _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0);
            let mut lanes = self.zeros();
            for (lanes, four) in lanes.iter_mut().zip(bytes.as_chunks().0) {
                let top = _mm256_sllv_epi32(_mm256_set1_epi32(i32::from_le_bytes(*four)), shifts);
                let ints = if SIGNED { _mm256_srai_epi32::<28>(top) } else { _mm256_srli_epi32::<28>(top) };
                *lanes = _mm256_cvtepi32_ps(ints);
            }
            lanes
        }
    }
}

/// Half a group's codes of four bits: in each i16 the first of a pair and 16 times the second.
#[inline(always)]
fn pairs(simd: Avx2, codes: [__m256i; 4]) -> __m256i {
    let halves = packed::<true>(simd, codes);
    // SAFETY: as in `methods`: `simd` proves that the instructions are there.
    unsafe { _mm256_maddubs_epi16(_mm256_and_si256(halves, _mm256_set1_epi8(15)), _mm256_set1_epi16(0x1001)) }
}

/// The codes of half a group as bytes, in their order.
#[inline(always)]
fn packed<const SIGNED: bool>(_: Avx2, codes: [__m256i; 4]) -> __m256i {
    // SAFETY: as in `methods`: the argument proves that the instructions are there.
    unsafe {
        let (low, high) = (_mm256_packs_epi32(codes[0], codes[1]), _mm256_packs_epi32(codes[2], codes[3]));
        let bytes = if SIGNED { _mm256_packs_epi16(low, high) } else { _mm256_packus_epi16(low, high) };
        _mm256_permutevar8x32_epi32(bytes, _mm256_loadu_si256(UNPACKED.as_ptr().cast()))
    }
}
