//! Multiplication and division on the device: HCCL has no average and no factors, and aclnn's operators stand in.

#![expect(unsafe_code, reason = "calls aclnn's operators")]

use std::ffi::c_void;

use unisono_communicator::{DType, Result};
use unisono_offload::{RawStream, Scale};

use crate::device::AclDevice;
use crate::discovery::Aclnn;
use crate::operator::unsupported;
use crate::sys::{AclDataType, Handle, Launch};

/// The types that can be scaled: a division of integers is a division of floats for aclnn.
pub(crate) const SCALABLE: [DType; 3] = [DType::F16, DType::BF16, DType::F32];

type Prepare = unsafe extern "C" fn(Handle, Handle, Handle, *mut u64, *mut Handle) -> i32;

/// As [`unisono_offload::Device::scale`].
///
/// # Safety
/// As [`unisono_offload::Device::scale`].
pub(crate) unsafe fn scale(
    device: &AclDevice,
    address: *mut c_void,
    count: usize,
    dtype: DType,
    by: Scale,
    stream: RawStream,
) -> Result<()> {
    let aclnn = device.aclnn()?;
    let element = match dtype {
        DType::F16 => AclDataType::Float16,
        DType::BF16 => AclDataType::Bfloat16,
        DType::F32 => AclDataType::Float32,
        other => return Err(unsupported(format!("scaling of {other}"))),
    };
    // SAFETY: the caller's.
    unsafe { scaled(device, aclnn, address, address, (count, element), by, stream) }
}

/// Enqueues the scaling of `count` elements at `from` into `to`, which is the same place or apart.
///
/// # Safety
/// As [`unisono_offload::Device::scale`], at both places.
pub(crate) unsafe fn scaled(
    device: &AclDevice,
    aclnn: &Aclnn,
    to: *mut c_void,
    from: *const c_void,
    (count, element): (usize, AclDataType),
    by: Scale,
    stream: RawStream,
) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    let operators = &aclnn.operators;
    let (names, prepare, launch, factor): (_, Prepare, Launch, _) = match by {
        Scale::Multiply(factor) => {
            let names = ["aclnnMulsGetWorkspaceSize", "aclnnMuls"];
            (names, operators.muls_workspace, operators.muls, factor as f32)
        }
        Scale::Divide(ranks) => {
            let names = ["aclnnDivsGetWorkspaceSize", "aclnnDivs"];
            (names, operators.divs_workspace, operators.divs, ranks as f32)
        }
    };
    let _current = device.enter()?;
    // SAFETY: the caller's: the elements are at the addresses. Those at `from` are only read.
    let tensor = |address: *mut c_void| unsafe { aclnn.tensor(address, &[count as i64], element) };
    let [input, output, scalar] = [tensor(from.cast_mut())?, tensor(to)?, aclnn.scalar(factor)?];
    // SAFETY: the caller's; it reads the operands, and writes a number and a handle.
    let first = |bytes: &mut u64, executor: &mut Handle| unsafe {
        prepare(input.0, scalar.0, output.0, bytes, executor)
    };
    // SAFETY: the caller's.
    unsafe { device.enqueue(names, first, launch, stream) }
}
