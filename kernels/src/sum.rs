//! Sums and averages of f32, one element after the other.

use crate::dispatch::Job;
use crate::format::{LANES, power_of_two};
use crate::groups::{Ahead, load_ahead, store};
use crate::simd::{Simd, unrolled};
use crate::{Stores, reference};

/// [`crate::Kernels::sum`].
pub(crate) struct Sum<'a> {
    pub(crate) parts: &'a [&'a [f32]],
    /// The number of the first element of this job.
    pub(crate) first: usize,
    pub(crate) output: &'a mut [f32],
}

impl Job for Sum<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S, stores: Stores) {
        let ahead = Ahead::of(true, stores);
        let mut at = 0;
        while at < self.output.len() {
            let mut sums = simd.zeros();
            for part in self.parts {
                let values = load_ahead(simd, part, self.first + at, ahead);
                unrolled!(for number in S {
                    sums[number] = simd.flush(simd.flush_add(values[number], sums[number]));
                });
            }
            store(simd, self.output, at, sums, stores);
            at += LANES;
        }
    }

    fn define(self) {
        reference::sum(self.parts, self.output);
    }

    fn elements(&self) -> usize {
        self.output.len()
    }

    fn unit(&self) -> usize {
        LANES
    }

    fn split(self, at: usize) -> (Self, Self) {
        let Sum { parts, first, output } = self;
        let output = output.split_at_mut(at);
        (Sum { parts, first, output: output.0 }, Sum { parts, first: first + at, output: output.1 })
    }

    fn join((): (), (): (), _: usize) {}
}

/// [`crate::Kernels::average`].
pub(crate) struct Average<'a> {
    pub(crate) old: &'a [f32],
    pub(crate) shift: u32,
    pub(crate) new: &'a mut [f32],
}

impl Job for Average<'_> {
    type Output = ();

    /// With stores through the caches, where the values are.
    #[inline(always)]
    fn run<S: Simd>(self, simd: S, stores: Stores) {
        let Average { old, shift, new } = self;
        let ahead = Ahead::of(true, stores);
        let factor = simd.splat(power_of_two(-(shift as i32)));
        let mut at = 0;
        while at < new.len() {
            let (old, mut values) = (load_ahead(simd, old, at, ahead), load_ahead(simd, new, at, ahead));
            unrolled!(for number in S {
                let part = simd.mul(simd.flush(simd.sub(values[number], old[number])), factor);
                values[number] = simd.flush(simd.flush_add(part, old[number]));
            });
            store(simd, new, at, values, Stores::Cached);
            at += LANES;
        }
    }

    fn define(self) {
        reference::average(self.old, self.shift, self.new);
    }

    fn elements(&self) -> usize {
        self.new.len()
    }

    fn unit(&self) -> usize {
        LANES
    }

    fn split(self, at: usize) -> (Self, Self) {
        let Average { old, shift, new } = self;
        let (old, new) = (old.split_at(at), new.split_at_mut(at));
        (Average { old: old.0, shift, new: new.0 }, Average { old: old.1, shift, new: new.1 })
    }

    fn join((): (), (): (), _: usize) {}
}
