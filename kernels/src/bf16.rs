//! f32 to bf16 and back.

use crate::Stores;
use crate::dispatch::Job;
use crate::format::{LANES, flush};
use crate::groups::{padded, store, weighted};
use crate::reference::{self, BF16_BLOCK};
use crate::simd::{Simd, unrolled};

/// From these bits of a magnitude on, the nearest bf16 is not finite.
const NOT_FINITE: u32 = 0x7f7f_8000;

/// `bits` of an f32 that is not NaN, to the nearest.
#[inline(always)]
fn narrow(value: f32) -> u16 {
    let bits = flush(value).to_bits();
    (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// [`crate::Kernels::bf16_encode`].
pub(crate) struct Bf16Encode<'a> {
    pub(crate) input: &'a [f32],
    pub(crate) output: &'a mut [u16],
}

impl Job for Bf16Encode<'_> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run<S: Simd>(self, _: S, _: Stores) -> Option<usize> {
        let mut bad = None;
        let blocks = self.input.chunks(BF16_BLOCK).zip(self.output.chunks_mut(BF16_BLOCK));
        for (number, (input, output)) in blocks.enumerate() {
            let mut largest = 0;
            for (input, output) in input.iter().zip(output) {
                *output = narrow(*input);
                largest = largest.max(input.abs().to_bits());
            }
            if largest >= NOT_FINITE {
                bad = bad.or(Some(number));
            }
        }
        bad
    }

    fn define(self) -> Option<usize> {
        reference::bf16_encode(self.input, self.output)
    }

    fn elements(&self) -> usize {
        self.input.len()
    }

    fn unit(&self) -> usize {
        BF16_BLOCK
    }

    fn split(self, at: usize) -> (Self, Self) {
        let (input, output) = (self.input.split_at(at), self.output.split_at_mut(at));
        (Bf16Encode { input: input.0, output: output.0 }, Bf16Encode { input: input.1, output: output.1 })
    }

    fn join(first: Option<usize>, second: Option<usize>, units: usize) -> Option<usize> {
        first.or(second.map(|block| units + block))
    }
}

/// The group of `narrow` that begins at `at`, in `short` if it is that.
#[inline(always)]
fn group<'a>(narrow: &'a [u16], at: usize, short: &'a mut [u16; LANES]) -> &'a [u16; LANES] {
    match narrow[at..].first_chunk() {
        Some(group) => group,
        None => {
            *short = padded(&narrow[at..]);
            short
        }
    }
}

/// [`crate::Kernels::bf16_decode_sum`].
pub(crate) struct Bf16DecodeSum<'a> {
    pub(crate) parts: &'a [&'a [u16]],
    /// The number of the first element of this job.
    pub(crate) first: usize,
    pub(crate) weight: f32,
    pub(crate) output: &'a mut [f32],
}

impl Job for Bf16DecodeSum<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S, stores: Stores) {
        let (mut at, mut short) = (0, [0; LANES]);
        while at < self.output.len() {
            let mut sums = simd.zeros();
            for part in self.parts {
                let group = group(part, self.first + at, &mut short);
                unrolled!(for number in S {
                    sums[number] = simd.flush(simd.flush_add(simd.widen(group, number), sums[number]));
                });
            }
            store(simd, self.output, at, weighted(simd, sums, self.weight), stores);
            at += LANES;
        }
    }

    fn define(self) {
        reference::bf16_decode_sum(self.parts, self.weight, self.output);
    }

    fn elements(&self) -> usize {
        self.output.len()
    }

    fn unit(&self) -> usize {
        BF16_BLOCK
    }

    fn split(self, at: usize) -> (Self, Self) {
        let Bf16DecodeSum { parts, first, weight, output } = self;
        let output = output.split_at_mut(at);
        (
            Bf16DecodeSum { parts, first, weight, output: output.0 },
            Bf16DecodeSum { parts, first: first + at, weight, output: output.1 },
        )
    }

    fn join((): (), (): (), _: usize) {}
}

/// [`crate::Kernels::bf16_expand`].
pub(crate) struct Bf16Expand<'a> {
    pub(crate) input: &'a [u16],
    pub(crate) weight: f32,
    pub(crate) output: &'a mut [f32],
}

impl Job for Bf16Expand<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S, stores: Stores) {
        let (mut at, mut short, mut values) = (0, [0; LANES], simd.zeros());
        while at < self.output.len() {
            let group = group(self.input, at, &mut short);
            unrolled!(for number in S {
                values[number] = simd.flush(simd.widen(group, number));
            });
            store(simd, self.output, at, weighted(simd, values, self.weight), stores);
            at += LANES;
        }
    }

    fn define(self) {
        reference::bf16_expand(self.input, self.weight, self.output);
    }

    fn elements(&self) -> usize {
        self.output.len()
    }

    fn unit(&self) -> usize {
        BF16_BLOCK
    }

    fn split(self, at: usize) -> (Self, Self) {
        let (input, output) = (self.input.split_at(at), self.output.split_at_mut(at));
        (
            Bf16Expand { input: input.0, weight: self.weight, output: output.0 },
            Bf16Expand { input: input.1, weight: self.weight, output: output.1 },
        )
    }

    fn join((): (), (): (), _: usize) {}
}
