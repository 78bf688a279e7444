//! One bit for each element and one scale for all, as DeepSpeed has it: for comparison, and for states that come from
//! there.

use unisono_communicator::{Buffer, BufferMut, Error, Result};
use unisono_kernels::format::LANES;
use unisono_kernels::{format, sign_words};

use crate::codec::{Codec, EncodeContext, check_scales};
use crate::kernels::{CodecKernels, Feedback, reborrow};

/// The bit of a byte that is the first of its eight elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BitOrder {
    /// The lowest, as HCCL packs.
    #[default]
    LsbFirst,
    /// The highest, as NumPy's and CuPy's `packbits` and DeepSpeed's NCCL and MPI backends pack.
    MsbFirst,
}

/// The sign of each element, and one scale for the whole vector: the root of the mean square. The owner of a share
/// sends one scale for its share.
///
/// It has the scale of DeepSpeed's `compressed_allreduce`. It needs all elements before the first byte can leave, so
/// nothing overlaps, and it is no contraction when most elements are near zero; [`crate::SignL1`] has neither fault.
///
/// A part of n elements is the scale and ceil(n / 32) words of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignRms {
    bits: BitOrder,
    is_padded: bool,
}

impl SignRms {
    /// The format of DeepSpeed's optimisers: bits from the highest down, the vector filled up with zeros to a multiple
    /// of ranks x lcm(ranks, 8) elements, which count in the mean and have residuals of their own.
    pub fn deepspeed() -> SignRms {
        SignRms { bits: BitOrder::MsbFirst, is_padded: true }
    }

    /// With this order of bits.
    pub fn with_bits(self, bits: BitOrder) -> SignRms {
        SignRms { bits, ..self }
    }

    /// Packs the values that [`Codec::measure`] has left in `feedback.new`.
    fn pack(
        self,
        kernels: &dyn CodecKernels,
        scale: f32,
        mut values: BufferMut<'_>,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        if !scale.is_finite() {
            let worst = kernels.worst_element(reborrow(&mut values)?)?;
            return Ok(Some(worst / BLOCK));
        }
        kernels.sign_pack(values, scale, out).map(|()| None)
    }
}

/// Reverses the bits of each byte.
fn reverse_bytes(words: &mut [u32]) {
    words.iter_mut().for_each(|word| *word = word.swap_bytes().reverse_bits());
}

/// The elements of a block in error messages.
const BLOCK: usize = 1024;

/// One scale is a block that is as long as the part.
fn whole(out: &BufferMut<'_>) -> usize {
    (out.bytes() / size_of::<f32>()).next_multiple_of(LANES).max(LANES)
}

fn gcd(left: usize, right: usize) -> usize {
    if right == 0 { left } else { gcd(right, left % right) }
}

impl Codec for SignRms {
    fn name(&self) -> &'static str {
        "sign-rms"
    }

    fn tag(&self) -> String {
        let order = match self.bits {
            BitOrder::LsbFirst => "",
            BitOrder::MsbFirst => "m",
        };
        format!("rms{order}{}", if self.is_padded { "p" } else { "" })
    }

    fn block(&self) -> usize {
        BLOCK
    }

    fn encoded_words(&self, elements: usize) -> usize {
        usize::from(elements > 0) + sign_words(elements)
    }

    fn has_feedback(&self) -> bool {
        true
    }

    fn padded(&self, elements: usize, ranks: usize) -> usize {
        let multiple = ranks * (ranks * 8 / gcd(ranks, 8));
        if self.is_padded { elements.next_multiple_of(multiple) } else { elements }
    }

    fn measures(&self) -> bool {
        true
    }

    fn measure(&self, kernels: &dyn CodecKernels, input: Buffer<'_>, feedback: Feedback<'_>) -> Result<f64> {
        kernels.compensate(input, feedback)
    }

    fn scale(&self, squares: f64, elements: usize) -> f32 {
        format::root_mean_square(squares, elements).unwrap_or(f32::NAN)
    }

    fn encode(
        &self,
        kernels: &dyn CodecKernels,
        _input: Buffer<'_>,
        feedback: Option<Feedback<'_>>,
        context: EncodeContext,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        let values = feedback.map_or(BufferMut::empty(), |feedback| feedback.new);
        self.pack(kernels, context.scale, values, out)
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
        let Some(Feedback { old, mut new }) = feedback else {
            return Err(Error::invalid("feedback", "is what sign-rms sums in, and there is none"));
        };
        let sums = Feedback { old, new: reborrow(&mut new)? };
        let squares = kernels.sign_reduce_global(parts, sums)?;
        self.pack(kernels, self.scale(squares, elements), new, out)
    }

    fn decode_sum(
        &self,
        kernels: &dyn CodecKernels,
        parts: &[Buffer<'_>],
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        kernels.sign_decode_sum(parts, whole(&out), weight, out)
    }

    fn decode(
        &self,
        kernels: &dyn CodecKernels,
        part: Buffer<'_>,
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        kernels.sign_expand(part, whole(&out), weight, out)
    }

    fn seal(&self, part: &mut [u32]) {
        if self.is_reordered() {
            reverse_bytes(part.get_mut(1..).unwrap_or_default());
        }
    }

    fn is_reordered(&self) -> bool {
        self.bits == BitOrder::MsbFirst
    }

    fn head_words(&self, elements: usize) -> usize {
        usize::from(elements > 0)
    }

    fn accept(&self, part: &mut [u32], elements: usize) -> std::result::Result<(), &'static str> {
        let (scale, bits) = part.split_at_mut(self.head_words(elements));
        if self.is_reordered() {
            reverse_bytes(bits);
        }
        check_scales(scale)
    }
}
