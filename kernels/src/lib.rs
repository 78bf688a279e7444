//! The kernels of compressed collectives: what turns f32 into 1-bit, int8, int4 and bf16 codes and back.
//!
//! | kernel | what it does | bytes of memory traffic for each element |
//! | --- | --- | --- |
//! | [`sign_encode`] | adds the residual, finds each block's mean magnitude, packs signs, leaves the new residual | 12.1 |
//! | [`sign_encode_global`] | the same with one scale for all, the root mean square | 20.1 |
//! | [`sign_reduce_encode`] | sums several ranks' signs, and encodes the sum | 8.1 and 0.1 for each rank |
//! | [`sign_expand`] | signs and scales to f32 | 4.1 |
//! | [`int_encode`] | f32 to 8 or 4 bits, a scale for each block | 5 or 4.5, with a residual 13 or 12.5 |
//! | [`int_reduce_encode`] | sums several ranks' codes, and encodes the sum | |
//! | [`int_decode_sum`] | sums several ranks' codes to f32 | |
//! | [`int_expand`] | codes to f32 | |
//! | [`bf16_encode`], [`bf16_decode_sum`], [`bf16_expand`] | f32 to bf16 and back | 6 |
//!
//! Every body of a kernel, for whatever instruction set and number of threads, gives the same bytes as the functions
//! of [`reference`], which are the definition.

pub mod format;
pub mod reference;

pub use format::{Counter, IntFormat, IntWidth, Rounding};

/// The error feedback of an encoder: what earlier calls owe to each element, and what this one will.
///
/// They are two buffers so that a call that fails can be undone: the caller drops `new`.
#[derive(Debug)]
pub struct Residual<'a> {
    /// What was left by the last call. As long as the input; no subnormal numbers and no -0.0.
    pub old: &'a [f32],
    /// What this call leaves. As long as the input.
    pub new: &'a mut [f32],
}

impl Residual<'_> {
    /// The same, for a shorter time.
    pub fn reborrow(&mut self) -> Residual<'_> {
        Residual { old: self.old, new: self.new }
    }
}

/// One rank's signs with a scale for each block.
#[derive(Clone, Copy, Debug)]
pub struct SignPart<'a> {
    /// One for each block; not negative, not subnormal.
    pub scales: &'a [f32],
    /// One bit for each element, set for plus; element i is bit i % 32 of word i / 32.
    pub bits: &'a [u32],
}

/// One rank's signs with one scale.
#[derive(Clone, Copy, Debug)]
pub struct GlobalSignPart<'a> {
    /// Of all elements.
    pub scale: f32,
    /// As in [`SignPart`].
    pub bits: &'a [u32],
}

/// One rank's integers.
#[derive(Clone, Copy, Debug)]
pub struct IntPart<'a> {
    /// [`IntFormat::scales_per_block`] for each block.
    pub scales: &'a [f32],
    /// The codes.
    pub codes: &'a [u8],
}

/// How many words hold one bit for each of `elements`.
pub const fn sign_words(elements: usize) -> usize {
    elements.div_ceil(32)
}

/// Encodes `input + residual.old` by the sign of each element and the mean magnitude of each block of `block`
/// elements; `residual.new` becomes what that leaves out. The first block whose scale is not finite, if there is one:
/// the outputs are worthless then.
///
/// `scales` has one for each block, `bits` [`sign_words`]; bits behind the last element are clear.
///
/// # Panics
/// When lengths do not fit, and when `block` is not a multiple of 64.
pub fn sign_encode(
    input: &[f32],
    residual: Option<Residual<'_>>,
    block: usize,
    scales: &mut [f32],
    bits: &mut [u32],
) -> Option<usize> {
    reference::sign_encode(input, residual, block, scales, bits)
}

/// Sums the `parts`, in their order, and `residual.old`, and encodes the sum as [`sign_encode`] does.
///
/// # Panics
/// As [`sign_encode`].
pub fn sign_reduce_encode(
    parts: &[SignPart<'_>],
    elements: usize,
    residual: Option<Residual<'_>>,
    block: usize,
    scales: &mut [f32],
    bits: &mut [u32],
) -> Option<usize> {
    reference::sign_reduce_encode(parts, elements, residual, block, scales, bits)
}

/// Each element of `output` becomes plus or minus its block's scale times `weight`.
///
/// # Panics
/// As [`sign_encode`].
pub fn sign_expand(part: SignPart<'_>, block: usize, weight: f32, output: &mut [f32]) {
    reference::sign_expand(part, block, weight, output);
}

/// [`sign_encode`] with one scale, the root of the mean square of all elements: that, `None` if it is not finite.
///
/// # Panics
/// As [`sign_encode`].
pub fn sign_encode_global(input: &[f32], residual: Residual<'_>, bits: &mut [u32]) -> Option<f32> {
    let squares = compensate(input, residual.old, residual.new);
    let scale = format::root_mean_square(squares, input.len())?;
    sign_pack(residual.new, scale, bits);
    Some(scale)
}

/// The first half of [`sign_encode_global`]: `sum` becomes `input + old`; the sum of its squares.
///
/// # Panics
/// When lengths do not fit.
pub fn compensate(input: &[f32], old: &[f32], sum: &mut [f32]) -> f64 {
    reference::compensate(input, old, sum)
}

/// `sum` becomes the sum of the `parts`, in their order, and `old`; the sum of its squares.
///
/// # Panics
/// When lengths do not fit.
pub fn sign_reduce_global(parts: &[GlobalSignPart<'_>], old: &[f32], sum: &mut [f32]) -> f64 {
    reference::sign_reduce_global(parts, old, sum)
}

/// The second half of [`sign_encode_global`]: packs the signs of `values`, which become what plus or minus `scale`
/// leaves out.
///
/// # Panics
/// When lengths do not fit.
pub fn sign_pack(values: &mut [f32], scale: f32, bits: &mut [u32]) {
    reference::sign_pack(values, scale, bits);
}

/// Encodes `input + residual.old` by integers, with scales for each block; `residual.new` becomes what that leaves
/// out. The first block with an element that is not finite, if there is one: the outputs are worthless then.
///
/// # Panics
/// When lengths do not fit.
pub fn int_encode(
    input: &[f32],
    residual: Option<Residual<'_>>,
    format: IntFormat,
    rounding: Rounding,
    scales: &mut [f32],
    codes: &mut [u8],
) -> Option<usize> {
    reference::int_encode(input, residual, format, rounding, scales, codes)
}

/// Sums the `parts`, in their order, and `residual.old`, and encodes the sum as [`int_encode`] does.
///
/// # Panics
/// When lengths do not fit.
pub fn int_reduce_encode(
    parts: &[IntPart<'_>],
    elements: usize,
    residual: Option<Residual<'_>>,
    format: IntFormat,
    rounding: Rounding,
    scales: &mut [f32],
    codes: &mut [u8],
) -> Option<usize> {
    reference::int_reduce_encode(parts, elements, residual, format, rounding, scales, codes)
}

/// `output` becomes the sum of the `parts`, in their order.
///
/// # Panics
/// When lengths do not fit.
pub fn int_decode_sum(parts: &[IntPart<'_>], format: IntFormat, output: &mut [f32]) {
    reference::int_decode_sum(parts, format, output);
}

/// `output` becomes what the codes stand for, times `weight`.
///
/// # Panics
/// When lengths do not fit.
pub fn int_expand(part: IntPart<'_>, format: IntFormat, weight: f32, output: &mut [f32]) {
    reference::int_expand(part, format, weight, output);
}

/// `output` becomes `input` in bf16, to the nearest, ties to even. The first block of 1,024 elements with one that is
/// not finite, if there is one.
///
/// # Panics
/// When lengths do not fit.
pub fn bf16_encode(input: &[f32], output: &mut [u16]) -> Option<usize> {
    reference::bf16_encode(input, output)
}

/// `output` becomes the sum of the `parts`, in their order.
///
/// # Panics
/// When lengths do not fit.
pub fn bf16_decode_sum(parts: &[&[u16]], output: &mut [f32]) {
    reference::bf16_decode_sum(parts, output);
}

/// `output` becomes `input` times `weight`.
///
/// # Panics
/// When lengths do not fit.
pub fn bf16_expand(input: &[u16], weight: f32, output: &mut [f32]) {
    reference::bf16_expand(input, weight, output);
}
