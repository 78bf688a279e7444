//! Half of the bytes of f32, with its range.

use unisono_communicator::{Buffer, BufferMut, Result};
use unisono_kernels::reference::BF16_BLOCK;

use crate::codec::{Codec, EncodeContext};
use crate::kernels::{CodecKernels, Feedback};

/// Every element rounded to bf16, to the nearest with ties to even, and summed in f32. Two elements in a word, the
/// first in its low half. It has no scales, no residuals and no state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bf16;

/// The bits of a bf16 that hold its exponent: all are set in NaN and infinities.
const EXPONENT: u32 = 0x7f80;

impl Codec for Bf16 {
    fn name(&self) -> &'static str {
        "bf16"
    }

    fn tag(&self) -> String {
        "bf16".to_owned()
    }

    fn block(&self) -> usize {
        BF16_BLOCK
    }

    fn encoded_words(&self, elements: usize) -> usize {
        elements.div_ceil(2)
    }

    fn has_feedback(&self) -> bool {
        false
    }

    fn encode(
        &self,
        kernels: &dyn CodecKernels,
        input: Buffer<'_>,
        _feedback: Option<Feedback<'_>>,
        _context: EncodeContext,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        kernels.bf16_encode(input, out)
    }

    fn reduce_encode(
        &self,
        kernels: &dyn CodecKernels,
        parts: &[Buffer<'_>],
        elements: usize,
        _feedback: Option<Feedback<'_>>,
        _context: EncodeContext,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        kernels.bf16_reduce_encode(parts, elements, out)
    }

    fn decode_sum(
        &self,
        kernels: &dyn CodecKernels,
        parts: &[Buffer<'_>],
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        kernels.bf16_decode_sum(parts, weight, out)
    }

    fn decode(
        &self,
        kernels: &dyn CodecKernels,
        part: Buffer<'_>,
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        kernels.bf16_expand(part, weight, out)
    }

    /// There are no scales: damage to an element on its way between devices is found as little as in a call that is not
    /// compressed.
    fn head_words(&self, _elements: usize) -> usize {
        0
    }

    fn accept(&self, part: &mut [u32], _elements: usize) -> std::result::Result<(), &'static str> {
        // All words are looked at, so that several are at a time.
        let is_bad = |word: u32| (word & EXPONENT == EXPONENT) | (word >> 16 & EXPONENT == EXPONENT);
        let bad = part.iter().fold(false, |bad, word| bad | is_bad(*word));
        if bad { Err("an element is not finite") } else { Ok(()) }
    }
}
