//! The table (dtype, operator) -> kernel for the best instruction set of this machine, and the calls of kernels.
//!
//! Its `unsafe` code: a function compiled for an instruction set may only run on a processor that has it.

#![expect(unsafe_code, reason = "functions for instructions that a processor may lack")]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_FROUND_TO_NEAREST_INT, _mm256_cvtph_ps, _mm256_cvtps_ph};

use bytemuck::Pod;
use unisono_communicator::{Bool, Complex, DType, ReduceOp, bf16, f8e4m3, f8e5m2, f16};

use super::element::{BitAnd, BitOr, BitXor, Max, Mean, Min, Operator, Prod, Scale, Sum};
use super::kernel;
use super::narrow::{FourOfF8E4M3, FourOfF8E5M2, PairOfBf16, f16_to_f32, f32_to_f16};
use super::peer_bytes::PeerBytes;

type CombineFunction = unsafe fn(&mut [u8], Option<&[u8]>, PeerBytes<'_>, u32);
type ScaleFunction = unsafe fn(&mut [u8], f64);

/// An instruction set of this processor. Only detection makes a value of this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Isa(Level);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// The widest instruction set of this processor.
    pub(super) fn best() -> Isa {
        #[cfg(target_arch = "x86_64")]
        {
            if has_avx512() {
                return Isa(Level::Avx512);
            }
            if has_avx2() {
                return Isa(Level::Avx2);
            }
        }
        Isa(Level::Baseline)
    }

    /// Every instruction set of this processor.
    #[cfg(test)]
    pub(super) fn available() -> Vec<Isa> {
        let mut list = vec![Isa(Level::Baseline)];
        #[cfg(target_arch = "x86_64")]
        {
            list.extend(has_avx2().then_some(Isa(Level::Avx2)));
            list.extend(has_avx512().then_some(Isa(Level::Avx512)));
        }
        list
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

/// The kernel of a (dtype, operator), for an instruction set of this processor.
#[derive(Clone, Copy)]
pub(super) struct Kernel(CombineFunction);

impl Kernel {
    /// `completes` selects the kernel for the step that completes an element, which divides an average.
    pub(super) fn new(isa: Isa, dtype: DType, op: ReduceOp, completes: bool) -> Kernel {
        Kernel(match isa.0 {
            Level::Baseline => combining::<Baseline>(dtype, op, completes),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => combining::<Avx2>(dtype, op, completes),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => combining::<Avx512>(dtype, op, completes),
        })
    }

    /// `destination = operator(operand, incoming)`. Without `operand`, the destination is the operand.
    pub(super) fn run(
        self,
        destination: &mut [u8],
        operand: Option<&[u8]>,
        incoming: PeerBytes<'_>,
        ranks: u32,
    ) {
        // SAFETY: the processor has the instruction set of the function, because `Kernel::new` took it from an `Isa`,
        // which only detection makes.
        unsafe { (self.0)(destination, operand, incoming, ranks) }
    }
}

/// The kernel that multiplies elements of one dtype, for an instruction set of this processor.
#[derive(Clone, Copy)]
pub(super) struct ScaleKernel(ScaleFunction);

impl ScaleKernel {
    pub(super) fn new(isa: Isa, dtype: DType) -> ScaleKernel {
        ScaleKernel(match isa.0 {
            Level::Baseline => scaling::<Baseline>(dtype),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => scaling::<Avx2>(dtype),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => scaling::<Avx512>(dtype),
        })
    }

    /// `buffer = buffer * factor`.
    pub(super) fn run(self, buffer: &mut [u8], factor: f64) {
        // SAFETY: as in `Kernel::run`; `ScaleKernel::new` took the function's instruction set from an `Isa`.
        unsafe { (self.0)(buffer, factor) }
    }
}

/// The generic loops, compiled for one instruction set.
trait Instructions {
    fn combine<T: Pod, O: Operator<T>>() -> CombineFunction;
    fn combine_f16<O: Operator<f32>>() -> CombineFunction;
    fn scale<T: Pod + Scale>() -> ScaleFunction;
    fn scale_f16() -> ScaleFunction;
}

trait OnFloats: Operator<f64> + Operator<f32> {}
impl<O: Operator<f64> + Operator<f32>> OnFloats for O {}

trait OnUnsigned: Operator<u8> + Operator<u16> + Operator<u32> + Operator<u64> {}
impl<O: Operator<u8> + Operator<u16> + Operator<u32> + Operator<u64>> OnUnsigned for O {}

trait OnSigned: Operator<i8> + Operator<i16> + Operator<i32> + Operator<i64> {}
impl<O: Operator<i8> + Operator<i16> + Operator<i32> + Operator<i64>> OnSigned for O {}

fn combining<I: Instructions>(dtype: DType, op: ReduceOp, completes: bool) -> CombineFunction {
    match op {
        ReduceOp::Avg if completes => mean::<I>(dtype),
        ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum(_) => modular::<I, Sum>(dtype),
        ReduceOp::Prod => product::<I>(dtype),
        ReduceOp::Min if dtype == DType::Bool => bitwise::<I, BitAnd>(dtype),
        ReduceOp::Max if dtype == DType::Bool => bitwise::<I, BitOr>(dtype),
        ReduceOp::Min => ordered::<I, Min>(dtype),
        ReduceOp::Max => ordered::<I, Max>(dtype),
        ReduceOp::BitAnd => bitwise::<I, BitAnd>(dtype),
        ReduceOp::BitOr => bitwise::<I, BitOr>(dtype),
        ReduceOp::BitXor => bitwise::<I, BitXor>(dtype),
        ReduceOp::User(_) => refused(dtype),
    }
}

/// Groups of dtypes for the functions below. Each function has an arm for every dtype, so that none is forgotten.
macro_rules! group {
    (float) => {
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2
    };
    (complex) => {
        DType::Complex64 | DType::Complex128
    };
    (integer) => {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64
    };
}

fn mean<I: Instructions>(dtype: DType) -> CombineFunction {
    match dtype {
        group!(integer) => integers::<I, Mean>(dtype),
        group!(float) | group!(complex) | DType::Bool | DType::Opaque { .. } => floats::<I, Mean>(dtype),
    }
}

/// Wrapping arithmetic gives the same bits for signed and unsigned integers.
fn modular<I: Instructions, O: OnFloats + OnUnsigned>(dtype: DType) -> CombineFunction {
    match dtype {
        DType::I8 | DType::U8 => I::combine::<u8, O>(),
        DType::I16 | DType::U16 => I::combine::<u16, O>(),
        DType::I32 | DType::U32 => I::combine::<u32, O>(),
        DType::I64 | DType::U64 => I::combine::<u64, O>(),
        group!(float) | group!(complex) | DType::Bool | DType::Opaque { .. } => floats::<I, O>(dtype),
    }
}

/// A product is the only operator that needs both parts of a complex number at once.
fn product<I: Instructions>(dtype: DType) -> CombineFunction {
    match dtype {
        DType::Complex64 => I::combine::<Complex<f32>, Prod>(),
        DType::Complex128 => I::combine::<Complex<f64>, Prod>(),
        group!(float) | group!(integer) | DType::Bool | DType::Opaque { .. } => modular::<I, Prod>(dtype),
    }
}

/// The bits give the order, so narrow floats need no conversion.
fn ordered<I: Instructions, O>(dtype: DType) -> CombineFunction
where
    O: OnFloats
        + Operator<f16>
        + Operator<bf16>
        + Operator<f8e4m3>
        + Operator<f8e5m2>
        + OnSigned
        + OnUnsigned,
{
    match dtype {
        DType::F64 => I::combine::<f64, O>(),
        DType::F32 => I::combine::<f32, O>(),
        DType::F16 => I::combine::<f16, O>(),
        DType::BF16 => I::combine::<bf16, O>(),
        DType::F8E4M3 => I::combine::<f8e4m3, O>(),
        DType::F8E5M2 => I::combine::<f8e5m2, O>(),
        group!(integer) => integers::<I, O>(dtype),
        group!(complex) | DType::Bool | DType::Opaque { .. } => refused(dtype),
    }
}

/// Bitwise operators combine every integer as bytes.
fn bitwise<I: Instructions, O: Operator<u8> + Operator<Bool>>(dtype: DType) -> CombineFunction {
    match dtype {
        DType::Bool => I::combine::<Bool, O>(),
        group!(integer) => I::combine::<u8, O>(),
        group!(float) | group!(complex) | DType::Opaque { .. } => refused(dtype),
    }
}

/// A complex number is two floats, except in a product.
fn floats<I: Instructions, O: OnFloats>(dtype: DType) -> CombineFunction {
    match dtype {
        DType::F64 | DType::Complex128 => I::combine::<f64, O>(),
        DType::F32 | DType::Complex64 => I::combine::<f32, O>(),
        DType::F16 => I::combine_f16::<O>(),
        DType::BF16 => I::combine::<PairOfBf16, O>(),
        DType::F8E4M3 => I::combine::<FourOfF8E4M3, O>(),
        DType::F8E5M2 => I::combine::<FourOfF8E5M2, O>(),
        group!(integer) | DType::Bool | DType::Opaque { .. } => refused(dtype),
    }
}

fn integers<I: Instructions, O: OnSigned + OnUnsigned>(dtype: DType) -> CombineFunction {
    match dtype {
        DType::I8 => I::combine::<i8, O>(),
        DType::I16 => I::combine::<i16, O>(),
        DType::I32 => I::combine::<i32, O>(),
        DType::I64 => I::combine::<i64, O>(),
        DType::U8 => I::combine::<u8, O>(),
        DType::U16 => I::combine::<u16, O>(),
        DType::U32 => I::combine::<u32, O>(),
        DType::U64 => I::combine::<u64, O>(),
        group!(float) | group!(complex) | DType::Bool | DType::Opaque { .. } => refused(dtype),
    }
}

fn scaling<I: Instructions>(dtype: DType) -> ScaleFunction {
    match dtype {
        DType::F64 | DType::Complex128 => I::scale::<f64>(),
        DType::F32 | DType::Complex64 => I::scale::<f32>(),
        DType::F16 => I::scale_f16(),
        DType::BF16 => I::scale::<PairOfBf16>(),
        DType::F8E4M3 => I::scale::<FourOfF8E4M3>(),
        DType::F8E5M2 => I::scale::<FourOfF8E5M2>(),
        group!(integer) | DType::Bool | DType::Opaque { .. } => refused(dtype),
    }
}

fn refused<F>(dtype: DType) -> F {
    // `ReduceOp::accepts` is checked before a call gets here.
    unreachable!("the reduce operator does not accept {dtype}")
}

/// `$widen` and `$narrow` convert `$lanes` elements, as many as one instruction takes.
macro_rules! instructions {
    ($(#[$attribute:meta])* $name:ident, $lanes:literal, $widen:ident, $narrow:ident) => {
        struct $name;

        impl Instructions for $name {
            fn combine<T: Pod, O: Operator<T>>() -> CombineFunction {
                $(#[$attribute])*
                fn function<T: Pod, O: Operator<T>>(
                    destination: &mut [u8],
                    operand: Option<&[u8]>,
                    incoming: PeerBytes<'_>,
                    ranks: u32,
                ) {
                    kernel::combine(destination, operand, incoming, |left: T, right: T| {
                        O::combine(left, right, ranks)
                    });
                }
                function::<T, O>
            }

            fn combine_f16<O: Operator<f32>>() -> CombineFunction {
                $(#[$attribute])*
                fn function<O: Operator<f32>>(
                    destination: &mut [u8],
                    operand: Option<&[u8]>,
                    incoming: PeerBytes<'_>,
                    ranks: u32,
                ) {
                    kernel::combine(destination, operand, incoming, |left: [f16; $lanes], right: [f16; $lanes]| {
                        let (left, right) = ($widen(left), $widen(right));
                        $narrow(std::array::from_fn(|lane| O::combine(left[lane], right[lane], ranks)))
                    });
                }
                function::<O>
            }

            fn scale<T: Pod + Scale>() -> ScaleFunction {
                $(#[$attribute])*
                fn function<T: Pod + Scale>(buffer: &mut [u8], factor: f64) {
                    kernel::map(buffer, |element: T| element.scale(factor));
                }
                function::<T>
            }

            fn scale_f16() -> ScaleFunction {
                $(#[$attribute])*
                fn function(buffer: &mut [u8], factor: f64) {
                    kernel::map(buffer, |narrow: [f16; $lanes]| {
                        $narrow($widen(narrow).map(|float| float.scale(factor)))
                    });
                }
                function
            }
        }
    };
}

instructions! { Baseline, 1, widen_one, narrow_one }

#[cfg(target_arch = "x86_64")]
instructions! {
    #[target_feature(enable = "avx2,f16c")]
    Avx2, 8, widen_eight, narrow_eight
}

// 512-bit conversions of f16 were measured to be no faster (AMD Zen 4: 22 against 26 GB/s).
#[cfg(target_arch = "x86_64")]
instructions! {
    #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
    Avx512, 8, widen_eight, narrow_eight
}

#[inline(always)]
fn widen_one(narrow: [f16; 1]) -> [f32; 1] {
    narrow.map(f16_to_f32)
}

#[inline(always)]
fn narrow_one(wide: [f32; 1]) -> [f16; 1] {
    wide.map(f32_to_f16)
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx,f16c")]
fn widen_eight(narrow: [f16; 8]) -> [f32; 8] {
    bytemuck::cast(_mm256_cvtph_ps(bytemuck::cast(narrow)))
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx,f16c")]
fn narrow_eight(wide: [f32; 8]) -> [f16; 8] {
    bytemuck::cast(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(bytemuck::cast(wide)))
}
