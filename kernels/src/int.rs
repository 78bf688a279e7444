//! Eight or four bits for each element, with a scale for each block.
//!
//! As in [`crate::sign`] a block's second pass, which needs its scale, runs a block later.

use std::ops::Range;

use crate::dispatch::Job;
use crate::format::{IntFormat, IntWidth, LANES, Rounding, flush};
use crate::groups::{Ahead, first, fold, lanes, largest_lane, load, store};
use crate::int_decode::Codes;
use crate::sign::{Input, NO_FLUSH_MIN, Source, compensate, split_residual};
use crate::simd::{Simd, unrolled};
use crate::steps::{Steps, put_bytes, put_halves};
use crate::{IntPart, IntPartMut, Residual, Stores, reference};

/// Elements of a block that waits outside of the new residual.
const HELD_MAX: usize = 2048;

/// The data of an encoder. `SYMMETRIC` of its methods comes from the format.
struct IntEncoder<'a, S, R> {
    simd: S,
    source: R,
    /// The number of the first element of this job.
    first: usize,
    elements: usize,
    format: IntFormat,
    rounding: Rounding,
    output: IntPartMut<'a>,
    bad: Option<usize>,
    ahead: Ahead,
}

impl<S: Simd, R: Source<S>> IntEncoder<'_, S, R> {
    #[inline(always)]
    fn blocks(&self) -> usize {
        self.elements.div_ceil(self.format.block)
    }

    #[inline(always)]
    fn elements_of(&self, number: usize) -> Range<usize> {
        number * self.format.block..self.elements.min((number + 1) * self.format.block)
    }

    /// Finds a block's scale; the numbers go to `held`.
    #[inline(always)]
    fn measure<const SYMMETRIC: bool>(
        &mut self,
        number: usize,
        old: Option<&[f32]>,
        mut held: Option<&mut [f32]>,
    ) {
        let (simd, Range { start, end }) = (self.simd, self.elements_of(number));
        self.source.begin(simd, number);
        let mut largest = simd.zeros();
        let (mut min, mut max) = (simd.splat(f32::INFINITY), simd.splat(f32::NEG_INFINITY));
        let mut at = start;
        while at < end {
            let mut values = self.source.load(simd, at);
            // The largest of numbers of which none is normal gives a scale of zero as zeros do.
            if old.is_some() || held.is_some() || !SYMMETRIC {
                values = compensate(simd, values, old, at, self.ahead);
            }
            if let Some(held) = &mut held {
                store(simd, held, at - start, values, Stores::Cached);
            }
            if !SYMMETRIC && end - at < LANES {
                values = with_first_behind(simd, values, end - at);
            }
            unrolled!(for number in S {
                largest[number] = simd.max_magnitude(largest[number], simd.abs(values[number]));
                if !SYMMETRIC {
                    min = simd.min(min, values[number]);
                    max = simd.max(max, values[number]);
                }
            });
            at += LANES;
        }
        let magnitude = largest_lane(simd, largest);
        let scales = self.format.scales_per_block();
        let scales = &mut self.output.scales[number * scales..][..scales];
        let mut range = magnitude;
        if !SYMMETRIC {
            let min = fold(simd, min, |left, right| if left < right { left } else { right });
            scales[1] = min;
            range = flush(fold(simd, max, |left, right| if left > right { left } else { right }) - min);
        }
        let is_finite = magnitude.is_finite() && range.is_finite();
        match self.format.scale(range).filter(|_| is_finite) {
            Some(scale) => scales[0] = scale,
            None => {
                scales[0] = 0.0;
                self.bad = self.bad.or(Some(number));
            }
        }
    }

    #[inline(always)]
    fn steps<const SYMMETRIC: bool>(&self, number: usize) -> Steps {
        let scale = self.output.scales[number * self.format.scales_per_block()];
        Steps::new(scale, if SYMMETRIC { 0.0 } else { self.output.scales[2 * number + 1] })
    }

    /// Writes the codes of a group; returns their errors.
    #[inline(always)]
    fn code<const SYMMETRIC: bool>(
        &mut self,
        steps: Steps,
        values: S::Lanes,
        at: usize,
        count: usize,
    ) -> S::Lanes {
        let simd = self.simd;
        let codes = steps.codes::<S, SYMMETRIC>(simd, values, self.rounding, self.first + at);
        match self.format.width {
            IntWidth::Eight => put_bytes::<S, SYMMETRIC>(simd, &codes, &mut self.output.codes[at..]),
            IntWidth::Four => put_halves(simd, &codes, &mut self.output.codes[at / 2..], count),
        }
        steps.left_out::<S, SYMMETRIC>(simd, values, &codes)
    }

    #[inline(always)]
    fn encode(mut self, residual: Option<Residual<'_>>, stores: Stores) -> Option<usize> {
        if self.format.symmetric {
            self.encode_as::<true>(residual, stores);
        } else {
            self.encode_as::<false>(residual, stores);
        }
        self.bad
    }

    #[inline(always)]
    fn encode_as<const SYMMETRIC: bool>(&mut self, residual: Option<Residual<'_>>, stores: Stores) {
        let fits = self.format.block <= HELD_MAX;
        match (residual, stores) {
            (None, _) if R::IS_MEMORY || !fits => self.again::<SYMMETRIC>(),
            (None, _) => self.hold::<SYMMETRIC>(None),
            (Some(residual), Stores::Streaming) if fits => self.hold::<SYMMETRIC>(Some(residual)),
            (Some(residual), _) => self.rewrite::<SYMMETRIC>(residual),
        }
    }

    /// The source gives each block twice.
    #[inline(always)]
    fn again<const SYMMETRIC: bool>(&mut self) {
        let blocks = self.blocks();
        for number in 0..blocks + usize::from(R::IS_MEMORY) {
            if number < blocks {
                self.measure::<SYMMETRIC>(number, None, None);
            }
            // Only from memory, whose groups do not depend on the block that was begun.
            let Some(last) = number.checked_sub(usize::from(R::IS_MEMORY)) else { continue };
            let (steps, Range { start, end }) = (self.steps::<SYMMETRIC>(last), self.elements_of(last));
            let mut at = start;
            while at < end {
                let mut values = self.source.load(self.simd, at);
                // Subnormal numbers are too small for code 1, or for a chance of it.
                if steps.scale < NO_FLUSH_MIN || !SYMMETRIC {
                    values = compensate(self.simd, values, None, at, self.ahead);
                }
                self.code::<SYMMETRIC>(steps, values, at, end - at);
                at += LANES;
            }
        }
    }

    /// Blocks wait in the new residual.
    #[inline(always)]
    fn rewrite<const SYMMETRIC: bool>(&mut self, residual: Residual<'_>) {
        for number in 0..=self.blocks() {
            if number < self.blocks() {
                let held = &mut residual.new[self.elements_of(number)];
                self.measure::<SYMMETRIC>(number, Some(residual.old), Some(held));
            }
            let Some(last) = number.checked_sub(1) else { continue };
            let (steps, Range { start, end }) = (self.steps::<SYMMETRIC>(last), self.elements_of(last));
            let mut at = start;
            while at < end {
                let left = self.code::<SYMMETRIC>(steps, load(self.simd, residual.new, at), at, end - at);
                store(self.simd, &mut residual.new[..end], at, left, Stores::Cached);
                at += LANES;
            }
        }
    }

    /// Blocks wait elsewhere, so that the new residual is only written.
    #[inline(always)]
    fn hold<const SYMMETRIC: bool>(&mut self, mut residual: Option<Residual<'_>>) {
        let mut held = [[0.0; HELD_MAX]; 2];
        for number in 0..=self.blocks() {
            if number < self.blocks() {
                let held = &mut held[number % 2][..self.elements_of(number).len()];
                self.measure::<SYMMETRIC>(number, residual.as_ref().map(|residual| residual.old), Some(held));
            }
            let Some(last) = number.checked_sub(1) else { continue };
            let (steps, Range { start, end }) = (self.steps::<SYMMETRIC>(last), self.elements_of(last));
            let held = &held[last % 2][..end - start];
            let mut at = start;
            while at < end {
                let left = self.code::<SYMMETRIC>(steps, load(self.simd, held, at - start), at, end - at);
                if let Some(residual) = &mut residual {
                    store(self.simd, residual.new, at, left, Stores::Streaming);
                }
                at += LANES;
            }
        }
    }
}

/// The first `count` elements, then the first one again and again: a minimum does not heed these.
#[cold]
#[inline(always)]
fn with_first_behind<S: Simd>(simd: S, values: S::Lanes, count: usize) -> S::Lanes {
    let mut group = [0.0; LANES];
    unrolled!(for number in S {
        simd.store(&mut group, number, values[number]);
    });
    let first = group[0];
    group[count..].fill(first);
    lanes(simd, &group)
}

/// [`crate::Kernels::int_encode`].
pub(crate) struct IntEncode<'a> {
    pub(crate) input: &'a [f32],
    /// The number of the first element of this job.
    pub(crate) first: usize,
    pub(crate) residual: Option<Residual<'a>>,
    pub(crate) format: IntFormat,
    pub(crate) rounding: Rounding,
    pub(crate) output: IntPartMut<'a>,
}

impl Job for IntEncode<'_> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S, stores: Stores) -> Option<usize> {
        let IntEncode { input, first, residual, format, rounding, output } = self;
        let ahead = Ahead::of(residual.is_some(), stores);
        let (source, elements) = (Input(input, ahead), input.len());
        IntEncoder { simd, source, first, elements, format, rounding, output, bad: None, ahead }
            .encode(residual, stores)
    }

    fn define(self) -> Option<usize> {
        let IntEncode { input, first: _, residual, format, rounding, output } = self;
        reference::int_encode(input, residual, format, rounding, output.scales, output.codes)
    }

    fn elements(&self) -> usize {
        self.input.len()
    }

    fn unit(&self) -> usize {
        self.format.block
    }

    fn split(self, at: usize) -> (Self, Self) {
        let IntEncode { input, first, residual, format, rounding, output } = self;
        let (input, residual, output) =
            (input.split_at(at), split_residual(residual, at), output.split_at(at, format));
        (
            IntEncode { input: input.0, first, residual: residual.0, format, rounding, output: output.0 },
            IntEncode {
                input: input.1,
                first: first + at,
                residual: residual.1,
                format,
                rounding,
                output: output.1,
            },
        )
    }

    fn join(first: Option<usize>, second: Option<usize>, units: usize) -> Option<usize> {
        first.or(second.map(|block| units + block))
    }
}

/// The sum of several ranks' integers.
struct IntSum<'a> {
    codes: Codes<'a>,
    elements: usize,
}

impl<S: Simd> Source<S> for IntSum<'_> {
    const IS_MEMORY: bool = false;

    #[inline(always)]
    fn begin(&mut self, _: S, number: usize) {
        self.codes.begin(number);
    }

    #[inline(always)]
    fn load(&self, simd: S, at: usize) -> S::Lanes {
        first(simd, self.codes.sum(simd, at), self.elements - at)
    }
}

/// [`crate::Kernels::int_reduce_encode`].
pub(crate) struct IntReduceEncode<'a> {
    pub(crate) parts: &'a [IntPart<'a>],
    /// The number of the first element of this job.
    pub(crate) first: usize,
    pub(crate) elements: usize,
    pub(crate) residual: Option<Residual<'a>>,
    pub(crate) format: IntFormat,
    pub(crate) rounding: Rounding,
    pub(crate) output: IntPartMut<'a>,
}

impl Job for IntReduceEncode<'_> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S, stores: Stores) -> Option<usize> {
        let IntReduceEncode { parts, first, elements, residual, format, rounding, output } = self;
        let ahead = Ahead::of(residual.is_some(), stores);
        let source = IntSum { codes: Codes::new(parts, format, first), elements };
        IntEncoder { simd, source, first, elements, format, rounding, output, bad: None, ahead }
            .encode(residual, stores)
    }

    fn define(self) -> Option<usize> {
        let IntReduceEncode { parts, first: _, elements, residual, format, rounding, output } = self;
        reference::int_reduce_encode(parts, elements, residual, format, rounding, output.scales, output.codes)
    }

    fn elements(&self) -> usize {
        self.elements
    }

    fn unit(&self) -> usize {
        self.format.block
    }

    fn split(self, at: usize) -> (Self, Self) {
        let IntReduceEncode { parts, first, elements, residual, format, rounding, output } = self;
        let (residual, output) = (split_residual(residual, at), output.split_at(at, format));
        (
            IntReduceEncode {
                parts,
                first,
                elements: at,
                residual: residual.0,
                format,
                rounding,
                output: output.0,
            },
            IntReduceEncode {
                parts,
                first: first + at,
                elements: elements - at,
                residual: residual.1,
                format,
                rounding,
                output: output.1,
            },
        )
    }

    fn join(first: Option<usize>, second: Option<usize>, units: usize) -> Option<usize> {
        first.or(second.map(|block| units + block))
    }
}
