//! The byte-equality suite of devices, on the processor, and on devices with a fault in one kernel, which it must find.

use std::ops::Range;

use unisono_communicator::{Buffer, BufferMut, Result, SegmentsMut};
use unisono_compression::{CodecKernels, Feedback, HostKernels, KernelDevice, Shared};
use unisono_kernels::testing::bodies;
use unisono_kernels::{IntFormat, Kernels, Rounding};
use unisono_tests::kernels_suite::{self, Density, Kernel};

#[test]
fn every_body_of_this_machine_passes() {
    for kernels in bodies() {
        kernels_suite::check(&HostKernels(kernels), Density::QUICK, 1);
    }
    kernels_suite::check(&HostKernels(Kernels::best()), Density::FULL, 2);
}

/// What a faulty device does wrong, at some lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// One bit of the last word that this kernel writes.
    Output(Kernel),
    /// One bit of the last word of the new residual of this kernel.
    Residual(Kernel),
    /// What this kernel returns, when all is finite.
    Returned(Kernel),
    /// A bit of the first word of what is read from memory, which is one beside those that are written.
    Neighbour,
}

/// The processor with a fault.
#[derive(Clone, Copy, Debug)]
struct Faulty {
    fault: Fault,
    kernels: HostKernels,
}

impl Faulty {
    fn new(fault: Fault) -> Faulty {
        Faulty { fault, kernels: HostKernels(Kernels::best()) }
    }

    /// Only some lengths are wrong.
    fn spoil(&self, fault: Fault, bytes: &mut [u8]) {
        if self.fault == fault && bytes.len() / 4 % 7 == 3 {
            let last = bytes.len() - 4;
            bytes[last] ^= 1;
        }
    }

    /// Calls a kernel that writes to `out`.
    fn write<R>(
        &self,
        kernel: Kernel,
        out: BufferMut<'_>,
        call: impl FnOnce(BufferMut<'_>) -> Result<R>,
    ) -> Result<R> {
        let bytes = bytes_of(out);
        let returned = call(BufferMut::of(&mut *bytes))?;
        self.spoil(Fault::Output(kernel), bytes);
        Ok(returned)
    }

    /// Calls a kernel that may write a residual.
    fn feed_back<R>(
        &self,
        kernel: Kernel,
        feedback: Option<Feedback<'_>>,
        call: impl FnOnce(Option<Feedback<'_>>) -> Result<R>,
    ) -> Result<R> {
        let Some(Feedback { old, new }) = feedback else { return call(None) };
        let bytes = bytes_of(new);
        let returned = call(Some(Feedback { old, new: BufferMut::of(&mut *bytes) }))?;
        self.spoil(Fault::Residual(kernel), bytes);
        Ok(returned)
    }

    /// Calls an encoder.
    fn encode(
        &self,
        kernel: Kernel,
        feedback: Option<Feedback<'_>>,
        out: BufferMut<'_>,
        call: impl FnOnce(Option<Feedback<'_>>, BufferMut<'_>) -> Result<Option<usize>>,
    ) -> Result<Option<usize>> {
        let bad =
            self.write(kernel, out, |out| self.feed_back(kernel, feedback, |feedback| call(feedback, out)));
        let is_spoiled = self.fault == Fault::Returned(kernel);
        bad.map(|bad| if is_spoiled { bad.or(Some(0)) } else { bad })
    }

    /// Calls a kernel that returns a sum of squares.
    fn square(
        &self,
        kernel: Kernel,
        feedback: Feedback<'_>,
        call: impl FnOnce(Feedback<'_>) -> Result<f64>,
    ) -> Result<f64> {
        let squares = self.feed_back(kernel, Some(feedback), |feedback| call(feedback.unwrap()))?;
        let is_spoiled = self.fault == Fault::Returned(kernel) && squares.is_finite();
        Ok(if is_spoiled { f64::from_bits(squares.to_bits() ^ 1) } else { squares })
    }
}

fn bytes_of(memory: BufferMut<'_>) -> &mut [u8] {
    match memory {
        BufferMut::Host(SegmentsMut::One(bytes)) => bytes,
        BufferMut::Host(_) | BufferMut::Device(_) => panic!("the suite lends slices of the host's memory"),
    }
}

/// Kernels that write one thing and return nothing.
macro_rules! writers {
    ($($kernel:ident $name:ident($($argument:ident: $kind:ty),*) $out:ident;)*) => {
        $(
            fn $name(&self, $($argument: $kind,)* $out: BufferMut<'_>) -> Result<()> {
                self.write(Kernel::$kernel, $out, |$out| self.kernels.$name($($argument,)* $out))
            }
        )*
    };
}

impl CodecKernels for Faulty {
    writers! {
        SignDecodeSum sign_decode_sum(parts: &[Buffer<'_>], block: usize, weight: f32) out;
        SignExpand sign_expand(part: Buffer<'_>, block: usize, weight: f32) out;
        SignPack sign_pack(values: BufferMut<'_>, scale: f32) out;
        IntDecodeSum int_decode_sum(parts: &[Buffer<'_>], format: IntFormat, weight: f32) out;
        IntExpand int_expand(part: Buffer<'_>, format: IntFormat, weight: f32) out;
        Bf16DecodeSum bf16_decode_sum(parts: &[Buffer<'_>], weight: f32) out;
        Bf16Expand bf16_expand(part: Buffer<'_>, weight: f32) out;
        Sum sum(parts: &[Buffer<'_>]) out;
        Average average(old: Buffer<'_>, shift: u32) new;
        IntMagnitudes int_magnitudes(input: Buffer<'_>, old: Option<Buffer<'_>>, block: usize) out;
        IntExpandShared int_expand_shared(codes: Buffer<'_>, shared: Shared<'_>, weight: f32) out;
    }

    fn sign_encode(
        &self,
        input: Buffer<'_>,
        feedback: Option<Feedback<'_>>,
        block: usize,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        self.encode(Kernel::SignEncode, feedback, out, |feedback, out| {
            self.kernels.sign_encode(input, feedback, block, out)
        })
    }

    fn sign_reduce_encode(
        &self,
        parts: &[Buffer<'_>],
        elements: usize,
        feedback: Option<Feedback<'_>>,
        block: usize,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        self.encode(Kernel::SignReduceEncode, feedback, out, |feedback, out| {
            self.kernels.sign_reduce_encode(parts, elements, feedback, block, out)
        })
    }

    fn compensate(&self, input: Buffer<'_>, feedback: Feedback<'_>) -> Result<f64> {
        self.square(Kernel::Compensate, feedback, |feedback| self.kernels.compensate(input, feedback))
    }

    fn sign_reduce_global(&self, parts: &[Buffer<'_>], feedback: Feedback<'_>) -> Result<f64> {
        self.square(Kernel::SignReduceGlobal, feedback, |feedback| {
            self.kernels.sign_reduce_global(parts, feedback)
        })
    }

    fn int_encode(
        &self,
        input: Buffer<'_>,
        feedback: Option<Feedback<'_>>,
        format: IntFormat,
        rounding: Rounding,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        self.encode(Kernel::IntEncode, feedback, out, |feedback, out| {
            self.kernels.int_encode(input, feedback, format, rounding, out)
        })
    }

    fn int_reduce_encode(
        &self,
        parts: &[Buffer<'_>],
        elements: usize,
        feedback: Option<Feedback<'_>>,
        format: IntFormat,
        rounding: Rounding,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        self.encode(Kernel::IntReduceEncode, feedback, out, |feedback, out| {
            self.kernels.int_reduce_encode(parts, elements, feedback, format, rounding, out)
        })
    }

    fn bf16_encode(&self, input: Buffer<'_>, out: BufferMut<'_>) -> Result<Option<usize>> {
        self.encode(Kernel::Bf16Encode, None, out, |_, out| self.kernels.bf16_encode(input, out))
    }

    fn bf16_reduce_encode(
        &self,
        parts: &[Buffer<'_>],
        elements: usize,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        self.encode(Kernel::Bf16ReduceEncode, None, out, |_, out| {
            self.kernels.bf16_reduce_encode(parts, elements, out)
        })
    }

    fn worst_element(&self, values: BufferMut<'_>) -> Result<usize> {
        let element = self.kernels.worst_element(values)?;
        Ok(element ^ usize::from(self.fault == Fault::Returned(Kernel::WorstElement)))
    }

    fn int_encode_shared(
        &self,
        input: Buffer<'_>,
        feedback: Option<Feedback<'_>>,
        rounding: Rounding,
        shared: Shared<'_>,
        out: BufferMut<'_>,
    ) -> Result<()> {
        self.write(Kernel::IntEncodeShared, out, |out| {
            self.feed_back(Kernel::IntEncodeShared, feedback, |feedback| {
                self.kernels.int_encode_shared(input, feedback, rounding, shared, out)
            })
        })
    }
}

impl KernelDevice for Faulty {
    type Memory = Vec<u32>;

    fn allocate(&self, words: usize) -> Result<Vec<u32>> {
        self.kernels.allocate(words)
    }

    fn read(&self, from: &Vec<u32>, at: usize, to: &mut [u32]) -> Result<()> {
        self.kernels.read(from, at, to)?;
        if let (Fault::Neighbour, [first, ..]) = (self.fault, to) {
            *first ^= 1;
        }
        Ok(())
    }

    fn write(&self, from: &[u32], to: &mut Vec<u32>, at: usize) -> Result<()> {
        KernelDevice::write(&self.kernels, from, to, at)
    }

    fn copy(&self, from: &Vec<u32>, at: usize, to: &mut Vec<u32>, range: Range<usize>) -> Result<()> {
        self.kernels.copy(from, at, to, range)
    }

    fn to_write(&self, message: Vec<u32>) -> Result<Vec<u32>> {
        self.kernels.to_write(message)
    }

    fn written(&self, memory: Vec<u32>) -> Result<Vec<u32>> {
        self.kernels.written(memory)
    }

    fn to_read(&self, message: Vec<u32>) -> Result<Vec<u32>> {
        self.kernels.to_read(message)
    }

    fn was_read(&self, memory: Vec<u32>) -> Vec<u32> {
        self.kernels.was_read(memory)
    }
}

/// What can be wrong with a kernel.
fn faults(kernel: Kernel) -> Vec<Fault> {
    let (output, residual, returned) =
        (Fault::Output(kernel), Fault::Residual(kernel), Fault::Returned(kernel));
    match kernel {
        Kernel::SignEncode | Kernel::SignReduceEncode | Kernel::IntEncode | Kernel::IntReduceEncode => {
            vec![output, residual, returned]
        }
        Kernel::Bf16Encode | Kernel::Bf16ReduceEncode => vec![output, returned],
        Kernel::Compensate | Kernel::SignReduceGlobal => vec![residual, returned],
        Kernel::WorstElement => vec![returned],
        Kernel::IntEncodeShared => vec![output, residual],
        Kernel::SignDecodeSum
        | Kernel::SignExpand
        | Kernel::SignPack
        | Kernel::IntDecodeSum
        | Kernel::IntExpand
        | Kernel::Bf16DecodeSum
        | Kernel::Bf16Expand
        | Kernel::Sum
        | Kernel::Average
        | Kernel::IntMagnitudes
        | Kernel::IntExpandShared => vec![output],
    }
}

#[test]
fn a_wrong_bit_of_any_kernel_is_found_and_its_call_is_named() {
    for kernel in Kernel::ALL {
        for fault in faults(kernel) {
            let device = Faulty::new(fault);
            let difference = kernels_suite::check_kernel(&device, kernel, Density::QUICK, 3);
            let text = difference.expect_err(&format!("{fault:?} was not found"));
            assert!(
                text.contains(&format!("{kernel:?}")) && text.contains("instead of"),
                "{fault:?}: {text}"
            );
        }
    }
}

#[test]
fn a_fault_of_one_kernel_is_none_of_another() {
    let device = Faulty::new(Fault::Output(Kernel::Sum));
    for kernel in Kernel::ALL.into_iter().filter(|kernel| *kernel != Kernel::Sum) {
        let calls = kernels_suite::check_kernel(&device, kernel, Density::QUICK, 4).unwrap();
        assert!(calls > 200, "{kernel:?}: {calls} calls");
    }
}

#[test]
fn a_word_beside_the_output_is_found() {
    let device = Faulty::new(Fault::Neighbour);
    let difference = kernels_suite::check_kernel(&device, Kernel::Sum, Density::QUICK, 5);
    assert!(difference.unwrap_err().contains("word 0 is"));
}

#[test]
#[should_panic(expected = "left")]
fn wrong_copies_are_found() {
    kernels_suite::check_memory(&Faulty::new(Fault::Neighbour), 6);
}
