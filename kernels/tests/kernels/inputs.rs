//! Inputs for tests, and the bodies to test.

use unisono_kernels::{Counter, IntFormat, IntWidth, Kernels, Rounding, Stores, Target};

/// Numbers from a seed: xorshift64*.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound
    }

    /// From -1 to 1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// What values of a test are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// Of the size of gradients.
    Usual,
    /// Around the smallest normal number.
    Tiny,
    /// Of all sizes, with zeros of both signs, subnormal numbers and exact ties.
    Finite,
    /// With NaN, Inf and sums that overflow here and there.
    Wild,
}

pub(crate) const MIXES: [Mix; 4] = [Mix::Usual, Mix::Tiny, Mix::Finite, Mix::Wild];

/// Numbers of a mix.
pub(crate) fn values(random: &mut Random, mix: Mix, count: usize) -> Vec<f32> {
    let special =
        [0.0, -0.0, 1e-40, -1e-40, f32::MIN_POSITIVE, -f32::MIN_POSITIVE, 1e-30, 0.5, -1.5, 2.5, 127.0, -7.0];
    let wild = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, -f32::NAN, 3e38];
    let size = (random.below(60) as f32 - 30.0).exp2();
    let value = |random: &mut Random| match (mix, random.below(4)) {
        (Mix::Usual, _) => random.unit(),
        (Mix::Tiny, _) => random.unit() * 1e-37,
        (Mix::Finite | Mix::Wild, 0) => special[random.below(special.len())],
        (Mix::Wild, 1) if random.below(500) == 0 => wild[random.below(wild.len())],
        (Mix::Finite | Mix::Wild, 1) => random.unit() * size * (random.below(30) as f32 - 15.0).exp2(),
        (Mix::Finite | Mix::Wild, _) => random.unit() * size,
    };
    (0..count).map(|_| value(random)).collect()
}

/// Numbers that a residual may hold.
pub(crate) fn residual(random: &mut Random, mix: Mix, count: usize) -> Vec<f32> {
    let flushed = |value: f32| if value.is_normal() { value } else { 0.0 };
    values(random, mix, count).into_iter().map(flushed).collect()
}

/// Every body of this machine but the definition, with both kinds of stores.
pub(crate) fn bodies() -> Vec<Kernels> {
    let targets = Target::ALL.into_iter().filter(|target| *target != Target::Reference);
    let kernels = targets.filter_map(Kernels::of);
    kernels.flat_map(|kernels| [kernels, kernels.with_stores(Stores::Streaming)]).collect()
}

pub(crate) fn definition() -> Kernels {
    // INVARIANT: every processor has what the definition needs.
    Kernels::of(Target::Reference).expect("the definition is available")
}

pub(crate) fn formats(block: usize) -> [IntFormat; 4] {
    [(IntWidth::Eight, true), (IntWidth::Eight, false), (IntWidth::Four, true), (IntWidth::Four, false)]
        .map(|(width, symmetric)| IntFormat { width, block, symmetric })
}

pub(crate) fn roundings(random: &mut Random) -> [Rounding; 2] {
    let counter = Counter { key: random.next(), first: random.next() >> random.below(64) };
    [Rounding::Nearest, Rounding::Stochastic(counter)]
}

/// As many lengths as tests need: all short ones, some of several blocks and a partial one.
pub(crate) fn lengths(random: &mut Random) -> Vec<usize> {
    let mut lengths: Vec<usize> = (0..=200).collect();
    lengths.extend([1023, 1024, 1025, 4096, 4159]);
    lengths.extend((0..12).map(|_| 200 + random.below(12_000)));
    lengths
}

pub(crate) fn bits_of(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
