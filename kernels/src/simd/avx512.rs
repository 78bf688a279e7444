//! AVX-512 with byte permutations (Ice Lake, Zen 4 and later): 16 lanes.
//!
//! Earlier processors with AVX-512 use AVX2, which also spares them the lower clock of 512-bit instructions.

#![expect(unsafe_code, reason = "intrinsics of AVX-512")]

use std::arch::x86_64::*;

use super::{Group, Simd};
use crate::format::LANES;

const WIDTH: usize = 16;

/// Classes of numbers: zeros of both signs, and subnormal ones.
const ZERO_OR_SUBNORMAL: i32 = 0x26;

/// Bit patterns of f32.
const SIGN: i32 = i32::MIN;

/// The instructions of [`Avx512::is_available`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(());

impl Avx512 {
    pub(crate) fn is_available() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
    }

    /// In a function that is compiled for the instructions: its caller has proved that they are there.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,fma")]
    pub(crate) fn here() -> Avx512 {
        Avx512(())
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
                // SAFETY: the processor has the instructions, for `self` is made only where they are (`Avx512::here`).
                // The intrinsics get pointers to arrays that are as long as their reads or writes, and streaming stores
                // get aligned ones.
                unsafe { $body }
            }
        )*
    };
}

/// The places in a vector at which dword l finds the four bytes of elements l, l + 16, l + 32 and l + 48.
const COLUMNS: [u8; 64] = {
    let mut order = [0; 64];
    let mut at = 0;
    while at < 64 {
        order[at] = (at / 4 + at % 4 * 16) as u8;
        at += 1;
    }
    order
};

/// The order of dwords after the 128-bit parts of four vectors were packed side by side.
const UNPACKED: [i32; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];

/// Bit n of the index of each entry of a table of 16.
const INDEX_BITS: [__mmask16; 4] = [0xaaaa, 0xcccc, 0xf0f0, 0xff00];

impl Simd for Avx512 {
    type Floats = __m512;
    type Ints = __m512i;
    type Lanes = [__m512; LANES / WIDTH];
    type Codes = [__m512i; LANES / WIDTH];
    /// The sums for all 16 combinations of signs.
    type Table = __m512;

    const COUNT: usize = LANES / WIDTH;

    methods! {
        fn splat(self, value: f32) -> __m512 { _mm512_set1_ps(value) }
        fn zeros(self) -> [__m512; 4] { [_mm512_setzero_ps(); 4] }
        fn no_codes(self) -> [__m512i; 4] { [_mm512_setzero_si512(); 4] }

        fn load(self, group: &Group, number: usize) -> __m512 {
            _mm512_loadu_ps(group[number * WIDTH..][..WIDTH].as_ptr())
        }
        fn store(self, group: &mut Group, number: usize, floats: __m512) {
            _mm512_storeu_ps(group[number * WIDTH..][..WIDTH].as_mut_ptr(), floats);
        }
        fn stream(self, group: &mut Group, number: usize, floats: __m512) {
            let to = group[number * WIDTH..][..WIDTH].as_mut_ptr();
            if to.cast::<__m512>().is_aligned() {
                _mm512_stream_ps(to, floats);
            } else if to.cast::<__m128>().is_aligned() {
                // The memory of an allocator. Four such stores fill a line as one does.
                _mm_stream_ps(to, _mm512_castps512_ps128(floats));
                _mm_stream_ps(to.add(4), _mm512_extractf32x4_ps::<1>(floats));
                _mm_stream_ps(to.add(8), _mm512_extractf32x4_ps::<2>(floats));
                _mm_stream_ps(to.add(12), _mm512_extractf32x4_ps::<3>(floats));
            } else {
                _mm512_storeu_ps(to, floats);
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

        fn add(self, left: __m512, right: __m512) -> __m512 { _mm512_add_ps(left, right) }
        fn sub(self, left: __m512, right: __m512) -> __m512 { _mm512_sub_ps(left, right) }
        fn mul(self, left: __m512, right: __m512) -> __m512 { _mm512_mul_ps(left, right) }
        fn add_exact_product(self, sum: __m512, left: __m512, right: __m512) -> __m512 {
            _mm512_fmadd_ps(left, right, sum)
        }
        fn sub_exact_product(self, from: __m512, left: __m512, right: __m512) -> __m512 {
            _mm512_fnmadd_ps(left, right, from)
        }
        fn flush(self, floats: __m512) -> __m512 {
            let vanishes = _mm512_fpclass_ps_mask::<ZERO_OR_SUBNORMAL>(floats);
            _mm512_mask_mov_ps(floats, vanishes, _mm512_setzero_ps())
        }
        fn flush_add(self, left: __m512, right: __m512) -> __m512 {
            let vanishes = _mm512_fpclass_ps_mask::<ZERO_OR_SUBNORMAL>(left);
            _mm512_mask_add_ps(right, !vanishes, left, right)
        }
        fn abs(self, floats: __m512) -> __m512 { _mm512_abs_ps(floats) }
        fn with_sign(self, magnitude: __m512, sign: __m512) -> __m512 {
            let sign = _mm512_and_ps(sign, _mm512_castsi512_ps(_mm512_set1_epi32(SIGN)));
            _mm512_or_ps(magnitude, sign)
        }
        fn max_magnitude(self, left: __m512, right: __m512) -> __m512 {
            _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(left), _mm512_castps_si512(right)))
        }
        fn min(self, left: __m512, right: __m512) -> __m512 { _mm512_min_ps(left, right) }
        fn max(self, left: __m512, right: __m512) -> __m512 { _mm512_max_ps(left, right) }
        fn sum(self, floats: __m512) -> f32 {
            let eight = _mm256_add_ps(_mm512_castps512_ps256(floats), _mm512_extractf32x8_ps::<1>(floats));
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
        fn largest(self, floats: __m512) -> f32 {
            f32::from_bits(_mm512_reduce_max_epi32(_mm512_castps_si512(floats)) as u32)
        }
        fn sign_bits(self, floats: __m512) -> u64 {
            u64::from(_mm512_movepi32_mask(_mm512_castps_si512(floats)))
        }
        fn signed(self, bits: u64, number: usize, scale: __m512) -> __m512 {
            let clear = !((bits >> (number * WIDTH)) as __mmask16);
            let scale = _mm512_castps_si512(scale);
            _mm512_castsi512_ps(_mm512_mask_xor_epi32(scale, clear, scale, _mm512_set1_epi32(SIGN)))
        }

        fn table(self, scales: &[f32]) -> __m512 {
            let mut sums = _mm512_setzero_ps();
            for (scale, set) in scales.iter().zip(INDEX_BITS) {
                let signed = _mm512_mask_blend_ps(set, _mm512_set1_ps(-scale), _mm512_set1_ps(*scale));
                sums = self.flush(_mm512_add_ps(sums, signed));
            }
            sums
        }
        fn look_up(self, table: &__m512, words: &[u64; 4]) -> [__m512; 4] {
            // A byte for each element holds its bits of all words.
            let mut bytes = _mm512_maskz_set1_epi8(words[0], 1);
            bytes = _mm512_mask_add_epi8(bytes, words[1], bytes, _mm512_set1_epi8(2));
            bytes = _mm512_mask_add_epi8(bytes, words[2], bytes, _mm512_set1_epi8(4));
            bytes = _mm512_mask_add_epi8(bytes, words[3], bytes, _mm512_set1_epi8(8));
            let columns = _mm512_permutexvar_epi8(_mm512_loadu_epi8(COLUMNS.as_ptr().cast()), bytes);
            // A permutation heeds only the four lowest bits of an index.
            [
                _mm512_permutexvar_ps(columns, *table),
                _mm512_permutexvar_ps(_mm512_srli_epi32::<8>(columns), *table),
                _mm512_permutexvar_ps(_mm512_srli_epi32::<16>(columns), *table),
                _mm512_permutexvar_ps(_mm512_srli_epi32::<24>(columns), *table),
            ]
        }

        fn round(self, floats: __m512) -> __m512i { _mm512_cvtps_epi32(floats) }
        fn to_floats(self, ints: __m512i) -> __m512 { _mm512_cvtepi32_ps(ints) }
        fn store_ints(self, group: &mut [i32; LANES], number: usize, ints: __m512i) {
            _mm512_storeu_epi32(group[number * WIDTH..][..WIDTH].as_mut_ptr(), ints);
        }
        fn dither(self, ints: __m512i, random: &[u16; LANES], number: usize) -> __m512i {
            let random = _mm256_loadu_epi16(random[number * WIDTH..][..WIDTH].as_ptr().cast());
            _mm512_srai_epi32::<16>(_mm512_add_epi32(ints, _mm512_cvtepu16_epi32(random)))
        }
        fn pack_bytes<const SIGNED: bool>(self, codes: &[__m512i; 4], bytes: &mut [u8; LANES]) {
            _mm512_storeu_epi8(bytes.as_mut_ptr().cast(), packed::<SIGNED>(self, codes));
        }
        fn pack_halves(self, codes: &[__m512i; 4], bytes: &mut [u8; LANES / 2]) {
            let halves = _mm512_and_si512(packed::<true>(self, codes), _mm512_set1_epi8(15));
            // The first of a pair and 16 times the second.
            let pairs = _mm512_maddubs_epi16(halves, _mm512_set1_epi16(0x1001));
            _mm256_storeu_epi8(bytes.as_mut_ptr().cast(), _mm512_cvtepi16_epi8(pairs));
        }
        fn unpack_bytes<const SIGNED: bool>(self, bytes: &[u8; LANES]) -> [__m512; 4] {
            let mut lanes = self.zeros();
            for (lanes, bytes) in lanes.iter_mut().zip(bytes.as_chunks::<WIDTH>().0) {
                let bytes = _mm_loadu_epi8(bytes.as_ptr().cast());
                let ints = if SIGNED { _mm512_cvtepi8_epi32(bytes) } else { _mm512_cvtepu8_epi32(bytes) };
                *lanes = _mm512_cvtepi32_ps(ints);
            }
            lanes
        }
        fn widen(self, narrow: &[u16; LANES], number: usize) -> __m512 {
            let narrow = _mm256_loadu_epi16(narrow[number * WIDTH..][..WIDTH].as_ptr().cast());
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(narrow)))
        }
        fn unpack_halves<const SIGNED: bool>(self, bytes: &[u8; LANES / 2]) -> [__m512; 4] {
            let values = _mm512_loadu_ps(if SIGNED { SIGNED_HALVES.as_ptr() } else { UNSIGNED_HALVES.as_ptr() });
            let shifts = _mm512_loadu_epi8(HALVES.as_ptr().cast());
            let mut lanes = self.zeros();
            for (lanes, eight) in lanes.iter_mut().zip(bytes.as_chunks().0) {
                let halves = _mm512_multishift_epi64_epi8(shifts, _mm512_set1_epi64(i64::from_le_bytes(*eight)));
                // A permutation heeds only the four lowest bits of an index.
                *lanes = _mm512_permutexvar_ps(halves, values);
            }
            lanes
        }
    }
}

/// The values of codes of four bits.
const UNSIGNED_HALVES: [f32; 16] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];
const SIGNED_HALVES: [f32; 16] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0];

/// For each byte of a vector the number of the bit, of eight bytes, that it begins with: byte 4l at half l.
const HALVES: [u8; 64] = {
    let mut shifts = [0; 64];
    let mut lane = 0;
    while lane < 16 {
        shifts[4 * lane] = 4 * lane as u8;
        lane += 1;
    }
    shifts
};

/// The codes of a group as bytes, in their order.
#[inline(always)]
fn packed<const SIGNED: bool>(_: Avx512, codes: &[__m512i; 4]) -> __m512i {
    // SAFETY: as in `methods`: the argument proves that the instructions are there.
    unsafe {
        let (low, high) = (_mm512_packs_epi32(codes[0], codes[1]), _mm512_packs_epi32(codes[2], codes[3]));
        let bytes = if SIGNED { _mm512_packs_epi16(low, high) } else { _mm512_packus_epi16(low, high) };
        _mm512_permutexvar_epi32(_mm512_loadu_epi32(UNPACKED.as_ptr()), bytes)
    }
}
