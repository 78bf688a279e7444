//! One bit for each element, with one scale for all: the first pass sums squares, the second packs.
//!
//! The sums of squares of blocks of 1,024 elements are put side by side and added by the caller, so that the total is
//! the same for any number of threads and on any device.

use crate::dispatch::Job;
use crate::format::{self, LANES, SQUARES_BLOCK, power_of_two, squares_shift};
use crate::groups::{Ahead, first, largest_lane, load, load_ahead, put_word, store, tree};
use crate::sign::{compensate, left_out, plus_bits, sum_of_signs};
use crate::simd::{Simd, unrolled};
use crate::{GlobalSignPart, Stores, reference};

/// The output of a first pass.
pub(crate) struct Sums<'a> {
    /// The numbers to encode.
    pub(crate) values: &'a mut [f32],
    /// The sum of squares of each block.
    pub(crate) squares: &'a mut [f64],
}

impl<'a> Sums<'a> {
    fn split_at(self, at: usize) -> (Sums<'a>, Sums<'a>) {
        let (values, squares) = (self.values.split_at_mut(at), self.squares.split_at_mut(at / SQUARES_BLOCK));
        (Sums { values: values.0, squares: squares.0 }, Sums { values: values.1, squares: squares.1 })
    }

    /// `load` gives the group at an element, with the old residual.
    #[inline(always)]
    fn fill<S: Simd>(self, simd: S, stores: Stores, source: impl Values<S>) {
        let length = self.values.len();
        for (number, squares) in self.squares.iter_mut().enumerate() {
            let (mut sums, mut largest) = (simd.zeros(), simd.zeros());
            let (start, end) = (number * SQUARES_BLOCK, length.min((number + 1) * SQUARES_BLOCK));
            let mut at = start;
            while at < end {
                let values = source.load(simd, at);
                add_squares(simd, &mut sums, values);
                unrolled!(for number in S {
                    largest[number] = simd.max_magnitude(largest[number], simd.abs(values[number]));
                });
                store(simd, self.values, at, values, stores);
                at += LANES;
            }
            let shift = squares_shift(largest_lane(simd, largest));
            if shift != 0 {
                sums = simd.zeros();
                let mut at = start;
                while at < end {
                    let mut values = load(simd, &self.values[..end], at);
                    unrolled!(for number in S {
                        values[number] =
                            simd.flush(simd.mul(values[number], simd.splat(power_of_two(-shift))));
                    });
                    add_squares(simd, &mut sums, values);
                    at += LANES;
                }
            }
            *squares = format::squares(tree(simd, sums), shift);
        }
    }
}

#[inline(always)]
fn add_squares<S: Simd>(simd: S, sums: &mut S::Lanes, values: S::Lanes) {
    unrolled!(for number in S {
        sums[number] = simd.add(sums[number], simd.flush(simd.mul(values[number], values[number])));
    });
}

/// The source of groups.
trait Values<S: Simd> {
    fn load(&self, simd: S, at: usize) -> S::Lanes;
}

/// [`crate::Kernels::compensate`].
pub(crate) struct Compensate<'a> {
    pub(crate) input: &'a [f32],
    pub(crate) old: &'a [f32],
    pub(crate) sums: Sums<'a>,
}

struct Compensated<'a>(&'a [f32], &'a [f32], Ahead);

impl<S: Simd> Values<S> for Compensated<'_> {
    #[inline(always)]
    fn load(&self, simd: S, at: usize) -> S::Lanes {
        compensate(simd, load_ahead(simd, self.0, at, self.2), Some(self.1), at, self.2)
    }
}

impl Job for Compensate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S, stores: Stores) {
        self.sums.fill(simd, stores, Compensated(self.input, self.old, Ahead::of(true, stores)));
    }

    fn define(self) {
        reference::compensate(self.input, self.old, self.sums.values, self.sums.squares);
    }

    fn elements(&self) -> usize {
        self.input.len()
    }

    fn unit(&self) -> usize {
        SQUARES_BLOCK
    }

    fn split(self, at: usize) -> (Self, Self) {
        let (input, old, sums) = (self.input.split_at(at), self.old.split_at(at), self.sums.split_at(at));
        (
            Compensate { input: input.0, old: old.0, sums: sums.0 },
            Compensate { input: input.1, old: old.1, sums: sums.1 },
        )
    }

    fn join((): (), (): (), _: usize) {}
}

/// [`crate::Kernels::sign_reduce_global`].
pub(crate) struct Reduce<'a> {
    pub(crate) parts: &'a [GlobalSignPart<'a>],
    /// The number of the first element of this job.
    pub(crate) first: usize,
    pub(crate) old: &'a [f32],
    pub(crate) sums: Sums<'a>,
}

struct GlobalSignSum<'a, S: Simd> {
    parts: &'a [GlobalSignPart<'a>],
    first: usize,
    old: &'a [f32],
    /// One for four parts.
    tables: Vec<S::Table>,
    ahead: Ahead,
}

impl<S: Simd> Values<S> for GlobalSignSum<'_, S> {
    #[inline(always)]
    fn load(&self, simd: S, at: usize) -> S::Lanes {
        let sums = sum_of_signs(simd, &self.tables, self.parts, |part| part.bits, self.first + at);
        compensate(simd, first(simd, sums, self.old.len() - at), Some(self.old), at, self.ahead)
    }
}

impl Job for Reduce<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S, stores: Stores) {
        let Reduce { parts, first, old, sums } = self;
        let mut tables = Vec::with_capacity(parts.len().div_ceil(4));
        for four in parts.chunks(4) {
            let mut scales = [0.0; 4];
            for (scale, part) in scales.iter_mut().zip(four) {
                *scale = part.scale;
            }
            tables.push(simd.table(&scales[..four.len()]));
        }
        sums.fill(simd, stores, GlobalSignSum { parts, first, old, tables, ahead: Ahead::of(true, stores) });
    }

    fn define(self) {
        reference::sign_reduce_global(self.parts, self.old, self.sums.values, self.sums.squares);
    }

    fn elements(&self) -> usize {
        self.old.len()
    }

    fn unit(&self) -> usize {
        SQUARES_BLOCK
    }

    fn split(self, at: usize) -> (Self, Self) {
        let Reduce { parts, first, old, sums } = self;
        let (old, sums) = (old.split_at(at), sums.split_at(at));
        (
            Reduce { parts, first, old: old.0, sums: sums.0 },
            Reduce { parts, first: first + at, old: old.1, sums: sums.1 },
        )
    }

    fn join((): (), (): (), _: usize) {}
}

/// [`crate::Kernels::sign_pack`].
pub(crate) struct Pack<'a> {
    pub(crate) values: &'a mut [f32],
    pub(crate) scale: f32,
    pub(crate) bits: &'a mut [u32],
}

impl Job for Pack<'_> {
    type Output = ();

    /// With stores through the caches, where the values are.
    #[inline(always)]
    fn run<S: Simd>(self, simd: S, _: Stores) {
        let Pack { values, scale, bits } = self;
        let mut at = 0;
        while at < values.len() {
            let group = load(simd, values, at);
            put_word(bits, at, plus_bits(simd, group), values.len() - at);
            store(simd, values, at, left_out(simd, group, scale), Stores::Cached);
            at += LANES;
        }
    }

    fn define(self) {
        reference::sign_pack(self.values, self.scale, self.bits);
    }

    fn elements(&self) -> usize {
        self.values.len()
    }

    fn unit(&self) -> usize {
        LANES
    }

    fn split(self, at: usize) -> (Self, Self) {
        let Pack { values, scale, bits } = self;
        let (values, bits) = (values.split_at_mut(at), bits.split_at_mut(at / 32));
        (Pack { values: values.0, scale, bits: bits.0 }, Pack { values: values.1, scale, bits: bits.1 })
    }

    fn join((): (), (): (), _: usize) {}
}
