//! The interface of a codec: elements become fewer bytes and come back. It does not know how the bytes travel.

use std::fmt;
use std::sync::Arc;

use unisono_communicator::{Buffer, BufferMut, Error, Result};
use unisono_kernels::{Counter, IntFormat, Rounding};

use crate::codecs::{Bf16, Int4, Int8, SignL1, SignRms};
use crate::kernels::{CodecKernels, Feedback};

/// The knowledge of an encoder about its call, besides the elements.
#[derive(Clone, Copy, Debug)]
pub struct EncodeContext {
    /// For random bits: different for each rank, call and stage.
    pub key: u64,
    /// The place of the input's first element in the whole vector.
    pub first: usize,
    /// The scale of the whole vector, for a codec that measures it ([`Codec::measures`]).
    pub scale: f32,
}

impl EncodeContext {
    /// The rounding of codes: with a seed at random, else to the nearest.
    pub fn rounding(self, seed: Option<u64>) -> Rounding {
        let counter = |seed: u64| Counter { key: seed ^ self.key, first: self.first as u64 };
        seed.map_or(Rounding::Nearest, |seed| Rounding::Stochastic(counter(seed)))
    }
}

/// Codes that can be added when ranks share the scales of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summable {
    /// Symmetric.
    pub format: IntFormat,
    /// The seed of random rounding.
    pub stochastic: Option<u64>,
}

/// A way to encode f32 in fewer bits.
///
/// A codec is a value without state; residuals are in the [`crate::CompressionState`]. All ranks of a call must use an
/// equal one. Encoded bytes are the same on every processor and for any number of threads.
pub trait Codec: Send + Sync + fmt::Debug {
    /// The name by which [`codec_by_name`] knows it.
    fn name(&self) -> &'static str;

    /// Everything that must be equal on all ranks, in at most [`TAG_BYTES_MAX`] bytes. Errors show it.
    fn tag(&self) -> String;

    /// Elements of a block. Parts begin at whole blocks, and every block can be decoded alone.
    fn block(&self) -> usize;

    /// The length of `elements` elements when they are encoded, in words of 4 bytes. Exact, so that no length travels.
    fn encoded_words(&self, elements: usize) -> usize;

    /// Whether it keeps its compression error for the next call.
    fn has_feedback(&self) -> bool;

    /// The length to which a vector of `elements` is filled up with zeros among `ranks`.
    fn padded(&self, elements: usize, ranks: usize) -> usize {
        let _ = ranks;
        elements
    }

    /// Whether [`Codec::measure`] must see the whole vector before the first part is encoded.
    fn measures(&self) -> bool {
        false
    }

    /// The integers as which its codes can be added, if they can ([`crate::Route::SummedCodes`]).
    fn summable(&self) -> Option<Summable> {
        None
    }

    /// Adds the residual to a part of the vector, the result in `feedback.new`: the sum of its squares.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for memory that `kernels` do not reach, and from a codec that does not measure.
    fn measure(&self, kernels: &dyn CodecKernels, input: Buffer<'_>, feedback: Feedback<'_>) -> Result<f64> {
        let _ = (kernels, input, feedback);
        let what = format!("a scale of the whole vector in {self:?}");
        Err(Error::Unsupported { what, backend: "compression", instead: None })
    }

    /// The scale of a vector of `elements` with this sum of squares.
    fn scale(&self, squares: f64, elements: usize) -> f32 {
        let _ = (squares, elements);
        0.0
    }

    /// Encodes f32 with the residual, and leaves the new one. The first block that has an element that is not finite,
    /// if there is one.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for memory that `kernels` do not reach.
    fn encode(
        &self,
        kernels: &dyn CodecKernels,
        input: Buffer<'_>,
        feedback: Option<Feedback<'_>>,
        context: EncodeContext,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>>;

    /// Encodes the sum of encoded parts, as [`Codec::encode`] does, without a buffer for the sum where the kernels can.
    ///
    /// # Errors
    /// As [`Codec::encode`].
    fn reduce_encode(
        &self,
        kernels: &dyn CodecKernels,
        parts: &[Buffer<'_>],
        elements: usize,
        feedback: Option<Feedback<'_>>,
        context: EncodeContext,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>>;

    /// Decodes the sum of encoded parts, and multiplies it by `weight`.
    ///
    /// # Errors
    /// As [`Codec::encode`].
    fn decode_sum(
        &self,
        kernels: &dyn CodecKernels,
        parts: &[Buffer<'_>],
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()>;

    /// Decodes a part, and multiplies it by `weight`.
    ///
    /// # Errors
    /// As [`Codec::encode`].
    fn decode(
        &self,
        kernels: &dyn CodecKernels,
        part: Buffer<'_>,
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()>;

    /// Whether the orders of kernels and of the wire differ: then parts cannot be sent from the memory of a device.
    fn is_reordered(&self) -> bool {
        false
    }

    /// Brings a part from the order that kernels write into the order of the wire.
    fn seal(&self, part: &mut [u32]) {
        let _ = part;
    }

    /// The words at the front of a part by which [`Codec::accept`] judges a part that stays on a device: its scales.
    fn head_words(&self, elements: usize) -> usize;

    /// Takes a part of `elements` elements off the wire: checks the values that a kernel relies on, and brings the part
    /// into the order that kernels read. Of a part that stays on a device it sees the front, [`Codec::head_words`] and
    /// maybe more.
    ///
    /// # Errors
    /// The fault of the part.
    fn accept(&self, part: &mut [u32], elements: usize) -> std::result::Result<(), &'static str>;
}

/// The longest [`Codec::tag`].
pub const TAG_BYTES_MAX: usize = 10;

/// The names of the built-in codecs, for command lines.
pub const CODECS: &[&str] = &["sign", "sign-rms", "int8", "int4", "bf16"];

/// The built-in codec of that name, with its default parameters.
///
/// # Errors
/// [`Error::InvalidArgument`] for any other name; it says the nearest one.
///
/// ```
/// # mod unisono { pub use unisono_compression as compression; }
/// use unisono::compression::codec_by_name;
/// assert_eq!(codec_by_name("int8")?.encoded_words(1024), 4 + 256);
/// assert!(codec_by_name("int9").unwrap_err().to_string().ends_with("did you mean \"int8\"?"));
/// # Ok::<(), unisono_communicator::Error>(())
/// ```
pub fn codec_by_name(name: &str) -> Result<Arc<dyn Codec>> {
    Ok(match name {
        "sign" => Arc::new(SignL1::default()),
        "sign-rms" => Arc::new(SignRms::default()),
        "int8" => Arc::new(Int8::default()),
        "int4" => Arc::new(Int4::default()),
        "bf16" => Arc::new(Bf16),
        _ => {
            // Of two that are as near, the first.
            let nearest = CODECS.iter().rev().max_by(|left, right| {
                strsim::jaro_winkler(name, left).total_cmp(&strsim::jaro_winkler(name, right))
            });
            let nearest = nearest.copied().unwrap_or_default();
            let known = CODECS.join(", ");
            return Err(Error::invalid(
                "codec",
                format!("{name:?} is not one of {known}; did you mean {nearest:?}?"),
            ));
        }
    })
}

/// Whether every scale could come from an encoder: finite, not negative, and not subnormal.
pub(crate) fn check_scales(scales: &[u32]) -> std::result::Result<(), &'static str> {
    let is_scale = |bits: &u32| *bits == 0 || f32::from_bits(*bits).is_normal() && *bits >> 31 == 0;
    if scales.iter().all(is_scale) { Ok(()) } else { Err("a scale is negative, subnormal or not finite") }
}
