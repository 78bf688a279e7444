//! The numbers of the formats, defined so that every device gives the same bytes: sums in a fixed order, no division or
//! root that a device rounds in its own way, no product that a device could fuse with a sum and change.

/// Elements that are summed side by side: element i of a block belongs to lane i % 64.
pub const LANES: usize = 64;

/// The bits of an f32 that hold its exponent.
const EXPONENT: u32 = 0x7f80_0000;

/// Blocks of integers whose scale would be below this are zero: 2^-120.
pub const INT_SCALE_MIN: f32 = f32::from_bits((127 - 120) << 23);

/// `value`, or +0.0 if it is zero or subnormal.
#[inline(always)]
pub fn flush(value: f32) -> f32 {
    if value.to_bits() & EXPONENT == 0 { 0.0 } else { value }
}

/// Whether the bit of `value` is set: always but for negative numbers that are neither zero nor subnormal.
#[inline(always)]
pub fn is_plus(value: f32) -> bool {
    value.to_bits() >> 31 == 0 || value.to_bits() & EXPONENT == 0
}

/// The sum of the lanes: halves are added until one is left.
#[inline(always)]
pub fn tree(lanes: &[f32; LANES]) -> f32 {
    let mut sums = *lanes;
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
        width /= 2;
    }
    sums[0]
}

/// The factor from the sum of the lanes of a block of `count` elements, each divided by [`LANES`], to the mean. A
/// division of two integers that f32 holds exactly, made on the host: devices get the quotient.
pub fn mean_factor(count: usize) -> f32 {
    LANES as f32 / count as f32
}

/// The mean of `count` elements from the sums of the lanes. Lanes are divided before they are added, so that a sum
/// overflows only when a lane does.
#[inline(always)]
pub fn mean(lanes: &[f32; LANES], count: usize) -> f32 {
    let lanes = lanes.map(|lane| flush(lane * (1.0 / LANES as f32)));
    flush(tree(&lanes) * mean_factor(count))
}

/// Elements whose squares are summed in f32.
pub const SQUARES_BLOCK: usize = 1024;

/// The exponent of two by which the numbers of a block are divided before they are squared, so that squares neither
/// overflow nor vanish. `largest` is the largest magnitude of the block: as long as it is from 2^-40 to 2^50, nothing
/// is divided.
#[inline(always)]
pub fn squares_shift(largest: f32) -> i32 {
    let exponent = (largest.to_bits() >> 23) as i32 - 127;
    // No normal number has the exponent of zero.
    let is_usual = exponent == -127 || (-40..50).contains(&exponent);
    // 2^-126 is the smallest factor that is normal.
    if is_usual { 0 } else { exponent.min(126) }
}

/// The sum of the squares of a block: `sum`, which the lanes summed after the elements' shift by [`squares_shift`].
#[inline(always)]
pub fn squares(sum: f32, shift: i32) -> f64 {
    let factor = f64::from_bits(((2 * shift + 1023) as u64) << 52);
    f64::from(sum) * factor
}

/// The scale of a global encoder: the root of the mean of squares. `None` if it is not finite.
pub fn root_mean_square(squares: f64, count: usize) -> Option<f32> {
    let scale = flush((squares / count.max(1) as f64).sqrt() as f32);
    scale.is_finite().then_some(scale)
}

/// The width of an integer code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntWidth {
    /// Eight bits: one code in each byte, in two's complement (symmetric) or without a sign (asymmetric).
    Eight,
    /// Four bits: element 2i in the low half of byte i, element 2i + 1 in the high half.
    Four,
}

impl IntWidth {
    /// The number of bytes that hold the codes of `elements`.
    pub const fn code_bytes(self, elements: usize) -> usize {
        match self {
            IntWidth::Eight => elements,
            IntWidth::Four => elements.div_ceil(2),
        }
    }

    /// The largest magnitude of a symmetric code: -127 to 127, or -7 to 7.
    pub const fn symmetric_max(self) -> u32 {
        match self {
            IntWidth::Eight => 127,
            IntWidth::Four => 7,
        }
    }

    /// The largest asymmetric code: 0 to 255, or 0 to 15.
    pub const fn asymmetric_max(self) -> u32 {
        match self {
            IntWidth::Eight => 255,
            IntWidth::Four => 15,
        }
    }
}

/// The encoding of a block by integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IntFormat {
    /// Bits of a code.
    pub width: IntWidth,
    /// Elements with a common scale; a multiple of 64.
    pub block: usize,
    /// Symmetric: element = code x scale. Otherwise element = code x scale + the smallest element of the block.
    pub symmetric: bool,
}

impl IntFormat {
    /// One scale, or scale and smallest element.
    pub const fn scales_per_block(self) -> usize {
        if self.symmetric { 1 } else { 2 }
    }

    /// The number of scales of `elements`.
    pub const fn scales(self, elements: usize) -> usize {
        elements.div_ceil(self.block) * self.scales_per_block()
    }

    /// The number of steps between the smallest and the largest code on one side of zero, or in all.
    pub const fn steps(self) -> u32 {
        if self.symmetric { self.width.symmetric_max() } else { self.width.asymmetric_max() }
    }

    /// The scale of a block whose largest magnitude (or range) is `range`: a little more than `range / steps`, with 16
    /// significant bits, so that code x scale is exact and a device that fuses it with a sum gives the same bits. Zero
    /// if that would be below [`INT_SCALE_MIN`], `None` if such a product could overflow.
    #[inline(always)]
    pub fn scale(self, range: f32) -> Option<f32> {
        // The quotient of two constants, rounded once.
        let scale = range * (1.0 / self.steps() as f32);
        // Up by at least five units in the last place, more than the roundings of this and the later product, so that
        // no code is larger than `steps`, for any random bits.
        let scale = f32::from_bits(scale.to_bits().wrapping_add(0x104) & !0xff);
        let scale = if scale < INT_SCALE_MIN { 0.0 } else { scale };
        self.is_scale(scale).then_some(scale)
    }

    /// Whether an encoder can have made this scale.
    #[inline(always)]
    pub fn is_scale(self, scale: f32) -> bool {
        let end = match self.width {
            IntWidth::Eight => power_of_two(120),
            IntWidth::Four => power_of_two(124),
        };
        let is_in_range = scale == 0.0 || (INT_SCALE_MIN..end).contains(&scale);
        is_in_range && scale.is_sign_positive() && scale.to_bits() & 0xff == 0
    }
}

/// The number of bytes of a code of [`Kernels::int_encode_shared`](crate::Kernels::int_encode_shared), or a sum of such
/// codes: an integer in two's complement, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodeSize {
    /// i8: one code of eight bits, or sums of 18 of four.
    One,
    /// i16: sums of 258 codes of eight bits, or of 4,681 of four.
    Two,
    /// i32: as many as f32 holds exactly, magnitudes below 2^24.
    Four,
}

impl CodeSize {
    /// All, the smallest first.
    pub const ALL: [CodeSize; 3] = [CodeSize::One, CodeSize::Two, CodeSize::Four];

    /// The number.
    pub const fn bytes(self) -> usize {
        match self {
            CodeSize::One => 1,
            CodeSize::Two => 2,
            CodeSize::Four => 4,
        }
    }
}

/// The rounding of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To the nearest, ties to even.
    Nearest,
    /// Up or down, with probabilities that make the expected value right, by random bits that depend on nothing but
    /// this counter and the element's number.
    Stochastic(Counter),
}

/// The source of random bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Different for each rank and call.
    pub key: u64,
    /// The number of the input's first element.
    pub first: u64,
}

impl Counter {
    /// 16 random bits for element `index` of the input. Two elements share a word.
    #[inline(always)]
    pub fn bits(self, index: usize) -> u32 {
        let number = self.first.wrapping_add(index as u64);
        let word = self.word((number >> 1) as u32);
        if number & 1 == 0 { word & 0xffff } else { word >> 16 }
    }

    /// The random bits of elements 2 x `pair` (low half) and 2 x `pair` + 1.
    #[inline(always)]
    pub const fn word(self, pair: u32) -> u32 {
        mix(mix(pair ^ self.key as u32).wrapping_add((self.key >> 32) as u32))
    }
}

/// A bijection of 32-bit words whose output bits depend evenly on the input's: the constants of Wellons' hash
/// prospector ("lowbias32", revision of 2023).
#[inline(always)]
const fn mix(mut word: u32) -> u32 {
    word ^= word >> 16;
    word = word.wrapping_mul(0x21f0_aaad);
    word ^= word >> 15;
    word = word.wrapping_mul(0x735a_2d97);
    word ^ word >> 15
}

/// A little less than 1 / `scale`, for a scale of [`IntFormat::scale`] that is not zero: by division of integers, which
/// every device has and none rounds. The quotient of 2^39 and the 16 significant bits of the scale has 24 bits.
#[inline(always)]
pub fn int_reciprocal(scale: f32) -> f32 {
    let bits = scale.to_bits();
    let exponent = (bits >> 23) as i32 - 127;
    let significand = (bits & 0x007f_ffff | 0x0080_0000) >> 8;
    // Long division, for devices have no 64-bit integers. In (2^23, 2^24]: exact in f32.
    let (high, rest) = ((1 << 31) / significand, (1 << 31) % significand);
    let quotient = ((high << 8) + (rest << 8) / significand) as f32;
    // 1 / (significand x 2^(exponent - 15)) = quotient x 2^(15 - 39 - exponent).
    quotient * power_of_two(-24) * power_of_two(-exponent)
}

/// 2^`exponent`, for a normal number.
#[inline(always)]
pub(crate) const fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}
