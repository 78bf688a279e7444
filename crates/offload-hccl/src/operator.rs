//! aclnn's operators: tensors, and the two phases. The first tells the workspace that the operator needs, and makes the
//! launch that the second enqueues.

#![expect(unsafe_code, reason = "calls aclnn's operators")]

use std::ffi::{c_int, c_void};
use std::ptr;

use unisono_communicator::{Error, Result};
use unisono_offload::RawStream;

use crate::device::AclDevice;
use crate::discovery::Aclnn;
use crate::sys::{AclDataType, FORMAT_ND, Handle, Launch};
use crate::vendor::BACKEND;

/// A tensor, a scalar or a list of aclnn's, which the executor of the first phase does not need after the second.
pub(crate) struct Operand(pub(crate) Handle, unsafe extern "C" fn(Handle) -> i32);

impl Drop for Operand {
    fn drop(&mut self) {
        // SAFETY: it was made by the function that goes with it, and is not used again.
        unsafe { (self.1)(self.0) };
    }
}

fn made(what: &'static str, handle: Handle, destroy: unsafe extern "C" fn(Handle) -> i32) -> Result<Operand> {
    if handle.is_null() {
        let text = "it gave nothing".to_owned();
        return Err(Error::System { what: what.to_owned(), text });
    }
    Ok(Operand(handle, destroy))
}

/// The error of a library or product without an operator.
pub(crate) fn unsupported(what: String) -> Error {
    Error::Unsupported { what, backend: BACKEND, instead: None }
}

impl AclDevice {
    /// aclnn.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without it.
    pub(crate) fn aclnn(&self) -> Result<&'static Aclnn> {
        self.library.aclnn.as_ref().ok_or_else(|| unsupported("aclnn's operators".to_owned()))
    }
}

impl Aclnn {
    /// A dense tensor at `address`.
    ///
    /// # Safety
    /// There are as many elements at the address as `dims` says, as long as the operator needs them.
    pub(crate) unsafe fn tensor(
        &self,
        address: *mut c_void,
        dims: &[i64],
        element: AclDataType,
    ) -> Result<Operand> {
        let mut strides: Vec<i64> = dims
            .iter()
            .rev()
            .scan(1, |next, dim| {
                let stride = *next;
                *next *= dim;
                Some(stride)
            })
            .collect();
        strides.reverse();
        let (shape, count) = (dims.as_ptr(), dims.len() as u64);
        // SAFETY: it copies the lists; the offset stands before the format.
        let tensor = unsafe {
            (self.tensors.create_tensor)(
                shape,
                count,
                element,
                strides.as_ptr(),
                0,
                FORMAT_ND,
                shape,
                count,
                address,
            )
        };
        made("aclCreateTensor", tensor, self.tensors.destroy_tensor)
    }

    /// A list of numbers.
    pub(crate) fn list(&self, numbers: &[i64]) -> Result<Operand> {
        // SAFETY: it copies the numbers.
        let list = unsafe { (self.tensors.create_int_array)(numbers.as_ptr(), numbers.len() as u64) };
        made("aclCreateIntArray", list, self.tensors.destroy_int_array)
    }

    /// The number 1 of an integer type.
    pub(crate) fn one(&self) -> Result<Operand> {
        let mut one = 1i64;
        // SAFETY: it copies the number.
        let scalar = unsafe { (self.tensors.create_scalar)((&raw mut one).cast(), AclDataType::Int64) };
        made("aclCreateScalar", scalar, self.tensors.destroy_scalar)
    }

    /// A factor.
    pub(crate) fn scalar(&self, mut factor: f32) -> Result<Operand> {
        // SAFETY: it copies the number.
        let scalar = unsafe { (self.tensors.create_scalar)((&raw mut factor).cast(), AclDataType::Float32) };
        made("aclCreateScalar", scalar, self.tensors.destroy_scalar)
    }
}

/// An operator's two functions by name.
pub(crate) type Names = [&'static str; 2];

impl AclDevice {
    /// Both phases: `prepare` is the first, with room for the workspace's bytes and the executor; `launch` the second.
    ///
    /// # Safety
    /// The tensors of `prepare` are used by nobody else until the work on the stream is done; `launch` is of the same
    /// operator.
    pub(crate) unsafe fn enqueue(
        &self,
        names: Names,
        prepare: impl FnOnce(&mut u64, &mut Handle) -> c_int,
        launch: Launch,
        stream: RawStream,
    ) -> Result<()> {
        let (mut workspace_bytes, mut executor) = (0, ptr::null_mut());
        self.library.check_acl(names[0], prepare(&mut workspace_bytes, &mut executor))?;
        let code = |workspace| -> c_int {
            // SAFETY: the caller's; the executor was just made for this operator.
            unsafe { launch(workspace, workspace_bytes, executor, stream.as_pointer()) }
        };
        if workspace_bytes == 0 {
            return self.library.check_acl(names[1], code(ptr::null_mut()));
        }
        let launch = |workspace| self.library.check_acl(names[1], code(workspace));
        // SAFETY: the caller's; the operator uses as much as it has asked for.
        unsafe { self.with_workspace(workspace_bytes as usize, stream, launch) }
    }
}
