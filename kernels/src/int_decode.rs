//! Integers back to f32: of one rank, or the sum of several.

use crate::dispatch::Job;
use crate::format::{IntFormat, IntWidth, LANES};
use crate::groups::{padded, store, weighted};
use crate::sign::NO_FLUSH_MIN;
use crate::simd::{Simd, unrolled};
use crate::{IntPart, Stores, reference};

/// The parts of a sum.
pub(crate) struct Codes<'a> {
    parts: &'a [IntPart<'a>],
    format: IntFormat,
    /// The number of the first element of this job.
    first: usize,
    /// The first of the block's scales in each part.
    scales: usize,
    /// Whether a sum of this block can be subnormal.
    flushes: bool,
}

impl<'a> Codes<'a> {
    pub(crate) fn new(parts: &'a [IntPart<'a>], format: IntFormat, first: usize) -> Codes<'a> {
        Codes { parts, format, first, scales: 0, flushes: true }
    }

    /// Before groups of block `number` of this job are summed.
    #[inline(always)]
    pub(crate) fn begin(&mut self, number: usize) {
        self.scales = (self.first / self.format.block + number) * self.format.scales_per_block();
        let is_small = |part: &IntPart<'_>| {
            let scale = part.scales[self.scales];
            scale != 0.0 && scale < NO_FLUSH_MIN
        };
        self.flushes = !self.format.symmetric || self.parts.iter().any(is_small);
    }

    /// The sum of the group that begins at element `at` of this job; anything behind the last element.
    #[inline(always)]
    pub(crate) fn sum<S: Simd>(&self, simd: S, at: usize) -> S::Lanes {
        let mut sums = simd.zeros();
        for part in self.parts {
            let codes = unpack(simd, part.codes, self.format, self.first + at);
            let scale = simd.splat(part.scales[self.scales]);
            unrolled!(for number in S {
                sums[number] = if self.format.symmetric {
                    simd.add_exact_product(sums[number], codes[number], scale)
                } else {
                    let origin = simd.splat(part.scales[self.scales + 1]);
                    simd.add(sums[number], simd.flush(simd.add_exact_product(origin, codes[number], scale)))
                };
            });
            if self.flushes {
                unrolled!(for number in S {
                    sums[number] = simd.flush(sums[number]);
                });
            }
        }
        sums
    }
}

/// The codes of the group that begins at element `at`.
#[inline(always)]
fn unpack<S: Simd>(simd: S, codes: &[u8], format: IntFormat, at: usize) -> S::Lanes {
    match format.width {
        IntWidth::Eight => {
            let (short, bytes);
            match codes[at..].first_chunk() {
                Some(group) => bytes = group,
                None => {
                    short = padded(&codes[at..]);
                    bytes = &short;
                }
            }
            if format.symmetric {
                simd.unpack_bytes::<true>(bytes)
            } else {
                simd.unpack_bytes::<false>(bytes)
            }
        }
        IntWidth::Four => {
            let (short, bytes);
            match codes[at / 2..].first_chunk() {
                Some(group) => bytes = group,
                None => {
                    short = padded(&codes[at / 2..]);
                    bytes = &short;
                }
            }
            if format.symmetric {
                simd.unpack_halves::<true>(bytes)
            } else {
                simd.unpack_halves::<false>(bytes)
            }
        }
    }
}

/// [`crate::Kernels::int_decode_sum`].
pub(crate) struct IntDecodeSum<'a> {
    pub(crate) parts: &'a [IntPart<'a>],
    /// The number of the first element of this job.
    pub(crate) first: usize,
    pub(crate) format: IntFormat,
    pub(crate) weight: f32,
    pub(crate) output: &'a mut [f32],
}

impl Job for IntDecodeSum<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S, stores: Stores) {
        let IntDecodeSum { parts, first, format, weight, output } = self;
        let mut codes = Codes::new(parts, format, first);
        for (number, output) in output.chunks_mut(format.block).enumerate() {
            codes.begin(number);
            let mut at = 0;
            while at < output.len() {
                let sums = codes.sum(simd, number * format.block + at);
                store(simd, output, at, weighted(simd, sums, weight), stores);
                at += LANES;
            }
        }
    }

    fn define(self) {
        reference::int_decode_sum(self.parts, self.format, self.weight, self.output);
    }

    fn elements(&self) -> usize {
        self.output.len()
    }

    fn unit(&self) -> usize {
        self.format.block
    }

    fn split(self, at: usize) -> (Self, Self) {
        let IntDecodeSum { parts, first, format, weight, output } = self;
        let output = output.split_at_mut(at);
        (
            IntDecodeSum { parts, first, format, weight, output: output.0 },
            IntDecodeSum { parts, first: first + at, format, weight, output: output.1 },
        )
    }

    fn join((): (), (): (), _: usize) {}
}

/// Whether a code x `scale` x `weight` can be subnormal, or -0.0.
#[inline(always)]
pub(crate) fn flushes(scale: f32, weight: f32) -> bool {
    !(weight > 0.0 && scale >= NO_FLUSH_MIN && scale * weight >= NO_FLUSH_MIN)
}

/// [`crate::Kernels::int_expand`].
pub(crate) struct IntExpand<'a> {
    pub(crate) part: IntPart<'a>,
    pub(crate) format: IntFormat,
    pub(crate) weight: f32,
    pub(crate) output: &'a mut [f32],
}

impl Job for IntExpand<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S, stores: Stores) {
        let IntExpand { part, format, weight, output } = self;
        for (number, output) in output.chunks_mut(format.block).enumerate() {
            let scales = &part.scales[number * format.scales_per_block()..][..format.scales_per_block()];
            let (scale, factor) = (simd.splat(scales[0]), simd.splat(weight));
            let flushes = flushes(scales[0], weight);
            let mut at = 0;
            while at < output.len() {
                let mut values = unpack(simd, part.codes, format, number * format.block + at);
                unrolled!(for number in S {
                    let value = match scales {
                        [_] => simd.mul(values[number], scale),
                        _ => {
                            let origin = simd.splat(scales[1]);
                            simd.flush(simd.add_exact_product(origin, values[number], scale))
                        }
                    };
                    values[number] = simd.mul(value, factor);
                });
                if flushes || !format.symmetric {
                    unrolled!(for number in S {
                        values[number] = simd.flush(values[number]);
                    });
                }
                store(simd, output, at, values, stores);
                at += LANES;
            }
        }
    }

    fn define(self) {
        reference::int_expand(self.part, self.format, self.weight, self.output);
    }

    fn elements(&self) -> usize {
        self.output.len()
    }

    fn unit(&self) -> usize {
        self.format.block
    }

    fn split(self, at: usize) -> (Self, Self) {
        let IntExpand { part: IntPart { scales, codes }, format, weight, output } = self;
        let (scales, codes) =
            (scales.split_at(format.scales(at)), codes.split_at(format.width.code_bytes(at)));
        let output = output.split_at_mut(at);
        (
            IntExpand {
                part: IntPart { scales: scales.0, codes: codes.0 },
                format,
                weight,
                output: output.0,
            },
            IntExpand {
                part: IntPart { scales: scales.1, codes: codes.1 },
                format,
                weight,
                output: output.1,
            },
        )
    }

    fn join((): (), (): (), _: usize) {}
}
