//! One bit for each element, and the mean magnitude of each block.

use unisono_communicator::{Buffer, BufferMut, Error, Result};
use unisono_kernels::sign_words;

use crate::codec::{Codec, EncodeContext, check_scales};
use crate::kernels::{CodecKernels, Feedback};

/// Elements of a block unless another number is chosen: 1/31 of the bytes of f32, scales included.
pub const SIGN_BLOCK_DEFAULT: usize = 1024;

/// The longest block: two of them with their residuals stay in the first cache.
pub const SIGN_BLOCK_MAX: usize = 65_536;

/// The sign of each element, and for each block the mean of the magnitudes (its L1 norm divided by its length).
///
/// It always contracts: |x - C(x)|^2 <= (1 - 1/d) |x|^2 for a block of d elements, and with error feedback has the rate
/// of the uncompressed method (Karimireddy et al., "Error Feedback Fixes SignSGD", ICML 2019). A bit is clear for
/// negative numbers that are neither zero nor subnormal.
///
/// A part of n elements is ceil(n / block) scales and ceil(n / 32) words of bits: element i is bit i % 32 of word
/// i / 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignL1 {
    block: usize,
    has_feedback: bool,
}

impl Default for SignL1 {
    fn default() -> SignL1 {
        SignL1 { block: SIGN_BLOCK_DEFAULT, has_feedback: true }
    }
}

impl SignL1 {
    /// With blocks of so many elements.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless it is a multiple of 64 up to [`SIGN_BLOCK_MAX`].
    pub fn with_block(block: usize) -> Result<SignL1> {
        if block == 0 || !block.is_multiple_of(64) || block > SIGN_BLOCK_MAX {
            let problem = format!("{block} elements; it must be a multiple of 64 up to {SIGN_BLOCK_MAX}");
            return Err(Error::invalid("block", problem));
        }
        Ok(SignL1 { block, ..SignL1::default() })
    }

    /// Forgets its compression error. A training then loses about two points of accuracy; see docs/compression.md.
    pub fn without_feedback(self) -> SignL1 {
        SignL1 { has_feedback: false, ..self }
    }
}

impl Codec for SignL1 {
    fn name(&self) -> &'static str {
        "sign"
    }

    fn tag(&self) -> String {
        let block = if self.block == SIGN_BLOCK_DEFAULT { String::new() } else { self.block.to_string() };
        format!("sign{block}{}", if self.has_feedback { "" } else { "n" })
    }

    fn block(&self) -> usize {
        self.block
    }

    fn encoded_words(&self, elements: usize) -> usize {
        elements.div_ceil(self.block) + sign_words(elements)
    }

    fn has_feedback(&self) -> bool {
        self.has_feedback
    }

    fn encode(
        &self,
        kernels: &dyn CodecKernels,
        input: Buffer<'_>,
        feedback: Option<Feedback<'_>>,
        _context: EncodeContext,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        kernels.sign_encode(input, feedback, self.block, out)
    }

    fn reduce_encode(
        &self,
        kernels: &dyn CodecKernels,
        parts: &[Buffer<'_>],
        elements: usize,
        feedback: Option<Feedback<'_>>,
        _context: EncodeContext,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        kernels.sign_reduce_encode(parts, elements, feedback, self.block, out)
    }

    fn decode_sum(
        &self,
        kernels: &dyn CodecKernels,
        parts: &[Buffer<'_>],
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        kernels.sign_decode_sum(parts, self.block, weight, out)
    }

    fn decode(
        &self,
        kernels: &dyn CodecKernels,
        part: Buffer<'_>,
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        kernels.sign_expand(part, self.block, weight, out)
    }

    fn head_words(&self, elements: usize) -> usize {
        elements.div_ceil(self.block)
    }

    fn accept(&self, part: &mut [u32], elements: usize) -> std::result::Result<(), &'static str> {
        check_scales(&part[..self.head_words(elements)])
    }
}
