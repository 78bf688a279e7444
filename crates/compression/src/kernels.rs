//! The kernels that codecs need, for any memory of a call: one implementation for each kind of device.

use unisono_communicator::{Buffer, BufferMut, Error, Result, SegmentsMut};
#[cfg(doc)]
use unisono_kernels::Kernels;
use unisono_kernels::{CodeSize, IntFormat, Rounding};

/// The error feedback of an encoder.
#[derive(Debug)]
pub struct Feedback<'a> {
    /// The residuals of the last call.
    pub old: Buffer<'a>,
    /// The residuals of this call.
    pub new: BufferMut<'a>,
}

/// The values that ranks must share so that their codes can be added.
#[derive(Debug)]
pub struct Shared<'a> {
    /// Symmetric.
    pub format: IntFormat,
    /// Of a code, or of a sum of codes.
    pub size: CodeSize,
    /// The largest magnitude of each block on any rank, as bits of f32.
    pub magnitudes: Buffer<'a>,
}

/// The kernels on one kind of memory. An encoded part is one buffer of words: first the scales, then the codes.
///
/// Encoders return the first block that cannot be encoded because an element is not finite, if there is one; their
/// output is worthless then.
///
/// The written bytes are the bytes of the named function, unless a device's crate says where they may differ. Ranks
/// agree then too: all decode the bytes that one rank has encoded.
///
/// # Errors
/// Each function returns [`Error::Unsupported`] for memory that these kernels do not reach, and for a kernel that the
/// device does not have ([`crate::KernelDevice::check_codec`]).
pub trait CodecKernels: Send + Sync {
    /// [`Kernels::sign_encode`].
    fn sign_encode(
        &self,
        input: Buffer<'_>,
        feedback: Option<Feedback<'_>>,
        block: usize,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>>;

    /// [`Kernels::sign_reduce_encode`].
    fn sign_reduce_encode(
        &self,
        parts: &[Buffer<'_>],
        elements: usize,
        feedback: Option<Feedback<'_>>,
        block: usize,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>>;

    /// [`Kernels::sign_decode_sum`].
    fn sign_decode_sum(
        &self,
        parts: &[Buffer<'_>],
        block: usize,
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()>;

    /// [`Kernels::sign_expand`].
    fn sign_expand(&self, part: Buffer<'_>, block: usize, weight: f32, out: BufferMut<'_>) -> Result<()>;

    /// [`Kernels::compensate`]: the sum of squares.
    fn compensate(&self, input: Buffer<'_>, feedback: Feedback<'_>) -> Result<f64>;

    /// [`Kernels::sign_reduce_global`]: the sum of squares.
    fn sign_reduce_global(&self, parts: &[Buffer<'_>], feedback: Feedback<'_>) -> Result<f64>;

    /// [`Kernels::sign_pack`], and the scale before the bits.
    fn sign_pack(&self, values: BufferMut<'_>, scale: f32, out: BufferMut<'_>) -> Result<()>;

    /// [`Kernels::int_encode`].
    fn int_encode(
        &self,
        input: Buffer<'_>,
        feedback: Option<Feedback<'_>>,
        format: IntFormat,
        rounding: Rounding,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>>;

    /// [`Kernels::int_reduce_encode`].
    fn int_reduce_encode(
        &self,
        parts: &[Buffer<'_>],
        elements: usize,
        feedback: Option<Feedback<'_>>,
        format: IntFormat,
        rounding: Rounding,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>>;

    /// [`Kernels::int_decode_sum`].
    fn int_decode_sum(
        &self,
        parts: &[Buffer<'_>],
        format: IntFormat,
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()>;

    /// [`Kernels::int_expand`].
    fn int_expand(&self, part: Buffer<'_>, format: IntFormat, weight: f32, out: BufferMut<'_>) -> Result<()>;

    /// [`Kernels::bf16_encode`].
    fn bf16_encode(&self, input: Buffer<'_>, out: BufferMut<'_>) -> Result<Option<usize>>;

    /// [`Kernels::bf16_decode_sum`], and the sum encoded again.
    fn bf16_reduce_encode(
        &self,
        parts: &[Buffer<'_>],
        elements: usize,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>>;

    /// [`Kernels::bf16_decode_sum`].
    fn bf16_decode_sum(&self, parts: &[Buffer<'_>], weight: f32, out: BufferMut<'_>) -> Result<()>;

    /// [`Kernels::bf16_expand`].
    fn bf16_expand(&self, part: Buffer<'_>, weight: f32, out: BufferMut<'_>) -> Result<()>;

    /// The number of the f32 that an error names when the scale of all of them is not finite: the first element that is
    /// not finite itself, or the largest ([`worst_element`]).
    fn worst_element(&self, values: BufferMut<'_>) -> Result<usize>;

    /// [`Kernels::sum`].
    fn sum(&self, parts: &[Buffer<'_>], out: BufferMut<'_>) -> Result<()>;

    /// [`Kernels::average`].
    fn average(&self, old: Buffer<'_>, shift: u32, new: BufferMut<'_>) -> Result<()>;

    /// [`Kernels::int_magnitudes`].
    fn int_magnitudes(
        &self,
        input: Buffer<'_>,
        old: Option<Buffer<'_>>,
        block: usize,
        out: BufferMut<'_>,
    ) -> Result<()>;

    /// [`Kernels::int_encode_shared`].
    fn int_encode_shared(
        &self,
        input: Buffer<'_>,
        feedback: Option<Feedback<'_>>,
        rounding: Rounding,
        shared: Shared<'_>,
        out: BufferMut<'_>,
    ) -> Result<()>;

    /// [`Kernels::int_expand_shared`].
    fn int_expand_shared(
        &self,
        codes: Buffer<'_>,
        shared: Shared<'_>,
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()>;
}

/// The first element that is not finite. When all are, but not the sum of their squares, the largest: some element must
/// be named.
pub fn worst_element(values: &[f32]) -> usize {
    let magnitude = |index: &usize| values[*index].abs().to_bits();
    let first = values.iter().position(|value| !value.is_finite());
    first.or_else(|| (0..values.len()).max_by_key(magnitude)).unwrap_or(0)
}

/// The same memory, for a shorter time.
///
/// # Errors
/// [`Error::Unsupported`] for a list of segments, which codecs are not given.
pub(crate) fn reborrow<'b>(buffer: &'b mut BufferMut<'_>) -> Result<BufferMut<'b>> {
    match buffer {
        BufferMut::Host(SegmentsMut::One(bytes)) => Ok(BufferMut::Host(SegmentsMut::One(bytes))),
        BufferMut::Host(SegmentsMut::Many(_) | SegmentsMut::Owned(_)) => Err(Error::Unsupported {
            what: "a list of segments as the memory of a codec".to_owned(),
            backend: "compression",
            instead: Some("one segment".to_owned()),
        }),
        BufferMut::Device(buffer) => Ok(BufferMut::Device(buffer)),
    }
}
