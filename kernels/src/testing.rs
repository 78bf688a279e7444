//! Inputs for tests of bodies of the kernels, here and on devices: lengths, numbers of all kinds, messages of ranks.
//! All from a seed, so that a failure can be repeated.

use crate::format::{Counter, IntFormat, IntWidth, Rounding};
use crate::{IntPart, IntPartMut, Kernels, SignPart, Stores, Target, sign_words};

/// Numbers from a seed: xorshift64*.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// From 0 to `bound - 1`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() >> 33) as usize % bound
    }

    /// From -1 to 1.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// One of these.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// The kind of a test's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mix {
    /// Of the size of gradients.
    Usual,
    /// Around the smallest normal number.
    Tiny,
    /// Of all sizes, with zeros of both signs, subnormal numbers and exact ties.
    Finite,
    /// With NaN, Inf and sums that overflow here and there.
    Wild,
}

/// All.
pub const MIXES: [Mix; 4] = [Mix::Usual, Mix::Tiny, Mix::Finite, Mix::Wild];

/// Elements with a common scale.
pub const BLOCKS: [usize; 4] = [64, 256, 1024, 4096];

/// The factors of sums.
pub const WEIGHTS: [f32; 5] = [1.0, 1.0 / 3.0, 1e-20, -2.0, 0.0];

/// The most parts of a sum.
pub const PARTS_MAX: usize = 9;

/// Numbers of a mix.
pub fn values(random: &mut Random, mix: Mix, count: usize) -> Vec<f32> {
    let special =
        [0.0, -0.0, 1e-40, -1e-40, f32::MIN_POSITIVE, -f32::MIN_POSITIVE, 1e-30, 0.5, -1.5, 2.5, 127.0, -7.0];
    let wild = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, -f32::NAN, 3e38];
    let size = (random.below(60) as f32 - 30.0).exp2();
    let value = |random: &mut Random| match (mix, random.below(4)) {
        (Mix::Usual, _) => random.unit(),
        (Mix::Tiny, _) => random.unit() * 1e-37,
        (Mix::Finite | Mix::Wild, 0) => random.one_of(&special),
        (Mix::Wild, 1) if random.below(500) == 0 => random.one_of(&wild),
        (Mix::Finite | Mix::Wild, 1) => random.unit() * size * (random.below(30) as f32 - 15.0).exp2(),
        (Mix::Finite | Mix::Wild, _) => random.unit() * size,
    };
    (0..count).map(|_| value(random)).collect()
}

/// Numbers that a residual may hold.
pub fn residual(random: &mut Random, mix: Mix, count: usize) -> Vec<f32> {
    let flushed = |value: f32| if value.is_normal() { value } else { 0.0 };
    values(random, mix, count).into_iter().map(flushed).collect()
}

/// One rank's signs, as [`SignPart`] lends them.
#[derive(Clone, Debug)]
pub struct SentSigns {
    /// One for each block.
    pub scales: Vec<f32>,
    /// One bit for each element.
    pub bits: Vec<u32>,
}

impl SentSigns {
    /// A rank's message: scales of a mix, with zeros and tiny ones, and in [`Mix::Wild`] scales that overflow; any
    /// bits, also behind the last element.
    pub fn new(random: &mut Random, mix: Mix, count: usize, block: usize) -> SentSigns {
        let scale = |random: &mut Random| match (mix, random.below(8)) {
            (Mix::Usual, _) => random.unit().abs(),
            (Mix::Tiny, 0) | (Mix::Finite, 0) => 0.0,
            (Mix::Tiny, _) => f32::MIN_POSITIVE * (1.0 + random.unit().abs()),
            (Mix::Wild, 0) if random.below(20) == 0 => 3e38,
            (Mix::Finite | Mix::Wild, _) => random.unit().abs() * (random.below(90) as f32 - 60.0).exp2(),
        };
        SentSigns {
            scales: (0..count.div_ceil(block)).map(|_| scale(random)).collect(),
            bits: (0..sign_words(count)).map(|_| random.bits() as u32).collect(),
        }
    }

    /// For a call.
    pub fn part(&self) -> SignPart<'_> {
        SignPart { scales: &self.scales, bits: &self.bits }
    }
}

/// One rank's integers, as [`IntPart`] lends them.
#[derive(Clone, Debug)]
pub struct SentInts {
    /// The scales of each block.
    pub scales: Vec<f32>,
    /// The codes.
    pub codes: Vec<u8>,
}

impl SentInts {
    /// A rank's message: numbers of a mix, encoded by the definition; in [`Mix::Wild`] with codes that no encoder
    /// writes.
    pub fn new(random: &mut Random, mix: Mix, count: usize, format: IntFormat) -> SentInts {
        let input = values(random, if mix == Mix::Wild { Mix::Finite } else { mix }, count);
        let mut sent = SentInts {
            scales: vec![0.0; format.scales(count)],
            codes: vec![0; format.width.code_bytes(count)],
        };
        let output = IntPartMut { scales: &mut sent.scales, codes: &mut sent.codes };
        assert_eq!(definition().int_encode(&input, None, format, Rounding::Nearest, output), None);
        if mix == Mix::Wild {
            sent.codes.iter_mut().for_each(|code| *code = random.bits() as u8);
        }
        sent
    }

    /// For a call.
    pub fn part(&self) -> IntPart<'_> {
        IntPart { scales: &self.scales, codes: &self.codes }
    }
}

/// One rank's bf16: any bits but NaN, Inf and numbers whose sums would be one of these.
pub fn narrow(random: &mut Random, count: usize) -> Vec<u16> {
    (0..count).map(|_| random.bits() as u16 & 0xbfff).collect()
}

/// Magnitudes for [`Kernels::int_encode_shared`]: of this input, here and there larger because of another rank's.
/// `None` if an element is not finite.
pub fn magnitudes(
    random: &mut Random,
    input: &[f32],
    old: Option<&[f32]>,
    format: IntFormat,
) -> Option<Vec<u32>> {
    let mut magnitudes = vec![0; format.scales(input.len())];
    definition().int_magnitudes(input, old, format.block, &mut magnitudes);
    for magnitude in &mut magnitudes {
        let own = f32::from_bits(*magnitude);
        let other = match random.below(6) {
            0 => own * (1.0 + 9.0 * random.unit().abs()),
            1 => f32::MIN_POSITIVE,
            2 if random.below(10) == 0 => f32::MAX,
            _ => 0.0,
        };
        *magnitude = own.max(other).to_bits();
    }
    let is_finite = |magnitude: &u32| f32::from_bits(*magnitude).is_finite();
    magnitudes.iter().all(is_finite).then_some(magnitudes)
}

/// Every body of this machine but the definition, with both kinds of stores.
pub fn bodies() -> Vec<Kernels> {
    let targets = Target::ALL.into_iter().filter(|target| *target != Target::Reference);
    let kernels = targets.filter_map(Kernels::of);
    kernels.flat_map(|kernels| [kernels, kernels.with_stores(Stores::Streaming)]).collect()
}

/// The bodies of [`Target::Reference`].
pub fn definition() -> Kernels {
    #[expect(clippy::expect_used, reason = "the definition runs on every processor")]
    Kernels::of(Target::Reference).expect("the definition is available")
}

/// All with blocks of so many elements.
pub fn formats(block: usize) -> [IntFormat; 4] {
    [(IntWidth::Eight, true), (IntWidth::Eight, false), (IntWidth::Four, true), (IntWidth::Four, false)]
        .map(|(width, symmetric)| IntFormat { width, block, symmetric })
}

/// Both kinds.
pub fn roundings(random: &mut Random) -> [Rounding; 2] {
    let counter = Counter { key: random.bits(), first: random.bits() >> random.below(64) };
    [Rounding::Nearest, Rounding::Stochastic(counter)]
}

/// As many lengths as tests need: all short ones, some of several blocks and a partial one.
pub fn lengths(random: &mut Random) -> Vec<usize> {
    let mut lengths: Vec<usize> = (0..=200).collect();
    lengths.extend([1023, 1024, 1025, 4096, 4159]);
    lengths.extend((0..12).map(|_| 200 + random.below(12_000)));
    lengths
}

/// Bits that can be compared: which NaN it is is not defined.
pub fn bits_of(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| if value.is_nan() { f32::NAN.to_bits() } else { value.to_bits() }).collect()
}
