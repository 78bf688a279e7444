//! The question whether a wait must end, which a thread asks while it waits: for bindings of languages whose signal
//! handlers run between two of their own instructions.

#![expect(unsafe_code, reason = "an exported function that takes a function")]

use std::cell::{Cell, RefCell};
use std::ffi::c_void;

use unisono::extend::calls::InterruptCheck;

use crate::border::border;
use crate::status::Status;
use crate::user_op::Context;

/// Whether the call in which this thread waits must end: 0 if not. It may not call the library.
pub type InterruptFunction = Option<unsafe extern "C" fn(context: *mut c_void) -> i32>;

/// The function of a thread and its context.
type Asked = (unsafe extern "C" fn(context: *mut c_void) -> i32, Context);

thread_local! {
    static ASKED: Cell<Option<Asked>> = const { Cell::new(None) };
    static CHECK: RefCell<Option<InterruptCheck>> = const { RefCell::new(None) };
}

/// Has this thread ask a function whether its wait must end, about every 50 ms while it waits in a call or joins a job.
/// Then the call ends with UNISONO_STATUS_ABORTED on all ranks, as by unisono_abort(). A call that does not wait asks
/// nothing.
///
/// @param function The function, in place of an earlier one; null to ask no more.
/// @param context Its argument, for as long as the thread may ask.
///
/// # Safety
/// The function may be called with its context on this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_interrupt_check(
    function: InterruptFunction,
    context: *mut c_void,
) -> Status {
    border(|| {
        // The earlier check goes first: it would bring the state before it back.
        drop(CHECK.take());
        ASKED.set(function.map(|function| (function, Context(context))));
        CHECK.set(function.map(|_| InterruptCheck::begin(must_end)));
        Ok(())
    })
}

fn must_end() -> bool {
    let Some((function, context)) = ASKED.get() else { return false };
    // SAFETY: the caller has given the function for this thread, with its context.
    unsafe { function(context.get()) != 0 }
}
