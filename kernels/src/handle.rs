//! The way in which kernels run, and the kernels as its methods.

use std::sync::LazyLock;

use crate::dispatch::{self, Available, Job, Target};
use crate::format::{self, LANES, SQUARES_BLOCK};
use crate::{
    CodeSize, GlobalSignPart, IntFormat, IntPart, IntPartMut, Residual, Rounding, SignPart, SignPartMut,
    bf16, global, int, int_decode, shared, sign, sign_decode, sign_words, sum,
};

/// The way in which a kernel writes large outputs: f32 that nothing reads soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stores {
    /// Through the caches.
    Cached,
    /// Past the caches, where the processor has such stores and the output is aligned to 64 bytes: for memory that is
    /// larger than the caches, also when it is given in pieces.
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

/// The largest shift of [`Kernels::average`].
pub const SHIFT_MAX: u32 = 8;

/// The threads that a call may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Threads {
    /// The caller's.
    One,
    /// The threads of the rayon pool that the caller is in, when there are several and the call is large.
    Pool,
}

/// The kernels, and how they run.
///
/// All methods panic when lengths of buffers do not fit each other, and when a block is not a multiple of 64 elements.
#[derive(Clone, Copy, Debug)]
pub struct Kernels {
    available: Available,
    stores: Stores,
    threads: Threads,
}

impl Kernels {
    /// The fastest bodies for this processor, cached stores, one thread.
    pub fn best() -> Kernels {
        static BEST: LazyLock<Kernels> = LazyLock::new(|| {
            let fastest = Target::ALL.into_iter().rev().find_map(Kernels::of);
            #[expect(clippy::expect_used, reason = "`Target::Portable` runs on every processor")]
            fastest.expect("portable bodies are available")
        });
        *BEST
    }

    /// The bodies of a target, cached stores, one thread. `None` where the processor lacks the instructions.
    pub fn of(target: Target) -> Option<Kernels> {
        let available = Available::new(target)?;
        Some(Kernels { available, stores: Stores::Cached, threads: Threads::One })
    }

    /// With another way to write.
    pub fn with_stores(self, stores: Stores) -> Kernels {
        Kernels { stores, ..self }
    }

    /// With another number of threads.
    pub fn with_threads(self, threads: Threads) -> Kernels {
        Kernels { threads, ..self }
    }

    /// The instructions that the bodies are written for.
    pub fn target(self) -> Target {
        self.available.target()
    }

    /// Encodes `input + residual.old` by the sign of each element and the mean magnitude of each block of `block`
    /// elements; `residual.new` becomes the encoding error. The first block whose scale is not finite, if there is one:
    /// the outputs are worthless then.
    pub fn sign_encode(
        self,
        input: &[f32],
        residual: Option<Residual<'_>>,
        block: usize,
        output: SignPartMut<'_>,
    ) -> Option<usize> {
        check_residual(&residual, input.len());
        check_signs(&output, input.len(), block);
        self.run(sign::SignEncode { input, residual, block, output })
    }

    /// Sums the `parts` (by fours, and the sums of the fours in their order) and `residual.old`, and encodes the sum as
    /// [`Kernels::sign_encode`] does.
    pub fn sign_reduce_encode(
        self,
        parts: &[SignPart<'_>],
        elements: usize,
        residual: Option<Residual<'_>>,
        block: usize,
        output: SignPartMut<'_>,
    ) -> Option<usize> {
        check_residual(&residual, elements);
        check_signs(&output, elements, block);
        parts.iter().for_each(|part| check_sign_part(part, elements, block));
        self.run(sign::SignReduceEncode { parts, first: 0, elements, residual, block, output })
    }

    /// `output` becomes the sum of the `parts`, in the order of [`Kernels::sign_reduce_encode`], times `weight`.
    pub fn sign_decode_sum(self, parts: &[SignPart<'_>], block: usize, weight: f32, output: &mut [f32]) {
        parts.iter().for_each(|part| check_sign_part(part, output.len(), block));
        check_block(block);
        self.run(sign_decode::SignDecodeSum { parts, first: 0, block, weight, output });
    }

    /// Each element of `output` becomes plus or minus its block's scale times `weight`.
    pub fn sign_expand(self, part: SignPart<'_>, block: usize, weight: f32, output: &mut [f32]) {
        check_sign_part(&part, output.len(), block);
        self.run(sign_decode::SignExpand { part, block, weight, output });
    }

    /// [`Kernels::sign_encode`] with one scale, the root of the mean square of all elements: that, `None` if it is not
    /// finite.
    pub fn sign_encode_global(self, input: &[f32], residual: Residual<'_>, bits: &mut [u32]) -> Option<f32> {
        let squares = self.compensate(input, residual.old, residual.new);
        let scale = format::root_mean_square(squares, input.len())?;
        self.sign_pack(residual.new, scale, bits);
        Some(scale)
    }

    /// The first half of [`Kernels::sign_encode_global`]: `sum` becomes `input + old`; the sum of its squares, of which
    /// [`format::root_mean_square`] makes the scale. For several pieces of a call the caller adds their sums, in their
    /// order; pieces of other lengths can give a total that differs in its last bits.
    pub fn compensate(self, input: &[f32], old: &[f32], sum: &mut [f32]) -> f64 {
        assert_eq!((old.len(), sum.len()), (input.len(), input.len()), "elements");
        let mut squares = vec![0.0; input.len().div_ceil(SQUARES_BLOCK)];
        self.run(global::Compensate {
            input,
            old,
            sums: global::Sums { values: sum, squares: &mut squares },
        });
        squares.iter().sum()
    }

    /// `sum` becomes the sum of the `parts` and `old`; the sum of its squares.
    pub fn sign_reduce_global(self, parts: &[GlobalSignPart<'_>], old: &[f32], sum: &mut [f32]) -> f64 {
        assert_eq!(old.len(), sum.len(), "elements");
        parts.iter().for_each(|part| assert_eq!(part.bits.len(), sign_words(sum.len()), "words of a part"));
        let mut squares = vec![0.0; sum.len().div_ceil(SQUARES_BLOCK)];
        let sums = global::Sums { values: sum, squares: &mut squares };
        self.run(global::Reduce { parts, first: 0, old, sums });
        squares.iter().sum()
    }

    /// The second half of [`Kernels::sign_encode_global`]: packs the signs of `values`, which become the errors of plus
    /// or minus `scale`. They are zero or normal, as the first half leaves them.
    pub fn sign_pack(self, values: &mut [f32], scale: f32, bits: &mut [u32]) {
        assert_eq!(bits.len(), sign_words(values.len()), "words");
        self.run(global::Pack { values, scale, bits });
    }

    /// Encodes `input + residual.old` by integers, with scales for each block; `residual.new` becomes the encoding
    /// error. The first block with an element that is not finite, if there is one: the outputs are worthless then.
    pub fn int_encode(
        self,
        input: &[f32],
        residual: Option<Residual<'_>>,
        format: IntFormat,
        rounding: Rounding,
        output: IntPartMut<'_>,
    ) -> Option<usize> {
        check_residual(&residual, input.len());
        check_ints(output.scales.len(), output.codes.len(), input.len(), format);
        self.run(int::IntEncode { input, first: 0, residual, format, rounding, output })
    }

    /// Sums the `parts` and `residual.old`, and encodes the sum as [`Kernels::int_encode`] does.
    pub fn int_reduce_encode(
        self,
        parts: &[IntPart<'_>],
        elements: usize,
        residual: Option<Residual<'_>>,
        format: IntFormat,
        rounding: Rounding,
        output: IntPartMut<'_>,
    ) -> Option<usize> {
        check_residual(&residual, elements);
        check_ints(output.scales.len(), output.codes.len(), elements, format);
        parts.iter().for_each(|part| check_ints(part.scales.len(), part.codes.len(), elements, format));
        self.run(int::IntReduceEncode { parts, first: 0, elements, residual, format, rounding, output })
    }

    /// `output` becomes the sum of the `parts`, times `weight`.
    pub fn int_decode_sum(self, parts: &[IntPart<'_>], format: IntFormat, weight: f32, output: &mut [f32]) {
        parts.iter().for_each(|part| check_ints(part.scales.len(), part.codes.len(), output.len(), format));
        check_block(format.block);
        self.run(int_decode::IntDecodeSum { parts, first: 0, format, weight, output });
    }

    /// `output` becomes the values of the codes, times `weight`.
    pub fn int_expand(self, part: IntPart<'_>, format: IntFormat, weight: f32, output: &mut [f32]) {
        check_ints(part.scales.len(), part.codes.len(), output.len(), format);
        self.run(int_decode::IntExpand { part, format, weight, output });
    }

    /// The largest magnitude of `input + old` in each block of `block` elements, as the bits of an f32; the bits of an
    /// infinity if an element is not finite. Ranks that take the largest of theirs, as integers, have magnitudes for
    /// [`Kernels::int_encode_shared`].
    pub fn int_magnitudes(self, input: &[f32], old: Option<&[f32]>, block: usize, output: &mut [u32]) {
        if let Some(old) = old {
            assert_eq!(old.len(), input.len(), "elements of the residual");
        }
        check_block(block);
        assert_eq!(output.len(), input.len().div_ceil(block), "magnitudes");
        self.run(shared::IntMagnitudes { input, old, block, output });
    }

    /// Encodes `input + residual.old` by integers of `size` bytes, with scales that [`IntFormat::scale`] makes of
    /// `magnitudes`, one for each block: where ranks have the same magnitudes, the sum of their codes is the code of
    /// their sum. `residual.new` becomes the encoding error.
    ///
    /// Every magnitude is finite and not smaller than any of its block; otherwise the codes are worthless. Blocks whose
    /// magnitude is too large for a scale get codes 0: a caller that wants an error asks [`IntFormat::scale`] first.
    ///
    /// # Panics
    /// If the format is not symmetric.
    #[expect(clippy::too_many_arguments, reason = "each is one of the format, of the input or of the output")]
    pub fn int_encode_shared(
        self,
        input: &[f32],
        residual: Option<Residual<'_>>,
        format: IntFormat,
        rounding: Rounding,
        magnitudes: &[u32],
        size: CodeSize,
        codes: &mut [u8],
    ) {
        check_residual(&residual, input.len());
        check_shared(codes.len(), magnitudes.len(), input.len(), format, size);
        self.run(shared::IntEncodeShared {
            input,
            first: 0,
            residual,
            format,
            rounding,
            magnitudes,
            size,
            codes,
        });
    }

    /// `output` becomes the values of codes of [`Kernels::int_encode_shared`], or of sums of them whose magnitudes are
    /// below 2^24, times `weight`: first the product of code and scale is rounded, then its product with the weight.
    ///
    /// # Panics
    /// If the format is not symmetric.
    pub fn int_expand_shared(
        self,
        codes: &[u8],
        size: CodeSize,
        format: IntFormat,
        magnitudes: &[u32],
        weight: f32,
        output: &mut [f32],
    ) {
        check_shared(codes.len(), magnitudes.len(), output.len(), format, size);
        self.run(shared::IntExpandShared { codes, size, format, magnitudes, weight, output });
    }

    /// `output` becomes `input` in bf16, to the nearest, ties to even. The first block of
    /// [`BF16_BLOCK`](crate::reference::BF16_BLOCK) elements that are not all finite, if there is one.
    pub fn bf16_encode(self, input: &[f32], output: &mut [u16]) -> Option<usize> {
        assert_eq!(output.len(), input.len(), "elements");
        self.run(bf16::Bf16Encode { input, output })
    }

    /// `output` becomes the sum of the `parts`, times `weight`.
    pub fn bf16_decode_sum(self, parts: &[&[u16]], weight: f32, output: &mut [f32]) {
        parts.iter().for_each(|part| assert_eq!(part.len(), output.len(), "elements of a part"));
        self.run(bf16::Bf16DecodeSum { parts, first: 0, weight, output });
    }

    /// `output` becomes `input` times `weight`.
    pub fn bf16_expand(self, input: &[u16], weight: f32, output: &mut [f32]) {
        assert_eq!(output.len(), input.len(), "elements");
        self.run(bf16::Bf16Expand { input, weight, output });
    }

    /// `output` becomes the sum of the `parts`, in their order.
    pub fn sum(self, parts: &[&[f32]], output: &mut [f32]) {
        parts.iter().for_each(|part| assert_eq!(part.len(), output.len(), "elements of a part"));
        self.run(sum::Sum { parts, first: 0, output });
    }

    /// `new` becomes `old + (new - old) x 2^-shift`: a moving average of residuals, which hold no subnormal numbers.
    ///
    /// # Panics
    /// If `shift` is larger than [`SHIFT_MAX`].
    pub fn average(self, old: &[f32], shift: u32, new: &mut [f32]) {
        assert_eq!(old.len(), new.len(), "elements");
        assert!(shift <= SHIFT_MAX, "a shift of {shift}");
        self.run(sum::Average { old, shift, new });
    }

    fn run<J>(self, job: J) -> J::Output
    where
        J: Job + Send,
        J::Output: Send,
    {
        match self.threads {
            Threads::One => dispatch::run(job, self.available, self.stores),
            Threads::Pool => dispatch::run_on_pool(job, self.available, self.stores),
        }
    }
}

fn check_residual(residual: &Option<Residual<'_>>, elements: usize) {
    if let Some(residual) = residual {
        assert_eq!(
            (residual.old.len(), residual.new.len()),
            (elements, elements),
            "elements of the residual"
        );
    }
}

fn check_block(block: usize) {
    assert!(block > 0 && block.is_multiple_of(LANES), "a block of {block} elements");
}

fn check_signs(output: &SignPartMut<'_>, elements: usize, block: usize) {
    check_block(block);
    assert_eq!(output.scales.len(), elements.div_ceil(block), "scales");
    assert_eq!(output.bits.len(), sign_words(elements), "words");
}

fn check_sign_part(part: &SignPart<'_>, elements: usize, block: usize) {
    check_block(block);
    assert_eq!(part.scales.len(), elements.div_ceil(block), "scales of a part");
    assert_eq!(part.bits.len(), sign_words(elements), "words of a part");
}

fn check_ints(scales: usize, codes: usize, elements: usize, format: IntFormat) {
    check_block(format.block);
    assert_eq!(scales, format.scales(elements), "scales");
    assert_eq!(codes, format.width.code_bytes(elements), "bytes of codes");
}

fn check_shared(codes: usize, magnitudes: usize, elements: usize, format: IntFormat, size: CodeSize) {
    check_block(format.block);
    assert!(format.symmetric, "an asymmetric format");
    assert_eq!(magnitudes, format.scales(elements), "magnitudes");
    assert_eq!(codes, elements * size.bytes(), "bytes of codes");
}
