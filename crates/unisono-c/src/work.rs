//! Handles of asynchronous calls: test, wait, callbacks, cancel.

#![expect(unsafe_code, reason = "exported functions that take pointers")]

use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono::extend::calls::deadline_after;
use unisono::{Error, Outcome, Result, Work, wait_any, wait_any_timeout};

use crate::border::{border, border_or};
use crate::error::keep;
use crate::handle::{WorkHandle, taken, value_of};
use crate::input::{check_address, give, list, seconds};
use crate::outcome::OutcomeFields;
use crate::status::Status;
use crate::user_op::Context;

/// A function that is called at the end of a call. `outcome` is null after an error, of which unisono_last_error() has
/// the rest; both are valid until the function returns. It runs on a thread of the library, or at once on the thread
/// that has registered it when the call has ended. It may make calls and wait for them. It must not throw.
pub type DoneFunction =
    Option<unsafe extern "C" fn(context: *mut c_void, status: Status, outcome: *const OutcomeFields)>;

/// A handle in a list of handles.
struct Listed(Arc<WorkHandle>);

impl AsRef<Work> for Listed {
    fn as_ref(&self) -> &Work {
        &self.0.work
    }
}

/// Whether a call has ended, well or not. Does not block; may move the call.
///
/// @return UNISONO_STATUS_OK when it has ended, UNISONO_STATUS_PENDING while it goes on.
///
/// # Safety
/// The handle is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_work_test(work: *const WorkHandle) -> Status {
    border_or(|| {
        // SAFETY: the caller promises it.
        let work = unsafe { value_of("work", work) }?;
        Ok(if work.work.is_done() { Status::Ok } else { Status::Pending })
    })
}

/// Waits until a call has ended; the thread moves it meanwhile. Any number of threads may wait, each gets the result.
///
/// @param work The handle.
/// @param timeout_s The longest wait in seconds; 0 does not wait, a negative number waits without end. The call itself
/// has its own deadline.
/// @param outcome Where the outcome goes, or null.
/// @return The status of the call, or UNISONO_STATUS_PENDING: then the call goes on.
///
/// # Safety
/// The handle is not freed; `outcome` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_work_wait(
    work: *const WorkHandle,
    timeout_s: f64,
    outcome: *mut OutcomeFields,
) -> Status {
    border_or(|| {
        // SAFETY: the caller promises it.
        let work = unsafe { value_of("work", work) }?;
        let result = match wait_of(timeout_s)? {
            None => work.work.wait(),
            Some(timeout) => match work.work.wait_timeout(timeout) {
                Some(result) => result,
                None => return Ok(Status::Pending),
            },
        };
        // SAFETY: as above.
        unsafe { give("outcome", outcome, OutcomeFields::of(&result?)) }?;
        Ok(Status::Ok)
    })
}

/// Waits until all calls have ended.
///
/// @param works The handles.
/// @param work_count Their number.
/// @param timeout_s As in unisono_work_wait(), for all together.
/// @return The first error in the order of the handles, once all have ended; UNISONO_STATUS_PENDING if one goes on.
///
/// # Safety
/// No handle is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_work_wait_all(
    works: *const *mut WorkHandle,
    work_count: usize,
    timeout_s: f64,
) -> Status {
    border_or(|| {
        // SAFETY: the caller promises it.
        let works = unsafe { listed(works, work_count) }?;
        let until = wait_of(timeout_s)?.map(|timeout| deadline_after(Instant::now(), timeout));
        let mut first: Result<()> = Ok(());
        for Listed(work) in &works {
            let result = match until {
                None => work.work.wait(),
                Some(until) => {
                    match work.work.wait_timeout(until.saturating_duration_since(Instant::now())) {
                        Some(result) => result,
                        None => return Ok(Status::Pending),
                    }
                }
            };
            first = first.and(result.map(drop));
        }
        first.map(|()| Status::Ok)
    })
}

/// Waits until one of the calls has ended, and gives its index: the lowest, if several have. It takes no result:
/// unisono_work_wait() does.
///
/// @param works The handles.
/// @param work_count Their number, above 0.
/// @param timeout_s As in unisono_work_wait().
/// @param index Where the index goes.
/// @return UNISONO_STATUS_OK, or UNISONO_STATUS_PENDING if all go on.
///
/// # Safety
/// No handle is freed; `index` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_work_wait_any(
    works: *const *mut WorkHandle,
    work_count: usize,
    timeout_s: f64,
    index: *mut usize,
) -> Status {
    border_or(|| {
        check_address("index", index)?;
        // SAFETY: the caller promises it.
        let works = unsafe { listed(works, work_count) }?;
        if works.is_empty() {
            return Err(Error::invalid("work_count", "0, so that nothing ever ends"));
        }
        let ended = match wait_of(timeout_s)? {
            None => wait_any(&works),
            Some(timeout) => wait_any_timeout(&works, timeout),
        };
        let Some(ended) = ended else { return Ok(Status::Pending) };
        // SAFETY: it is checked, and the caller promises that it is writable.
        unsafe { index.write(ended) };
        Ok(Status::Ok)
    })
}

/// Has a function called once at the end of a call. Any number of functions may be given. If the call has ended, the
/// function runs at once, on this thread; else it runs on a thread of the library. In a world of one, the thread that
/// ends the call runs it.
///
/// @param work The handle, which may be freed before.
/// @param function The function.
/// @param context Its first argument.
///
/// # Safety
/// The handle is not freed, and the function may be called with its context on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_work_on_done(
    work: *const WorkHandle,
    function: DoneFunction,
    context: *mut c_void,
) -> Status {
    border(|| {
        let Some(function) = function else { return Err(Error::invalid("function", "null")) };
        // SAFETY: the caller promises it.
        let work = unsafe { value_of("work", work) }?;
        let context = Context(context);
        work.work.on_done(move |result: Result<Outcome>| match result {
            Ok(outcome) => {
                let outcome = OutcomeFields::of(&outcome);
                // SAFETY: the caller has given the function with its context.
                unsafe { function(context.get(), Status::Ok, &raw const outcome) };
            }
            Err(error) => {
                let status = keep(&error);
                // SAFETY: as above.
                unsafe { function(context.get(), status, std::ptr::null()) };
            }
        });
        Ok(())
    })
}

/// Cancels a call unless it has ended. The communicator is revoked on all ranks, since these cannot go on without this
/// rank's part: all get UNISONO_STATUS_REVOKED with the cause UNISONO_STATUS_CANCELLED, or for a compressed call
/// UNISONO_STATUS_ABORTED.
///
/// # Safety
/// The handle is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_work_cancel(work: *const WorkHandle) -> Status {
    border(|| {
        // SAFETY: the caller promises it.
        unsafe { value_of("work", work) }?.work.cancel();
        Ok(())
    })
}

/// Frees a handle; null is left alone. A call that has not ended goes on. Then `release` of the call must tell the end
/// of its memory's use: without it the handle of such a call is refused and stays.
///
/// @return UNISONO_STATUS_INVALID_ARGUMENT for a call that goes on and has no `release`.
///
/// # Safety
/// The handle is not used again, unless it was refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_work_free(work: *mut WorkHandle) -> Status {
    border(|| {
        if work.is_null() {
            return Ok(());
        }
        // SAFETY: the caller promises a handle.
        let value = unsafe { value_of("work", work) }?;
        if !value.tells && !value.work.is_done() {
            let problem = "the call has not ended, and has no `release` that tells when its memory is free";
            return Err(Error::invalid("work", problem));
        }
        // SAFETY: the caller gives the handle up.
        unsafe { taken("work", work) }.map(drop)
    })
}

/// # Safety
/// No handle is freed.
unsafe fn listed(works: *const *mut WorkHandle, count: usize) -> Result<Vec<Listed>> {
    // SAFETY: the caller promises the list and its handles.
    unsafe {
        let works = list("works", works, count)?;
        works.iter().map(|work| value_of("works", work.cast_const()).map(Listed)).collect()
    }
}

/// The longest wait; `None` for a negative number, which waits without end.
fn wait_of(timeout_s: f64) -> Result<Option<Duration>> {
    if timeout_s < 0.0 {
        return Ok(None);
    }
    seconds("timeout_s", timeout_s).map(|timeout| Some(timeout.unwrap_or(Duration::ZERO)))
}
