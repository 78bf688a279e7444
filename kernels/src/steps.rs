//! From numbers to integer codes by the scale of their block, and the errors of codes.

use crate::format::{Counter, LANES, Rounding, int_reciprocal};
use crate::groups::cut;
use crate::sign::NO_FLUSH_MIN;
use crate::simd::{Simd, unrolled};

/// The way from the numbers of a block to its codes.
#[derive(Clone, Copy)]
pub(crate) struct Steps {
    pub(crate) scale: f32,
    reciprocal: f32,
    /// The value of code 0.
    origin: f32,
}

impl Steps {
    /// Of a block with this scale, which is 0 or one of [`crate::IntFormat::scale`].
    #[inline(always)]
    pub(crate) fn new(scale: f32, origin: f32) -> Steps {
        let reciprocal = if scale == 0.0 { 0.0 } else { int_reciprocal(scale) };
        Steps { scale, reciprocal, origin }
    }

    /// The codes of a group, whose first element has this number in the call.
    #[inline(always)]
    pub(crate) fn codes<S: Simd, const SYMMETRIC: bool>(
        self,
        simd: S,
        values: S::Lanes,
        rounding: Rounding,
        index: usize,
    ) -> S::Codes {
        let (mut codes, mut distances) = (simd.no_codes(), values);
        if !SYMMETRIC {
            unrolled!(for number in S {
                distances[number] = simd.flush(simd.sub(values[number], simd.splat(self.origin)));
            });
        }
        let reciprocal = simd.splat(self.reciprocal);
        match rounding {
            Rounding::Nearest => {
                unrolled!(for number in S {
                    codes[number] = simd.round(simd.mul(distances[number], reciprocal));
                });
            }
            Rounding::Stochastic(counter) => {
                let random = random(counter, index);
                unrolled!(for number in S {
                    let fine = simd.mul(simd.mul(distances[number], reciprocal), simd.splat(65536.0));
                    codes[number] = simd.dither(simd.round(fine), &random, number);
                });
            }
        }
        codes
    }

    /// The errors of the codes of a group.
    #[inline(always)]
    pub(crate) fn left_out<S: Simd, const SYMMETRIC: bool>(
        self,
        simd: S,
        values: S::Lanes,
        codes: &S::Codes,
    ) -> S::Lanes {
        let (mut left, step) = (values, simd.splat(self.scale));
        unrolled!(for number in S {
            let code = simd.to_floats(codes[number]);
            if SYMMETRIC {
                left[number] = simd.sub_exact_product(values[number], code, step);
            } else {
                let value = simd.flush(simd.add_exact_product(simd.splat(self.origin), code, step));
                left[number] = simd.sub(values[number], value);
            }
        });
        if !SYMMETRIC || self.scale < NO_FLUSH_MIN {
            unrolled!(for number in S {
                left[number] = simd.flush(left[number]);
            });
        }
        left
    }
}

/// The random bits of the group that begins at element `index`, as [`Counter::bits`] gives them.
#[inline(always)]
fn random(counter: Counter, index: usize) -> [u16; LANES] {
    let first = counter.first.wrapping_add(index as u64);
    let mut words = [0; LANES / 2 + 1];
    for (number, word) in words.iter_mut().enumerate() {
        *word = counter.word(((first >> 1) as u32).wrapping_add(number as u32));
    }
    let mut random = [0; LANES];
    // Two elements share a word, of which the first may begin with the second of them.
    if first & 1 == 0 {
        for (pair, word) in random.as_chunks_mut().0.iter_mut().zip(words) {
            *pair = [word as u16, (word >> 16) as u16];
        }
    } else {
        for (index, pair) in random.as_chunks_mut().0.iter_mut().enumerate() {
            *pair = [(words[index] >> 16) as u16, words[index + 1] as u16];
        }
    }
    random
}

#[inline(always)]
pub(crate) fn put_bytes<S: Simd, const SIGNED: bool>(simd: S, codes: &S::Codes, bytes: &mut [u8]) {
    match bytes.first_chunk_mut() {
        Some(bytes) => simd.pack_bytes::<SIGNED>(codes, bytes),
        None => {
            let mut group = [0; LANES];
            simd.pack_bytes::<SIGNED>(codes, &mut group);
            cut(&group, bytes);
        }
    }
}

/// The half behind the last of `count` codes is cleared.
#[inline(always)]
pub(crate) fn put_halves<S: Simd>(simd: S, codes: &S::Codes, bytes: &mut [u8], count: usize) {
    match bytes.first_chunk_mut() {
        Some(bytes) if count >= LANES => simd.pack_halves(codes, bytes),
        _ => {
            let mut group = [0; LANES / 2];
            simd.pack_halves(codes, &mut group);
            if count % 2 == 1 {
                group[count / 2] &= 15;
            }
            cut(&group, bytes);
        }
    }
}
