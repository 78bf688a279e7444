//! The kernels of compressed collectives: f32 to 1-bit, int8, int4 and bf16 codes and back.
//!
//! | method of [`Kernels`] | effect | bytes of memory traffic for each element |
//! | --- | --- | --- |
//! | `sign_encode` | adds the residual, packs signs with a scale for each block, leaves the new residual | 12.1 |
//! | `sign_encode_global` | the same with one scale for all, the root mean square | 20.1 |
//! | `sign_reduce_encode` | sums several ranks' signs, and encodes the sum | 8.1, and 0.1 for each rank |
//! | `sign_decode_sum` | sums several ranks' signs to f32 | 4, and 0.1 for each rank |
//! | `sign_expand` | signs and scales to f32 | 4.1 |
//! | `int_encode` | f32 to 8 or 4 bits, a scale for each block | 5 or 4.5; 8 more with a residual |
//! | `int_reduce_encode` | sums several ranks' codes, and encodes the sum | 1 or 0.5, and as much for each rank |
//! | `int_decode_sum` | sums several ranks' codes to f32 | 4, and 1 or 0.5 for each rank |
//! | `int_expand` | codes to f32 | 5 or 4.5 |
//! | `int_magnitudes` | the largest magnitude of each block, for scales that ranks share | 4; 4 more with a residual |
//! | `int_encode_shared` | f32 to integers of 1, 2 or 4 bytes that can be added | 5, 6 or 8; 8 more with a residual |
//! | `int_expand_shared` | such integers, or sums of them, to f32 | 5, 6 or 8 |
//! | `bf16_encode`, `bf16_expand` | f32 to bf16 and back | 6 |
//! | `bf16_decode_sum` | sums several ranks' bf16 to f32 | 4, and 2 for each rank |
//! | `sum` | sums several ranks' f32 | 4, and 4 for each rank |
//! | `average` | the moving average of two residuals | 12 |
//!
//! A line of the cache that ordinary stores write is read first; [`Stores::Streaming`] spares that (streaming stores
//! need an output that is aligned to 64 bytes, or they are ordinary ones). Rates beside a copy: `unisono bench
//! kernels`.
//!
//! ```
//! use unisono_kernels::{Kernels, Residual, SignPart, SignPartMut};
//!
//! let (kernels, gradient) = (Kernels::best(), [3.0, -1.0, 0.0, 0.0]);
//! let (old, mut new) = ([0.0; 4], [0.0; 4]);
//! let (mut scales, mut bits) = ([0.0], [0]);
//! let residual = Residual { old: &old, new: &mut new };
//! let output = SignPartMut { scales: &mut scales, bits: &mut bits };
//! assert_eq!(kernels.sign_encode(&gradient, Some(residual), 64, output), None);
//! // Zeros count as positive.
//! assert_eq!((scales, bits, new), ([1.0], [0b1101], [2.0, 0.0, -1.0, -1.0]));
//!
//! let mut sent = [0.0; 4];
//! kernels.sign_expand(SignPart { scales: &scales, bits: &bits }, 64, 1.0, &mut sent);
//! assert_eq!(sent, [1.0, -1.0, 1.0, 1.0]);
//! ```
//!
//! A [`Kernels`] value says how they run. Every body of a kernel, for every instruction set, kind of stores and number
//! of threads, gives the same bytes as the functions of [`reference`](mod@reference), which are the definition.

mod bf16;
mod dispatch;
pub mod format;
mod global;
mod groups;
mod handle;
mod int;
mod int_decode;
pub mod reference;
mod shared;
mod sign;
mod sign_decode;
mod simd;
mod steps;
mod sum;
#[cfg(feature = "testing")]
pub mod testing;
mod texts;

pub use dispatch::Target;
pub use format::{CodeSize, Counter, IntFormat, IntWidth, Rounding};
pub use handle::{Kernels, SHIFT_MAX, Stores, Threads};
pub use texts::{cuda, wgsl};

/// The error feedback of an encoder: the residual of each element from earlier calls, and from this one.
///
/// They are two buffers so that a call that fails can be undone: the caller drops `new`.
#[derive(Debug)]
pub struct Residual<'a> {
    /// The residuals from the last call. As long as the input; no subnormal numbers and no -0.0.
    pub old: &'a [f32],
    /// The residuals from this call. As long as the input.
    pub new: &'a mut [f32],
}

impl Residual<'_> {
    /// The same, for a shorter time.
    pub fn reborrow(&mut self) -> Residual<'_> {
        Residual { old: self.old, new: self.new }
    }
}

impl<'a> Residual<'a> {
    /// Of the first `at` elements and of the others.
    fn split_at(self, at: usize) -> (Residual<'a>, Residual<'a>) {
        let (old, new) = (self.old.split_at(at), self.new.split_at_mut(at));
        (Residual { old: old.0, new: new.0 }, Residual { old: old.1, new: new.1 })
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

/// The memory for one rank's signs, in the form of [`SignPart`].
#[derive(Debug)]
pub struct SignPartMut<'a> {
    /// One for each block.
    pub scales: &'a mut [f32],
    /// [`sign_words`]; bits behind the last element become clear.
    pub bits: &'a mut [u32],
}

impl<'a> SignPartMut<'a> {
    /// For the first `at` elements, which are whole blocks, and for the others.
    fn split_at(self, at: usize, block: usize) -> (SignPartMut<'a>, SignPartMut<'a>) {
        let (scales, bits) = (self.scales.split_at_mut(at / block), self.bits.split_at_mut(at / 32));
        (SignPartMut { scales: scales.0, bits: bits.0 }, SignPartMut { scales: scales.1, bits: bits.1 })
    }
}

/// The memory for one rank's integers, in the form of [`IntPart`].
#[derive(Debug)]
pub struct IntPartMut<'a> {
    /// [`IntFormat::scales`].
    pub scales: &'a mut [f32],
    /// [`format::IntWidth::code_bytes`]; the half byte behind the last element becomes zero.
    pub codes: &'a mut [u8],
}

impl<'a> IntPartMut<'a> {
    /// For the first `at` elements, which are whole blocks, and for the others.
    fn split_at(self, at: usize, format: IntFormat) -> (IntPartMut<'a>, IntPartMut<'a>) {
        let (scales, codes) = (
            self.scales.split_at_mut(format.scales(at)),
            self.codes.split_at_mut(format.width.code_bytes(at)),
        );
        (IntPartMut { scales: scales.0, codes: codes.0 }, IntPartMut { scales: scales.1, codes: codes.1 })
    }
}

/// The number of words that hold one bit for each of `elements`.
pub const fn sign_words(elements: usize) -> usize {
    elements.div_ceil(32)
}
