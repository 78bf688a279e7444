//! Handles: pointers to values of the library with a count of their users. A function that works on a value keeps it,
//! so that another thread may free its handle meanwhile.

#![expect(unsafe_code, reason = "handles are raw pointers in C")]

use std::sync::{Arc, Mutex};

use unisono::compression::CompressionState;
use unisono::extend::calls::PreparedCall;
use unisono::{Communicator, Result, Work, World};

use crate::input::check_address;

/// A communicator: a world or a group, with its world. Any thread may use it, several at once; a call while another
/// thread is in a call is refused unless it has the flag UNISONO_QUEUED. A world says goodbye to the other ranks when
/// its last communicator, group and store is freed, or the process ends.
pub struct CommHandle {
    pub(crate) world: World,
    pub(crate) communicator: Arc<dyn Communicator>,
}

/// An asynchronous call.
pub struct WorkHandle {
    pub(crate) work: Work,
    /// Whether a function of the caller is told when the call's memory is no longer used.
    pub(crate) tells: bool,
}

/// A call whose arguments are checked and whose plan is made.
pub struct PreparedHandle {
    pub(crate) call: PreparedCall,
}

/// The state of compressed calls: their codec and the errors that they still owe. One call at a time uses it.
pub struct StateHandle {
    pub(crate) state: Mutex<CompressionState>,
}

/// A handle of a value, which C frees.
pub(crate) fn handle_of<T>(value: T) -> *mut T {
    Arc::into_raw(Arc::new(value)).cast_mut()
}

/// The value of a handle.
///
/// # Safety
/// `handle` is null, or comes from [`handle_of`] and is not freed.
pub(crate) unsafe fn value_of<T>(argument: &'static str, handle: *const T) -> Result<Arc<T>> {
    check_address(argument, handle)?;
    // SAFETY: the handle has one count, which the caller has not freed.
    unsafe {
        Arc::increment_strong_count(handle);
        Ok(Arc::from_raw(handle))
    }
}

/// Takes a handle back. `None` for null.
///
/// # Safety
/// As [`value_of`]; the handle is not used again.
pub(crate) unsafe fn taken<T>(argument: &'static str, handle: *mut T) -> Result<Option<Arc<T>>> {
    if handle.is_null() {
        return Ok(None);
    }
    check_address(argument, handle)?;
    // SAFETY: the caller gives the count of the handle up.
    Ok(Some(unsafe { Arc::from_raw(handle.cast_const()) }))
}
