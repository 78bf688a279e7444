//! One bit for each element and one scale for all, as DeepSpeed has it: for comparison, and for states that come from
//! there.

use unisono_communicator::{Buffer, BufferMut, Error, Result, Segments, SegmentsMut};
use unisono_kernels::{format, sign_words};

use crate::codec::{Codec, EncodeContext, check_scales, worst_element};
use crate::kernels::{CodecKernels, Feedback};

/// Which bit of a byte is the first of its eight elements.
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
/// The scale is that of DeepSpeed's `compressed_allreduce`. It needs all elements before the first byte can leave, so
/// nothing overlaps, and it is no contraction when most elements are near zero; [`crate::SignL1`] has neither fault.
///
/// A part of n elements is the scale and ceil(n / 32) words of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignRms {
    bits: BitOrder,
    is_padded: bool,
}

impl SignRms {
    /// What DeepSpeed's optimisers do: bits from the highest down, the vector filled up with zeros to a multiple of
    /// ranks x lcm(ranks, 8) elements, which count in the mean and have residuals of their own.
    pub fn deepspeed() -> SignRms {
        SignRms { bits: BitOrder::MsbFirst, is_padded: true }
    }

    /// With this order of bits.
    pub fn with_bits(self, bits: BitOrder) -> SignRms {
        SignRms { bits, ..self }
    }

    /// Packs what [`Codec::measure`] has left in `feedback.new`.
    fn pack(
        self,
        kernels: &dyn CodecKernels,
        scale: f32,
        values: BufferMut<'_>,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        if !scale.is_finite() {
            let values = match &values {
                BufferMut::Host(SegmentsMut::One(bytes)) => bytemuck::cast_slice(bytes),
                BufferMut::Host(_) | BufferMut::Device(_) => return Err(Error::no_device("sign-rms")),
            };
            return Ok(Some(worst_element(values) / BLOCK));
        }
        let out = out_words(out)?;
        kernels.sign_pack(values, scale, BufferMut::of(out))?;
        if self.bits == BitOrder::MsbFirst {
            reverse_bytes(&mut out[1..]);
        }
        Ok(None)
    }
}

fn out_words(out: BufferMut<'_>) -> Result<&mut [u32]> {
    match out {
        BufferMut::Host(SegmentsMut::One(bytes)) => Ok(bytemuck::cast_slice_mut(bytes)),
        BufferMut::Host(_) | BufferMut::Device(_) => Err(Error::no_device("sign-rms")),
    }
}

/// Reverses the bits of each byte.
fn reverse_bytes(words: &mut [u32]) {
    words.iter_mut().for_each(|word| *word = word.swap_bytes().reverse_bits());
}

/// How errors count elements.
const BLOCK: usize = 1024;

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
        let Some(Feedback { old, new: BufferMut::Host(SegmentsMut::One(new)) }) = feedback else {
            return Err(Error::no_device("sign-rms"));
        };
        let sums = BufferMut::Host(SegmentsMut::One(new));
        let squares = kernels.sign_reduce_global(parts, Feedback { old, new: sums })?;
        let sums = BufferMut::Host(SegmentsMut::One(new));
        self.pack(kernels, self.scale(squares, elements), sums, out)
    }

    fn decode(
        &self,
        kernels: &dyn CodecKernels,
        part: Buffer<'_>,
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        // One scale is a block that is as long as the part.
        let block = out.bytes() / size_of::<f32>();
        match &part {
            Buffer::Host(Segments::One(_)) => {
                kernels.sign_expand(part, block.next_multiple_of(64), weight, out)
            }
            Buffer::Host(_) | Buffer::Device(_) => Err(Error::no_device("sign-rms")),
        }
    }

    fn accept(&self, part: &mut [u32], elements: usize) -> std::result::Result<(), &'static str> {
        let (scale, bits) = part.split_at_mut(usize::from(elements > 0));
        if self.bits == BitOrder::MsbFirst {
            reverse_bytes(bits);
        }
        check_scales(scale)
    }
}
