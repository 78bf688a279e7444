//! One bit for each element, with a scale for each block.
//!
//! A block is read once: its magnitudes are summed and its signs packed in one pass, and the summed numbers wait in the
//! first-level cache for the second pass, which takes the scale from them. The second pass runs a block later, so that
//! it does not wait for the sum.

use std::ops::Range;

use crate::dispatch::Job;
use crate::format::{LANES, flush, mean_factor};
use crate::groups::{Ahead, first, load, load_ahead, put_word, store, tree, word};
use crate::simd::{Simd, unrolled};
use crate::{Residual, SignPart, SignPartMut, Stores, reference};

/// From this scale on, a number that is zero or normal, less plus or minus the scale, is zero or normal too, and so are
/// sums of such scales: all are multiples of 2^-124. 2^-100.
pub(crate) const NO_FLUSH_MIN: f32 = f32::from_bits((127 - 100) << 23);

/// Elements of a block that waits outside of the new residual.
const HELD_MAX: usize = 2048;

/// The source of the numbers to encode.
pub(crate) trait Source<S: Simd> {
    /// Whether loading a group again costs no more than keeping it.
    const IS_MEMORY: bool;

    /// Before groups of block `number` are loaded.
    fn begin(&mut self, simd: S, number: usize);
    /// The group that begins at element `at`, zero or normal only after a flush; zeros behind the last element.
    fn load(&self, simd: S, at: usize) -> S::Lanes;
}

/// Memory.
pub(crate) struct Input<'a>(pub(crate) &'a [f32], pub(crate) Ahead);

impl<S: Simd> Source<S> for Input<'_> {
    const IS_MEMORY: bool = true;

    #[inline(always)]
    fn begin(&mut self, _: S, _: usize) {}

    #[inline(always)]
    fn load(&self, simd: S, at: usize) -> S::Lanes {
        load_ahead(simd, self.0, at, self.1)
    }
}

/// The sum of several ranks' signs.
pub(crate) struct SignSum<'a, S: Simd> {
    parts: &'a [SignPart<'a>],
    /// The number of the first element of this job, and of all of them.
    first: usize,
    elements: usize,
    block: usize,
    /// One for four parts.
    tables: Vec<S::Table>,
}

impl<'a, S: Simd> SignSum<'a, S> {
    pub(crate) fn new(parts: &'a [SignPart<'a>], first: usize, elements: usize, block: usize) -> Self {
        SignSum { parts, first, elements, block, tables: Vec::with_capacity(parts.len().div_ceil(4)) }
    }
}

impl<S: Simd> Source<S> for SignSum<'_, S> {
    const IS_MEMORY: bool = false;

    #[inline(always)]
    fn begin(&mut self, simd: S, number: usize) {
        self.tables.clear();
        for four in self.parts.chunks(4) {
            let mut scales = [0.0; 4];
            for (scale, part) in scales.iter_mut().zip(four) {
                *scale = part.scales[self.first / self.block + number];
            }
            self.tables.push(simd.table(&scales[..four.len()]));
        }
    }

    #[inline(always)]
    fn load(&self, simd: S, at: usize) -> S::Lanes {
        let sums = sum_of_signs(simd, &self.tables, self.parts, |part| part.bits, self.first + at);
        first(simd, sums, self.elements - at)
    }
}

/// The sums of parts in the order of the definition: by fours.
#[inline(always)]
pub(crate) fn sum_of_signs<S: Simd, P>(
    simd: S,
    tables: &[S::Table],
    parts: &[P],
    bits: impl Fn(&P) -> &[u32],
    at: usize,
) -> S::Lanes {
    let mut sums = simd.zeros();
    for (number, (table, four)) in tables.iter().zip(parts.chunks(4)).enumerate() {
        let mut words = [0; 4];
        for (to, part) in words.iter_mut().zip(four) {
            *to = word(bits(part), at);
        }
        let looked_up = simd.look_up(table, &words);
        if number == 0 {
            sums = looked_up;
            continue;
        }
        unrolled!(for number in S {
            sums[number] = simd.flush(simd.add(sums[number], looked_up[number]));
        });
    }
    sums
}

/// Adds the old residual: the sums are encoded.
#[inline(always)]
pub(crate) fn compensate<S: Simd>(
    simd: S,
    mut values: S::Lanes,
    old: Option<&[f32]>,
    at: usize,
    ahead: Ahead,
) -> S::Lanes {
    let Some(old) = old else {
        unrolled!(for number in S {
            values[number] = simd.flush(values[number]);
        });
        return values;
    };
    let old = load_ahead(simd, old, at, ahead);
    unrolled!(for number in S {
        values[number] = simd.flush(simd.flush_add(values[number], old[number]));
    });
    values
}

/// The signs of numbers that are zero or normal.
#[inline(always)]
pub(crate) fn plus_bits<S: Simd>(simd: S, values: S::Lanes) -> u64 {
    let mut minus = 0;
    unrolled!(for number in S {
        minus |= simd.sign_bits(values[number]) << (number * (LANES / S::COUNT));
    });
    !minus
}

/// The errors of plus or minus `scale`.
#[inline(always)]
pub(crate) fn left_out<S: Simd>(simd: S, mut values: S::Lanes, scale: f32) -> S::Lanes {
    let splat = simd.splat(scale);
    unrolled!(for number in S {
        values[number] = simd.sub(values[number], simd.with_sign(splat, values[number]));
    });
    if scale < NO_FLUSH_MIN {
        unrolled!(for number in S {
            values[number] = simd.flush(values[number]);
        });
    }
    values
}

/// The data of an encoder.
struct SignEncoder<'a, S, R> {
    simd: S,
    source: R,
    elements: usize,
    block: usize,
    output: SignPartMut<'a>,
    ahead: Ahead,
}

impl<S: Simd, R: Source<S>> SignEncoder<'_, S, R> {
    #[inline(always)]
    fn elements_of(&self, number: usize) -> Range<usize> {
        number * self.block..self.elements.min((number + 1) * self.block)
    }

    /// Packs the signs of a block and finds its scale; the numbers go to `held`.
    #[inline(always)]
    fn pack(&mut self, number: usize, old: Option<&[f32]>, mut held: Option<&mut [f32]>) {
        let (simd, Range { start, end }) = (self.simd, self.elements_of(number));
        self.source.begin(simd, number);
        let mut sums = simd.zeros();
        let mut at = start;
        while at < end {
            let values = compensate(simd, self.source.load(simd, at), old, at, self.ahead);
            unrolled!(for number in S {
                sums[number] = simd.add(sums[number], simd.abs(values[number]));
            });
            put_word(self.output.bits, at, plus_bits(simd, values), end - at);
            if let Some(held) = &mut held {
                store(simd, held, at - start, values, Stores::Cached);
            }
            at += LANES;
        }
        let part = simd.splat(1.0 / LANES as f32);
        unrolled!(for number in S {
            sums[number] = simd.flush(simd.mul(sums[number], part));
        });
        self.output.scales[number] = flush(tree(simd, sums) * mean_factor(end - start));
    }

    #[inline(always)]
    fn encode(&mut self, residual: Option<Residual<'_>>, stores: Stores) -> Option<usize> {
        match (residual, stores) {
            (None, _) => {
                for number in 0..self.output.scales.len() {
                    self.pack(number, None, None);
                }
            }
            (Some(residual), Stores::Streaming) if self.block <= HELD_MAX => self.stream(residual),
            (Some(residual), _) => self.rewrite(residual),
        }
        self.output.scales.iter().position(|scale| !scale.is_finite())
    }

    /// Blocks wait in the new residual.
    #[inline(always)]
    fn rewrite(&mut self, residual: Residual<'_>) {
        let simd = self.simd;
        for number in 0..=self.output.scales.len() {
            if number < self.output.scales.len() {
                let held = &mut residual.new[self.elements_of(number)];
                self.pack(number, Some(residual.old), Some(held));
            }
            if let Some(last) = number.checked_sub(1) {
                let (new, scale) = (&mut residual.new[self.elements_of(last)], self.output.scales[last]);
                let mut at = 0;
                while at < new.len() {
                    let left = left_out(simd, load(simd, new, at), scale);
                    store(simd, new, at, left, Stores::Cached);
                    at += LANES;
                }
            }
        }
    }

    /// Blocks wait elsewhere, so that the new residual is only written.
    #[inline(always)]
    fn stream(&mut self, residual: Residual<'_>) {
        let simd = self.simd;
        let mut held = [[0.0; HELD_MAX]; 2];
        for number in 0..=self.output.scales.len() {
            if number < self.output.scales.len() {
                let count = self.elements_of(number).len();
                self.pack(number, Some(residual.old), Some(&mut held[number % 2][..count]));
            }
            if let Some(last) = number.checked_sub(1) {
                let (new, scale) = (&mut residual.new[self.elements_of(last)], self.output.scales[last]);
                let held = &held[last % 2][..new.len()];
                let mut at = 0;
                while at < new.len() {
                    store(simd, new, at, left_out(simd, load(simd, held, at), scale), Stores::Streaming);
                    at += LANES;
                }
            }
        }
    }
}

/// [`crate::Kernels::sign_encode`].
pub(crate) struct SignEncode<'a> {
    pub(crate) input: &'a [f32],
    pub(crate) residual: Option<Residual<'a>>,
    pub(crate) block: usize,
    pub(crate) output: SignPartMut<'a>,
}

impl Job for SignEncode<'_> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S, stores: Stores) -> Option<usize> {
        let SignEncode { input, residual, block, output } = self;
        let ahead = Ahead::of(residual.is_some(), stores);
        let source = Input(input, ahead);
        SignEncoder { simd, source, elements: input.len(), block, output, ahead }.encode(residual, stores)
    }

    fn define(self) -> Option<usize> {
        let SignEncode { input, residual, block, output } = self;
        reference::sign_encode(input, residual, block, output.scales, output.bits)
    }

    fn elements(&self) -> usize {
        self.input.len()
    }

    fn unit(&self) -> usize {
        self.block
    }

    fn split(self, at: usize) -> (Self, Self) {
        let SignEncode { input, residual, block, output } = self;
        let (input, residual, output) =
            (input.split_at(at), split_residual(residual, at), output.split_at(at, block));
        (
            SignEncode { input: input.0, residual: residual.0, block, output: output.0 },
            SignEncode { input: input.1, residual: residual.1, block, output: output.1 },
        )
    }

    fn join(first: Option<usize>, second: Option<usize>, units: usize) -> Option<usize> {
        first.or(second.map(|block| units + block))
    }
}

/// [`crate::Kernels::sign_reduce_encode`].
pub(crate) struct SignReduceEncode<'a> {
    pub(crate) parts: &'a [SignPart<'a>],
    pub(crate) first: usize,
    pub(crate) elements: usize,
    pub(crate) residual: Option<Residual<'a>>,
    pub(crate) block: usize,
    pub(crate) output: SignPartMut<'a>,
}

impl Job for SignReduceEncode<'_> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S, stores: Stores) -> Option<usize> {
        let SignReduceEncode { parts, first, elements, residual, block, output } = self;
        let source = SignSum::new(parts, first, elements, block);
        let ahead = Ahead::of(residual.is_some(), stores);
        SignEncoder { simd, source, elements, block, output, ahead }.encode(residual, stores)
    }

    fn define(self) -> Option<usize> {
        let SignReduceEncode { parts, first: _, elements, residual, block, output } = self;
        reference::sign_reduce_encode(parts, elements, residual, block, output.scales, output.bits)
    }

    fn elements(&self) -> usize {
        self.elements
    }

    fn unit(&self) -> usize {
        self.block
    }

    fn split(self, at: usize) -> (Self, Self) {
        let SignReduceEncode { parts, first, elements, residual, block, output } = self;
        let (residual, output) = (split_residual(residual, at), output.split_at(at, block));
        (
            SignReduceEncode { parts, first, elements: at, residual: residual.0, block, output: output.0 },
            SignReduceEncode {
                parts,
                first: first + at,
                elements: elements - at,
                residual: residual.1,
                block,
                output: output.1,
            },
        )
    }

    fn join(first: Option<usize>, second: Option<usize>, units: usize) -> Option<usize> {
        first.or(second.map(|block| units + block))
    }
}

/// The residuals of the first `at` elements and of the others.
pub(crate) fn split_residual(
    residual: Option<Residual<'_>>,
    at: usize,
) -> (Option<Residual<'_>>, Option<Residual<'_>>) {
    residual.map(|residual| residual.split_at(at)).unzip()
}
