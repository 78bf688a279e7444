//! Signs back to f32: of one rank, or the sum of several.

use crate::dispatch::Job;
use crate::format::{LANES, flush};
use crate::groups::{store, weighted, word};
use crate::sign::{SignSum, Source};
use crate::simd::{Simd, unrolled};
use crate::{SignPart, Stores, reference};

/// [`crate::Kernels::sign_decode_sum`].
pub(crate) struct SignDecodeSum<'a> {
    pub(crate) parts: &'a [SignPart<'a>],
    /// The number of the first element of this job.
    pub(crate) first: usize,
    pub(crate) block: usize,
    pub(crate) weight: f32,
    pub(crate) output: &'a mut [f32],
}

impl Job for SignDecodeSum<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S, stores: Stores) {
        let SignDecodeSum { parts, first, block, weight, output } = self;
        let mut sum = SignSum::new(parts, first, output.len(), block);
        for (number, output) in output.chunks_mut(block).enumerate() {
            sum.begin(simd, number);
            let mut at = 0;
            while at < output.len() {
                let sums = sum.load(simd, number * block + at);
                store(simd, output, at, weighted(simd, sums, weight), stores);
                at += LANES;
            }
        }
    }

    fn define(self) {
        reference::sign_decode_sum(self.parts, self.block, self.weight, self.output);
    }

    fn elements(&self) -> usize {
        self.output.len()
    }

    fn unit(&self) -> usize {
        self.block
    }

    fn split(self, at: usize) -> (Self, Self) {
        let SignDecodeSum { parts, first, block, weight, output } = self;
        let output = output.split_at_mut(at);
        (
            SignDecodeSum { parts, first, block, weight, output: output.0 },
            SignDecodeSum { parts, first: first + at, block, weight, output: output.1 },
        )
    }

    fn join((): (), (): (), _: usize) {}
}

/// [`crate::Kernels::sign_expand`].
pub(crate) struct SignExpand<'a> {
    pub(crate) part: SignPart<'a>,
    pub(crate) block: usize,
    pub(crate) weight: f32,
    pub(crate) output: &'a mut [f32],
}

impl Job for SignExpand<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S, stores: Stores) {
        let SignExpand { part, block, weight, output } = self;
        for (number, output) in output.chunks_mut(block).enumerate() {
            let scale = simd.splat(flush(part.scales[number] * weight));
            let mut at = 0;
            while at < output.len() {
                let word = word(part.bits, number * block + at);
                let mut values = simd.zeros();
                unrolled!(for number in S {
                    values[number] = simd.signed(word, number, scale);
                });
                store(simd, output, at, values, stores);
                at += LANES;
            }
        }
    }

    fn define(self) {
        reference::sign_expand(self.part, self.block, self.weight, self.output);
    }

    fn elements(&self) -> usize {
        self.output.len()
    }

    fn unit(&self) -> usize {
        self.block
    }

    fn split(self, at: usize) -> (Self, Self) {
        let SignExpand { part: SignPart { scales, bits }, block, weight, output } = self;
        let (scales, bits) = (scales.split_at(at / block), bits.split_at(at / 32));
        let output = output.split_at_mut(at);
        (
            SignExpand { part: SignPart { scales: scales.0, bits: bits.0 }, block, weight, output: output.0 },
            SignExpand { part: SignPart { scales: scales.1, bits: bits.1 }, block, weight, output: output.1 },
        )
    }

    fn join((): (), (): (), _: usize) {}
}
