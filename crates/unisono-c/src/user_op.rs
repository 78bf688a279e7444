//! Reduce operators of a program in C.

#![expect(unsafe_code, reason = "functions and memory of a caller, by their addresses")]

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use unisono::{Error, Result, UserFunction, UserOp};

use crate::input::{Versioned, needed_text, structure};

/// A function that reduces: `out[i] = f(left[i], right[i])` for `bytes` bytes of whole elements. `left` comes from
/// lower ranks. `out` overlaps neither. The function may be called on any thread of the library, on several at once,
/// with parts of a buffer in any order. It must not throw, and may not wait for a call of the communicator.
pub type UserFunctionOfC = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        left: *const c_void,
        right: *const c_void,
        out: *mut c_void,
        bytes: usize,
    ),
>;

/// An operator of the program's own, which is associative.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct UserOpFields {
    /// sizeof(unisono_user_op_t).
    pub struct_size: usize,
    /// Its name, of at most 32 bytes. Ranks compare it.
    pub name: *const c_char,
    /// The function, which all ranks have alike.
    pub function: UserFunctionOfC,
    /// The first argument of the function. It stays valid until the call has ended.
    pub context: *mut c_void,
    /// Whether f(a, b) = f(b, a); 0 if not, then only algorithms run that keep the order of the ranks.
    pub is_commutative: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: the size is the first field; the rest are pointers, integers and an optional function.
unsafe impl Versioned for UserOpFields {
    const BYTES_MIN: usize = size_of::<UserOpFields>();
}

/// The caller's context, on threads of the library.
#[derive(Clone, Copy)]
pub(crate) struct Context(pub(crate) *mut c_void);

// SAFETY: the documentation of every function that takes a context says that other threads may use it.
unsafe impl Send for Context {}

// SAFETY: as above; some say that several may use it at once.
unsafe impl Sync for Context {}

impl Context {
    /// The pointer. A method, so that a closure captures the whole context.
    pub(crate) fn get(self) -> *mut c_void {
        self.0
    }
}

/// The operator and its function.
///
/// # Safety
/// `fields` is null or readable, and its function keeps the promise of [`UserFunctionOfC`] until the call has ended.
pub(crate) unsafe fn user_op(fields: *const UserOpFields) -> Result<Option<(UserOp, UserFunction)>> {
    if fields.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller promises it.
    let fields = unsafe { structure("user_op", fields) }?;
    // SAFETY: as above.
    let name = unsafe { needed_text("user_op.name", fields.name) }?;
    let Some(function) = fields.function else {
        return Err(Error::invalid("user_op.function", "null"));
    };
    let context = Context(fields.context);
    let op = if fields.is_commutative != 0 { UserOp::commutative(name) } else { UserOp::ordered(name) };
    let call = move |left: &[u8], right: &[u8], out: &mut [u8]| {
        let (left, right, bytes) = (left.as_ptr().cast(), right.as_ptr().cast(), out.len());
        // SAFETY: three slices of one length; the caller promises the function and its context.
        unsafe { function(context.get(), left, right, out.as_mut_ptr().cast(), bytes) };
    };
    Ok(Some((op, Arc::new(call))))
}
