//! Multiplication and division on the device: HCCL has no average and no factors, and aclnn's operators stand in. An
//! operator has two phases: the first says how much workspace it needs, and makes what the second runs.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr;

use unisono_communicator::{DType, Error, Result};
use unisono_offload::{RawStream, Scale};

use crate::device::AclDevice;
use crate::discovery::Aclnn;
use crate::sys::{AclDataType, FORMAT_ND, Handle, Launch};
use crate::vendor::BACKEND;

/// What can be scaled: a division of integers is one of floats for aclnn.
pub(crate) const SCALABLE: [DType; 3] = [DType::F16, DType::BF16, DType::F32];

type Prepare = unsafe extern "C" fn(Handle, Handle, Handle, *mut u64, *mut Handle) -> i32;

/// A tensor or a scalar of aclnn's, which the executor of the first phase does not need after the second.
struct Owned(Handle, unsafe extern "C" fn(Handle) -> i32);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: it was made by the function that goes with it, and is not used again.
        unsafe { (self.1)(self.0) };
    }
}

fn made(what: &'static str, handle: Handle, destroy: unsafe extern "C" fn(Handle) -> i32) -> Result<Owned> {
    if handle.is_null() {
        let text = "it gave nothing".to_owned();
        return Err(Error::System { what: what.to_owned(), text });
    }
    Ok(Owned(handle, destroy))
}

fn unsupported(what: String) -> Error {
    Error::Unsupported { what, backend: BACKEND, instead: None }
}

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
    let aclnn = device.library.aclnn.as_ref().ok_or_else(|| unsupported("aclnn's operators".to_owned()))?;
    let element = match dtype {
        DType::F16 => AclDataType::Float16,
        DType::BF16 => AclDataType::Bfloat16,
        DType::F32 => AclDataType::Float32,
        other => return Err(unsupported(format!("scaling of {other}"))),
    };
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
    // SAFETY: the caller's: the elements are at the address.
    let operands = unsafe { Operands::new(aclnn, address, count, element, factor) }?;
    let (tensor, mut workspace_bytes, mut executor) = (operands.tensor.0, 0, ptr::null_mut());
    // SAFETY: it reads the operands, and writes a number and a handle.
    let code = unsafe { prepare(tensor, operands.scalar.0, tensor, &mut workspace_bytes, &mut executor) };
    device.library.check_acl(names[0], code)?;
    // SAFETY: the executor is the one that was just made for this operator.
    unsafe { run(device, names[1], launch, workspace_bytes, executor, stream) }
}

struct Operands {
    tensor: Owned,
    scalar: Owned,
}

impl Operands {
    /// A tensor of one dimension at `address`, and a factor.
    ///
    /// # Safety
    /// There are `count` elements at the address, as long as the operator needs them.
    unsafe fn new(
        aclnn: &Aclnn,
        address: *mut c_void,
        count: usize,
        element: AclDataType,
        mut factor: f32,
    ) -> Result<Operands> {
        let table = &aclnn.tensors;
        let (shape, stride) = ([count as i64], [1i64]);
        // SAFETY: it copies the lists; the offset stands before the format.
        let tensor = unsafe {
            let [dims, strides] = [shape.as_ptr(), stride.as_ptr()];
            (table.create_tensor)(dims, 1, element, strides, 0, FORMAT_ND, dims, 1, address)
        };
        let tensor = made("aclCreateTensor", tensor, table.destroy_tensor)?;
        // SAFETY: it copies the number.
        let scalar = unsafe { (table.create_scalar)((&raw mut factor).cast(), AclDataType::Float32) };
        Ok(Operands { tensor, scalar: made("aclCreateScalar", scalar, table.destroy_scalar)? })
    }
}

/// The second phase.
///
/// # Safety
/// As [`unisono_offload::Device::scale`]; the executor is of the first phase of the same operator.
unsafe fn run(
    device: &AclDevice,
    name: &'static str,
    launch: Launch,
    workspace_bytes: u64,
    executor: Handle,
    stream: RawStream,
) -> Result<()> {
    // SAFETY: the caller's.
    let code =
        |workspace| -> c_int { unsafe { launch(workspace, workspace_bytes, executor, stream.as_pointer()) } };
    if workspace_bytes == 0 {
        return device.library.check_acl(name, code(ptr::null_mut()));
    }
    let launch = |workspace| device.library.check_acl(name, code(workspace));
    // SAFETY: the caller's; the operator uses as much as it has asked for.
    unsafe { device.with_workspace(workspace_bytes as usize, stream, launch) }
}
