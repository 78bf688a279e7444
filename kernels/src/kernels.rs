//! How kernels run, and the kernels as methods of that.

use crate::{
    GlobalSignPart, IntFormat, IntPart, IntPartMut, Residual, Rounding, SignPart, SignPartMut, format,
    reference,
};

/// The instruction set that a body of the kernels is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// [`reference`]: the definition, one element after the other.
    Reference,
    /// Any processor.
    Portable,
}

/// How a kernel writes large outputs: f32 that nothing reads soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stores {
    /// Through the caches.
    Cached,
    /// Past the caches, where the processor has such stores: for memory that is larger than the caches, also when it is
    /// given in pieces.
    Streaming,
}

impl Stores {
    /// The faster ones for a call over `elements` f32, all pieces counted together.
    pub fn of_call(elements: usize) -> Stores {
        if elements >= STREAMING_ELEMENTS_MIN { Stores::Streaming } else { Stores::Cached }
    }
}

/// From here on, the buffers of an encoder with a residual (12 bytes an element) do not stay in the caches of one core.
const STREAMING_ELEMENTS_MIN: usize = 1 << 20;

/// How many threads a call may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Threads {
    /// The caller's.
    One,
    /// Those of the rayon pool that the caller is in, when there are several and the call is large.
    Pool,
}

/// The kernels, and how they run.
#[derive(Clone, Copy, Debug)]
pub struct Kernels {
    target: Target,
    #[expect(dead_code, reason = "the reference has one way to write")]
    stores: Stores,
    #[expect(dead_code, reason = "the reference has one thread")]
    threads: Threads,
}

impl Kernels {
    /// The fastest body for this processor, cached stores, one thread.
    pub fn best() -> Kernels {
        Kernels { target: Target::Reference, stores: Stores::Cached, threads: Threads::One }
    }

    /// With another way to write.
    pub fn with_stores(self, stores: Stores) -> Kernels {
        Kernels { stores, ..self }
    }

    /// With another number of threads.
    pub fn with_threads(self, threads: Threads) -> Kernels {
        Kernels { threads, ..self }
    }

    /// What the bodies are written for.
    pub fn target(self) -> Target {
        self.target
    }

    /// Encodes `input + residual.old` by the sign of each element and the mean magnitude of each block of `block`
    /// elements; `residual.new` becomes what that leaves out. The first block whose scale is not finite, if there is
    /// one: the outputs are worthless then.
    ///
    /// # Panics
    /// When lengths do not fit, and when `block` is not a multiple of 64.
    pub fn sign_encode(
        self,
        input: &[f32],
        residual: Option<Residual<'_>>,
        block: usize,
        output: SignPartMut<'_>,
    ) -> Option<usize> {
        reference::sign_encode(input, residual, block, output.scales, output.bits)
    }

    /// Sums the `parts` and `residual.old`, and encodes the sum as [`Kernels::sign_encode`] does.
    ///
    /// # Panics
    /// As [`Kernels::sign_encode`].
    pub fn sign_reduce_encode(
        self,
        parts: &[SignPart<'_>],
        elements: usize,
        residual: Option<Residual<'_>>,
        block: usize,
        output: SignPartMut<'_>,
    ) -> Option<usize> {
        reference::sign_reduce_encode(parts, elements, residual, block, output.scales, output.bits)
    }

    /// Each element of `output` becomes plus or minus its block's scale times `weight`.
    ///
    /// # Panics
    /// As [`Kernels::sign_encode`].
    pub fn sign_expand(self, part: SignPart<'_>, block: usize, weight: f32, output: &mut [f32]) {
        reference::sign_expand(part, block, weight, output);
    }

    /// [`Kernels::sign_encode`] with one scale, the root of the mean square of all elements: that, `None` if it is not
    /// finite.
    ///
    /// # Panics
    /// As [`Kernels::sign_encode`].
    pub fn sign_encode_global(self, input: &[f32], residual: Residual<'_>, bits: &mut [u32]) -> Option<f32> {
        let squares = self.compensate(input, residual.old, residual.new);
        let scale = format::root_mean_square(squares, input.len())?;
        self.sign_pack(residual.new, scale, bits);
        Some(scale)
    }

    /// The first half of [`Kernels::sign_encode_global`]: `sum` becomes `input + old`; the sum of its squares.
    ///
    /// # Panics
    /// When lengths do not fit.
    pub fn compensate(self, input: &[f32], old: &[f32], sum: &mut [f32]) -> f64 {
        reference::compensate(input, old, sum)
    }

    /// `sum` becomes the sum of the `parts` and `old`; the sum of its squares.
    ///
    /// # Panics
    /// When lengths do not fit.
    pub fn sign_reduce_global(self, parts: &[GlobalSignPart<'_>], old: &[f32], sum: &mut [f32]) -> f64 {
        reference::sign_reduce_global(parts, old, sum)
    }

    /// The second half of [`Kernels::sign_encode_global`]: packs the signs of `values`, which become what plus or minus
    /// `scale` leaves out.
    ///
    /// # Panics
    /// When lengths do not fit.
    pub fn sign_pack(self, values: &mut [f32], scale: f32, bits: &mut [u32]) {
        reference::sign_pack(values, scale, bits);
    }

    /// Encodes `input + residual.old` by integers, with scales for each block; `residual.new` becomes what that leaves
    /// out. The first block with an element that is not finite, if there is one: the outputs are worthless then.
    ///
    /// # Panics
    /// When lengths do not fit.
    pub fn int_encode(
        self,
        input: &[f32],
        residual: Option<Residual<'_>>,
        format: IntFormat,
        rounding: Rounding,
        output: IntPartMut<'_>,
    ) -> Option<usize> {
        reference::int_encode(input, residual, format, rounding, output.scales, output.codes)
    }

    /// Sums the `parts` and `residual.old`, and encodes the sum as [`Kernels::int_encode`] does.
    ///
    /// # Panics
    /// When lengths do not fit.
    pub fn int_reduce_encode(
        self,
        parts: &[IntPart<'_>],
        elements: usize,
        residual: Option<Residual<'_>>,
        format: IntFormat,
        rounding: Rounding,
        output: IntPartMut<'_>,
    ) -> Option<usize> {
        reference::int_reduce_encode(parts, elements, residual, format, rounding, output.scales, output.codes)
    }

    /// `output` becomes the sum of the `parts`.
    ///
    /// # Panics
    /// When lengths do not fit.
    pub fn int_decode_sum(self, parts: &[IntPart<'_>], format: IntFormat, output: &mut [f32]) {
        reference::int_decode_sum(parts, format, output);
    }

    /// `output` becomes what the codes stand for, times `weight`.
    ///
    /// # Panics
    /// When lengths do not fit.
    pub fn int_expand(self, part: IntPart<'_>, format: IntFormat, weight: f32, output: &mut [f32]) {
        reference::int_expand(part, format, weight, output);
    }

    /// `output` becomes `input` in bf16, to the nearest, ties to even. The first block of [`reference::BF16_BLOCK`]
    /// elements with one that is not finite, if there is one.
    ///
    /// # Panics
    /// When lengths do not fit.
    pub fn bf16_encode(self, input: &[f32], output: &mut [u16]) -> Option<usize> {
        reference::bf16_encode(input, output)
    }

    /// `output` becomes the sum of the `parts`.
    ///
    /// # Panics
    /// When lengths do not fit.
    pub fn bf16_decode_sum(self, parts: &[&[u16]], output: &mut [f32]) {
        reference::bf16_decode_sum(parts, output);
    }

    /// `output` becomes `input` times `weight`.
    ///
    /// # Panics
    /// When lengths do not fit.
    pub fn bf16_expand(self, input: &[u16], weight: f32, output: &mut [f32]) {
        reference::bf16_expand(input, weight, output);
    }
}
