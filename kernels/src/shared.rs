//! Integers by scales that all ranks share, so that codes can be added: the magnitudes that make the scales, codes, and
//! sums of codes back to f32.

use crate::dispatch::Job;
use crate::format::{CodeSize, IntFormat, LANES, Rounding};
use crate::groups::{Ahead, cut, lanes, largest_lane, load_ahead, padded, store, weighted};
use crate::int_decode::flushes;
use crate::sign::{compensate, split_residual};
use crate::simd::{Group, Simd, unrolled};
use crate::steps::{Steps, put_bytes};
use crate::{Residual, Stores, reference};

/// [`crate::Kernels::int_magnitudes`].
pub(crate) struct IntMagnitudes<'a> {
    pub(crate) input: &'a [f32],
    pub(crate) old: Option<&'a [f32]>,
    pub(crate) block: usize,
    pub(crate) output: &'a mut [u32],
}

impl Job for IntMagnitudes<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S, stores: Stores) {
        let IntMagnitudes { input, old, block, output } = self;
        let ahead = Ahead::of(old.is_some(), stores);
        for (number, output) in output.iter_mut().enumerate() {
            let (mut at, end) = (number * block, input.len().min((number + 1) * block));
            let mut largest = simd.zeros();
            while at < end {
                let values = compensate(simd, load_ahead(simd, input, at, ahead), old, at, ahead);
                unrolled!(for number in S {
                    largest[number] = simd.max_magnitude(largest[number], simd.abs(values[number]));
                });
                at += LANES;
            }
            *output = largest_lane(simd, largest).to_bits().min(f32::INFINITY.to_bits());
        }
    }

    fn define(self) {
        reference::int_magnitudes(self.input, self.old, self.block, self.output);
    }

    fn elements(&self) -> usize {
        self.input.len()
    }

    fn unit(&self) -> usize {
        self.block
    }

    fn split(self, at: usize) -> (Self, Self) {
        let IntMagnitudes { input, old, block, output } = self;
        let (input, output) = (input.split_at(at), output.split_at_mut(at / block));
        let old = old.map(|old| old.split_at(at)).unzip();
        (
            IntMagnitudes { input: input.0, old: old.0, block, output: output.0 },
            IntMagnitudes { input: input.1, old: old.1, block, output: output.1 },
        )
    }

    fn join((): (), (): (), _: usize) {}
}

/// The scale of block `number`.
#[inline(always)]
fn scale(format: IntFormat, magnitudes: &[u32], number: usize) -> f32 {
    format.scale(f32::from_bits(magnitudes[number])).unwrap_or(0.0)
}

/// Writes a group's codes to the beginning of `bytes`, of which the last group may have fewer.
#[inline(always)]
fn put<S: Simd>(simd: S, codes: &S::Codes, size: CodeSize, bytes: &mut [u8]) {
    let ints = || {
        let mut ints = [0i32; LANES];
        unrolled!(for number in S {
            simd.store_ints(&mut ints, number, codes[number]);
        });
        ints
    };
    match size {
        CodeSize::One => put_bytes::<S, true>(simd, codes, bytes),
        CodeSize::Two => put_array(ints().map(|code| (code as i16).to_le_bytes()).as_flattened(), bytes),
        CodeSize::Four => put_array(ints().map(i32::to_le_bytes).as_flattened(), bytes),
    }
}

/// As much of `group` as `bytes` hold.
#[inline(always)]
fn put_array(group: &[u8], bytes: &mut [u8]) {
    match bytes.get_mut(..group.len()) {
        Some(bytes) => bytes.copy_from_slice(group),
        None => cut(group, bytes),
    }
}

/// [`crate::Kernels::int_encode_shared`].
pub(crate) struct IntEncodeShared<'a> {
    pub(crate) input: &'a [f32],
    /// The number of the first element of this job.
    pub(crate) first: usize,
    pub(crate) residual: Option<Residual<'a>>,
    pub(crate) format: IntFormat,
    pub(crate) rounding: Rounding,
    pub(crate) magnitudes: &'a [u32],
    pub(crate) size: CodeSize,
    pub(crate) codes: &'a mut [u8],
}

impl Job for IntEncodeShared<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S, stores: Stores) {
        let IntEncodeShared { input, first, mut residual, format, rounding, magnitudes, size, codes } = self;
        let ahead = Ahead::of(residual.is_some(), stores);
        for number in 0..magnitudes.len() {
            let steps = Steps::new(scale(format, magnitudes, number), 0.0);
            let (mut at, end) = (number * format.block, input.len().min((number + 1) * format.block));
            while at < end {
                let old = residual.as_ref().map(|residual| residual.old);
                let values = compensate(simd, load_ahead(simd, input, at, ahead), old, at, ahead);
                let group = steps.codes::<S, true>(simd, values, rounding, first + at);
                put(simd, &group, size, &mut codes[at * size.bytes()..]);
                if let Some(residual) = &mut residual {
                    let left = steps.left_out::<S, true>(simd, values, &group);
                    store(simd, residual.new, at, left, stores);
                }
                at += LANES;
            }
        }
    }

    fn define(self) {
        let IntEncodeShared { input, first: _, residual, format, rounding, magnitudes, size, codes } = self;
        reference::int_encode_shared(input, residual, format, rounding, magnitudes, size, codes);
    }

    fn elements(&self) -> usize {
        self.input.len()
    }

    fn unit(&self) -> usize {
        self.format.block
    }

    fn split(self, at: usize) -> (Self, Self) {
        let IntEncodeShared { input, first, residual, format, rounding, magnitudes, size, codes } = self;
        let (input, residual) = (input.split_at(at), split_residual(residual, at));
        let magnitudes = magnitudes.split_at(at / format.block);
        let codes = codes.split_at_mut(at * size.bytes());
        (
            IntEncodeShared {
                input: input.0,
                first,
                residual: residual.0,
                format,
                rounding,
                magnitudes: magnitudes.0,
                size,
                codes: codes.0,
            },
            IntEncodeShared {
                input: input.1,
                first: first + at,
                residual: residual.1,
                format,
                rounding,
                magnitudes: magnitudes.1,
                size,
                codes: codes.1,
            },
        )
    }

    fn join((): (), (): (), _: usize) {}
}

/// The codes of the group that `bytes` begin with.
#[inline(always)]
fn unpack<S: Simd>(simd: S, bytes: &[u8], size: CodeSize) -> S::Lanes {
    match size {
        CodeSize::One => match bytes.first_chunk() {
            Some(bytes) => simd.unpack_bytes::<true>(bytes),
            None => simd.unpack_bytes::<true>(&padded(bytes)),
        },
        CodeSize::Two => {
            let floats = |bytes: &[u8; 2 * LANES]| -> Group {
                let codes = bytes.as_chunks().0;
                std::array::from_fn(|index| f32::from(i16::from_le_bytes(codes[index])))
            };
            lanes(simd, &bytes.first_chunk().map_or_else(|| floats(&padded(bytes)), floats))
        }
        CodeSize::Four => {
            let floats = |bytes: &[u8; 4 * LANES]| -> Group {
                let codes = bytes.as_chunks().0;
                std::array::from_fn(|index| i32::from_le_bytes(codes[index]) as f32)
            };
            lanes(simd, &bytes.first_chunk().map_or_else(|| floats(&padded(bytes)), floats))
        }
    }
}

/// [`crate::Kernels::int_expand_shared`].
pub(crate) struct IntExpandShared<'a> {
    pub(crate) codes: &'a [u8],
    pub(crate) size: CodeSize,
    pub(crate) format: IntFormat,
    pub(crate) magnitudes: &'a [u32],
    pub(crate) weight: f32,
    pub(crate) output: &'a mut [f32],
}

impl Job for IntExpandShared<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S, stores: Stores) {
        let IntExpandShared { codes, size, format, magnitudes, weight, output } = self;
        for (number, output) in output.chunks_mut(format.block).enumerate() {
            let scale = scale(format, magnitudes, number);
            let (flushes, step, factor) = (flushes(scale, weight), simd.splat(scale), simd.splat(weight));
            let mut at = 0;
            while at < output.len() {
                let mut values = unpack(simd, &codes[(number * format.block + at) * size.bytes()..], size);
                if flushes {
                    values = weighted(simd, weighted(simd, values, scale), weight);
                } else {
                    unrolled!(for number in S {
                        values[number] = simd.mul(simd.mul(values[number], step), factor);
                    });
                }
                store(simd, output, at, values, stores);
                at += LANES;
            }
        }
    }

    fn define(self) {
        let IntExpandShared { codes, size, format, magnitudes, weight, output } = self;
        reference::int_expand_shared(codes, size, format, magnitudes, weight, output);
    }

    fn elements(&self) -> usize {
        self.output.len()
    }

    fn unit(&self) -> usize {
        self.format.block
    }

    fn split(self, at: usize) -> (Self, Self) {
        let IntExpandShared { codes, size, format, magnitudes, weight, output } = self;
        let (codes, magnitudes) = (codes.split_at(at * size.bytes()), magnitudes.split_at(at / format.block));
        let output = output.split_at_mut(at);
        (
            IntExpandShared {
                codes: codes.0,
                size,
                format,
                magnitudes: magnitudes.0,
                weight,
                output: output.0,
            },
            IntExpandShared {
                codes: codes.1,
                size,
                format,
                magnitudes: magnitudes.1,
                weight,
                output: output.1,
            },
        )
    }

    fn join((): (), (): (), _: usize) {}
}
