//! The arithmetic of schedules on the device: the kernels of `kernels/cuda/combine.cu`, since NCCL has no call that
//! adds two vectors of one rank.

#![expect(unsafe_code, reason = "launches kernels")]

use std::sync::{Mutex, PoisonError};

use unisono_communicator::{DType, Error, Result};
use unisono_cuda::{Argument, Context, Function, Grid, KernelCode, Source, StreamHandle};
use unisono_kernels::cuda;
use unisono_offload::Combination;

use crate::vendor::BACKEND;

/// The program of the kernels, for NVRTC.
pub fn source() -> Source<'static> {
    Source {
        name: "combine.cu",
        text: cuda::COMBINE,
        headers: &[("format.cuh", cuda::FORMAT), ("warp.cuh", cuda::WARP)],
        options: &["--std=c++17", "--fmad=false"],
    }
}

/// The elements that the kernels know, in the order of `Type` in their text.
const TYPES: [DType; 12] = [
    DType::I8,
    DType::U8,
    DType::I16,
    DType::U16,
    DType::I32,
    DType::U32,
    DType::I64,
    DType::U64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];

/// The types among them that are multiplied.
const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

/// Threads of a block, and the bytes that each of them takes.
const THREADS: u32 = 128;
const PACK_BYTES: usize = 16;

/// The kernels of one device, which are loaded when they are first needed.
#[derive(Debug)]
pub(crate) struct DeviceArithmetic {
    code: KernelCode,
    is_there: bool,
    loaded: Mutex<Option<Kernels>>,
}

#[derive(Clone, Debug)]
struct Kernels {
    combine: Function,
    multiply: Function,
}

impl DeviceArithmetic {
    /// With kernels from there. Whether there are any, ranks tell each other, so it is found out now.
    pub(crate) fn new(context: &Context, code: &KernelCode) -> DeviceArithmetic {
        let is_there = code.check(&source(), context.driver(), context.capability()).is_ok();
        DeviceArithmetic { code: code.clone(), is_there, loaded: Mutex::default() }
    }

    /// The elements of which it combines two values.
    pub(crate) fn combining(&self) -> &'static [DType] {
        if self.is_there { &TYPES } else { &[] }
    }

    /// The elements that it multiplies.
    pub(crate) fn multiplying(&self) -> &'static [DType] {
        if self.is_there { &FLOATS } else { &[] }
    }

    fn kernels(&self, context: &Context) -> Result<Kernels> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernels) = &*loaded {
            return Ok(kernels.clone());
        }
        let module = context.load(&self.code.of(&source(), context.driver(), context.capability())?)?;
        let kernels =
            Kernels { combine: module.function("combine")?, multiply: module.function("multiply")? };
        Ok(loaded.insert(kernels).clone())
    }

    /// As [`unisono_offload::Device::combine`].
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn combine(
        &self,
        context: &Context,
        addresses: [u64; 3],
        (count, dtype): (usize, DType),
        by: Combination,
        stream: StreamHandle,
    ) -> Result<()> {
        let [to, left, right] = addresses.map(Argument::Address);
        let (by, ranks) = match by {
            Combination::Sum => (0, 1),
            Combination::Prod => (1, 1),
            Combination::Min => (2, 1),
            Combination::Max => (3, 1),
            Combination::Mean { ranks } => (4, ranks),
            Combination::BitAnd => (5, 1),
            Combination::BitOr => (6, 1),
            Combination::BitXor => (7, 1),
        };
        let numbers = [Argument::Word(number_of(dtype)?), Argument::Word(by), Argument::Word(ranks)];
        let [dtype_number, by, ranks] = numbers;
        let arguments = [to, left, right, Argument::Long(count as u64), dtype_number, by, ranks];
        let kernels = self.kernels(context)?;
        // SAFETY: the caller's; the arguments fit the kernel.
        unsafe { context.launch(&kernels.combine, grid(count, dtype)?, &arguments, stream) }
    }

    /// Multiplies elements where they are.
    ///
    /// # Safety
    /// As [`unisono_offload::Device::scale`].
    pub(crate) unsafe fn multiply(
        &self,
        context: &Context,
        address: u64,
        (count, dtype): (usize, DType),
        factor: f64,
        stream: StreamHandle,
    ) -> Result<()> {
        let (address, factor) = (Argument::Address(address), Argument::Double(factor));
        let arguments = [address, Argument::Long(count as u64), Argument::Word(number_of(dtype)?), factor];
        let kernels = self.kernels(context)?;
        // SAFETY: the caller's; the arguments fit the kernel.
        unsafe { context.launch(&kernels.multiply, grid(count, dtype)?, &arguments, stream) }
    }
}

/// The number of a type in the kernels' text.
fn number_of(dtype: DType) -> Result<u32> {
    let position = TYPES.iter().position(|known| *known == dtype);
    position.map(|position| position as u32).ok_or_else(|| Error::Unsupported {
        what: format!("arithmetic of {dtype} on the device"),
        backend: BACKEND,
        instead: None,
    })
}

/// A thread for each pack.
fn grid(count: usize, dtype: DType) -> Result<Grid> {
    let packs = (count * dtype.bytes()).div_ceil(PACK_BYTES);
    let blocks = u32::try_from(packs.div_ceil(THREADS as usize)).ok().filter(|blocks| *blocks < 1 << 31);
    let too_many =
        || Error::invalid("count", format!("{count} elements are more than a grid has threads for"));
    Ok(Grid { blocks: blocks.ok_or_else(too_many)?, threads: THREADS })
}
