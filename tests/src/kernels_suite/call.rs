//! The calls of kernels as data.

use unisono_communicator::{Buffer, BufferMut, Result};
use unisono_compression::{CodecKernels, Feedback, Shared};
use unisono_kernels::{CodeSize, IntFormat, Rounding};

/// The kernels of [`CodecKernels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the method of its name")]
pub enum Kernel {
    SignEncode,
    SignReduceEncode,
    SignDecodeSum,
    SignExpand,
    Compensate,
    SignReduceGlobal,
    SignPack,
    IntEncode,
    IntReduceEncode,
    IntDecodeSum,
    IntExpand,
    Bf16Encode,
    Bf16ReduceEncode,
    Bf16DecodeSum,
    Bf16Expand,
    WorstElement,
    Sum,
    Average,
    IntMagnitudes,
    IntEncodeShared,
    IntExpandShared,
}

impl Kernel {
    /// All.
    pub const ALL: [Kernel; 21] = [
        Kernel::SignEncode,
        Kernel::SignReduceEncode,
        Kernel::SignDecodeSum,
        Kernel::SignExpand,
        Kernel::Compensate,
        Kernel::SignReduceGlobal,
        Kernel::SignPack,
        Kernel::IntEncode,
        Kernel::IntReduceEncode,
        Kernel::IntDecodeSum,
        Kernel::IntExpand,
        Kernel::Bf16Encode,
        Kernel::Bf16ReduceEncode,
        Kernel::Bf16DecodeSum,
        Kernel::Bf16Expand,
        Kernel::WorstElement,
        Kernel::Sum,
        Kernel::Average,
        Kernel::IntMagnitudes,
        Kernel::IntEncodeShared,
        Kernel::IntExpandShared,
    ];
}

/// A call without its memory: the method of its name, with the arguments of that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Call {
    SignEncode { block: usize },
    SignReduceEncode { elements: usize, block: usize },
    SignDecodeSum { block: usize, weight: f32 },
    SignExpand { block: usize, weight: f32 },
    Compensate,
    SignReduceGlobal,
    SignPack { scale: f32 },
    IntEncode { format: IntFormat, rounding: Rounding },
    IntReduceEncode { elements: usize, format: IntFormat, rounding: Rounding },
    IntDecodeSum { format: IntFormat, weight: f32 },
    IntExpand { format: IntFormat, weight: f32 },
    Bf16Encode,
    Bf16ReduceEncode { elements: usize },
    Bf16DecodeSum { weight: f32 },
    Bf16Expand { weight: f32 },
    WorstElement,
    Sum,
    Average { shift: u32 },
    IntMagnitudes { block: usize },
    IntEncodeShared { format: IntFormat, size: CodeSize, rounding: Rounding },
    IntExpandShared { format: IntFormat, size: CodeSize, weight: f32 },
}

/// What a kernel returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing.
    Done,
    /// The first block that is not finite.
    Bad(Option<usize>),
    /// The bits of a sum of squares, if it is finite.
    Squares(Option<u64>),
    /// The number of an element.
    Element(usize),
}

impl Outcome {
    /// Whether what was written is worth nothing.
    pub(super) fn is_bad(self) -> bool {
        matches!(self, Outcome::Bad(Some(_)) | Outcome::Squares(None))
    }
}

/// The memory of a call.
pub(super) struct Memory<'a> {
    /// Input or parts, then the magnitudes of a call that shares them.
    pub(super) inputs: Vec<Buffer<'a>>,
    /// The older residual.
    pub(super) old: Option<Buffer<'a>>,
    /// What is written: encoded words or a vector, then the newer residual.
    pub(super) outputs: Vec<BufferMut<'a>>,
}

impl<'a> Memory<'a> {
    /// The next input.
    fn input(&mut self) -> Buffer<'a> {
        self.inputs.remove(0)
    }

    fn out(&mut self) -> BufferMut<'a> {
        self.outputs.remove(0)
    }

    fn feedback(&mut self) -> Option<Feedback<'a>> {
        let old = self.old.take()?;
        Some(Feedback { old, new: self.out() })
    }

    fn shared(&mut self, format: IntFormat, size: CodeSize) -> Shared<'a> {
        Shared { format, size, magnitudes: self.input() }
    }
}

impl Call {
    /// Makes the call.
    pub(super) fn make(self, kernels: &dyn CodecKernels, mut memory: Memory<'_>) -> Result<Outcome> {
        let on = &mut memory;
        let squares = |squares: f64| Outcome::Squares(squares.is_finite().then(|| squares.to_bits()));
        let done = |()| Outcome::Done;
        match self {
            Call::SignEncode { block } => {
                let (input, out) = (on.input(), on.out());
                kernels.sign_encode(input, on.feedback(), block, out).map(Outcome::Bad)
            }
            Call::SignReduceEncode { elements, block } => {
                let (out, feedback) = (on.out(), on.feedback());
                kernels.sign_reduce_encode(&on.inputs, elements, feedback, block, out).map(Outcome::Bad)
            }
            Call::SignDecodeSum { block, weight } => {
                kernels.sign_decode_sum(&memory.inputs, block, weight, memory.outputs.remove(0)).map(done)
            }
            Call::SignExpand { block, weight } => {
                kernels.sign_expand(on.input(), block, weight, on.out()).map(done)
            }
            Call::Compensate => kernels.compensate(on.input(), on.feedback().unwrap()).map(squares),
            Call::SignReduceGlobal => {
                let feedback = on.feedback().unwrap();
                kernels.sign_reduce_global(&on.inputs, feedback).map(squares)
            }
            Call::SignPack { scale } => kernels.sign_pack(on.out(), scale, on.out()).map(done),
            Call::IntEncode { format, rounding } => {
                let (input, out) = (on.input(), on.out());
                kernels.int_encode(input, on.feedback(), format, rounding, out).map(Outcome::Bad)
            }
            Call::IntReduceEncode { elements, format, rounding } => {
                let (out, feedback) = (on.out(), on.feedback());
                kernels
                    .int_reduce_encode(&on.inputs, elements, feedback, format, rounding, out)
                    .map(Outcome::Bad)
            }
            Call::IntDecodeSum { format, weight } => {
                kernels.int_decode_sum(&memory.inputs, format, weight, memory.outputs.remove(0)).map(done)
            }
            Call::IntExpand { format, weight } => {
                kernels.int_expand(on.input(), format, weight, on.out()).map(done)
            }
            Call::Bf16Encode => kernels.bf16_encode(on.input(), on.out()).map(Outcome::Bad),
            Call::Bf16ReduceEncode { elements } => {
                let out = on.out();
                kernels.bf16_reduce_encode(&on.inputs, elements, out).map(Outcome::Bad)
            }
            Call::Bf16DecodeSum { weight } => {
                kernels.bf16_decode_sum(&memory.inputs, weight, memory.outputs.remove(0)).map(done)
            }
            Call::Bf16Expand { weight } => kernels.bf16_expand(on.input(), weight, on.out()).map(done),
            Call::WorstElement => kernels.worst_element(on.out()).map(Outcome::Element),
            Call::Sum => kernels.sum(&memory.inputs, memory.outputs.remove(0)).map(done),
            Call::Average { shift } => kernels.average(on.input(), shift, on.out()).map(done),
            Call::IntMagnitudes { block } => {
                kernels.int_magnitudes(on.input(), on.old.take(), block, on.out()).map(done)
            }
            Call::IntEncodeShared { format, size, rounding } => {
                let (input, shared, out) = (on.input(), on.shared(format, size), on.out());
                kernels.int_encode_shared(input, on.feedback(), rounding, shared, out).map(done)
            }
            Call::IntExpandShared { format, size, weight } => {
                let (codes, shared) = (on.input(), on.shared(format, size));
                kernels.int_expand_shared(codes, shared, weight, on.out()).map(done)
            }
        }
    }
}
