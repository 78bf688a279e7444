//! Two vectors become one on the device, for schedules: HCCL has no call for it, and aclnn's operators stand in.
//! [`crate::Product`] says which of them have the bits that the engine defines.

#![expect(unsafe_code, reason = "calls aclnn's operators")]

use std::ffi::c_void;

use unisono_communicator::{DType, Kind, Result};
use unisono_offload::{Combination, RawStream};

use crate::device::AclDevice;
use crate::discovery::Aclnn;
use crate::operator::{Names, Operand, unsupported};
use crate::sys::{AclDataType, Handle, Launch, Pairs, PreparePair};

/// As [`unisono_offload::Device::combine`].
///
/// # Safety
/// As [`unisono_offload::Device::combine`].
pub(crate) unsafe fn combine(
    device: &AclDevice,
    to: *mut c_void,
    operands: [*const c_void; 2],
    (count, dtype): (usize, DType),
    by: Combination,
    stream: RawStream,
) -> Result<()> {
    let (aclnn, pairs) = device.pairs()?;
    let element = element(dtype)?;
    if count == 0 {
        return Ok(());
    }
    let (names, prepare, launch): (Names, PreparePair, Launch) = match by {
        Combination::Sum => {
            let alpha = if matches!(dtype.kind(), Kind::Float(_)) { aclnn.scalar(1.0) } else { aclnn.one() }?;
            // SAFETY: the caller's.
            return unsafe { add(device, to, operands, (count, element), &alpha, stream) };
        }
        Combination::Prod => (["aclnnMulGetWorkspaceSize", "aclnnMul"], pairs.mul_workspace, pairs.mul),
        Combination::Max => {
            (["aclnnMaximumGetWorkspaceSize", "aclnnMaximum"], pairs.maximum_workspace, pairs.maximum)
        }
        Combination::Min => {
            (["aclnnMinimumGetWorkspaceSize", "aclnnMinimum"], pairs.minimum_workspace, pairs.minimum)
        }
        Combination::Mean { .. } | Combination::BitAnd | Combination::BitOr | Combination::BitXor => {
            return Err(unsupported(format!("{by:?} of {dtype} on the device")));
        }
    };
    let _current = device.enter()?;
    // SAFETY: the caller's.
    let [left, right, result] = unsafe { tensors(aclnn, to, operands, (count, element)) }?;
    // SAFETY: the caller's; it reads the operands, and writes a number and a handle.
    let first = |bytes: &mut u64, executor: &mut Handle| unsafe {
        prepare(left.0, right.0, result.0, bytes, executor)
    };
    // SAFETY: the caller's.
    unsafe { device.enqueue(names, first, launch, stream) }
}

/// Enqueues the sum of the first operand and of the second one times `alpha`.
///
/// # Safety
/// As [`unisono_offload::Device::combine`].
pub(crate) unsafe fn add(
    device: &AclDevice,
    to: *mut c_void,
    operands: [*const c_void; 2],
    elements: (usize, AclDataType),
    alpha: &Operand,
    stream: RawStream,
) -> Result<()> {
    let (aclnn, pairs) = device.pairs()?;
    let _current = device.enter()?;
    // SAFETY: the caller's.
    let [left, right, result] = unsafe { tensors(aclnn, to, operands, elements) }?;
    // SAFETY: the caller's; it reads the operands, and writes a number and a handle.
    let first = |bytes: &mut u64, executor: &mut Handle| unsafe {
        (pairs.add_workspace)(left.0, right.0, alpha.0, result.0, bytes, executor)
    };
    let names = ["aclnnAddGetWorkspaceSize", "aclnnAdd"];
    // SAFETY: the caller's.
    unsafe { device.enqueue(names, first, pairs.add, stream) }
}

/// Both operands, which are only read, and the result. An operand may be the result too: every element is read before
/// it is written.
///
/// # Safety
/// As [`unisono_offload::Device::combine`].
unsafe fn tensors(
    aclnn: &Aclnn,
    to: *mut c_void,
    [left, right]: [*const c_void; 2],
    (count, element): (usize, AclDataType),
) -> Result<[Operand; 3]> {
    // SAFETY: the caller's: the elements are at the addresses.
    let tensor = |address: *mut c_void| unsafe { aclnn.tensor(address, &[count as i64], element) };
    Ok([tensor(left.cast_mut())?, tensor(right.cast_mut())?, tensor(to)?])
}

impl AclDevice {
    /// aclnn's operators on two tensors.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Unsupported`] without them.
    pub(crate) fn pairs(&self) -> Result<(&'static Aclnn, &'static Pairs)> {
        let aclnn = self.aclnn()?;
        let pairs = aclnn.pairs.as_ref();
        Ok((aclnn, pairs.ok_or_else(|| unsupported("aclnn's operators on two tensors".to_owned()))?))
    }
}

/// aclnn's number for an element type.
fn element(dtype: DType) -> Result<AclDataType> {
    Ok(match dtype {
        DType::I8 => AclDataType::Int8,
        DType::U8 => AclDataType::Uint8,
        DType::I16 => AclDataType::Int16,
        DType::I32 => AclDataType::Int32,
        DType::I64 => AclDataType::Int64,
        DType::F16 => AclDataType::Float16,
        DType::BF16 => AclDataType::Bfloat16,
        DType::F32 => AclDataType::Float32,
        DType::F64 => AclDataType::Float64,
        other => return Err(unsupported(format!("arithmetic of {other} on the device"))),
    })
}
