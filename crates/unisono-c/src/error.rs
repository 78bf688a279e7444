//! The last error of a thread: its kind, its text, the ranks and the calls that it names.

#![expect(unsafe_code, reason = "an exported function")]

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::ptr;

use unisono::{CallInfo, Error};

use crate::status::Status;

/// One call that an error names.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ErrorCall {
    /// The rank that made it, as a rank of the job.
    pub rank: u32,
    /// The line that made it, from 1; 0 if it is not known.
    pub line: u32,
    /// The number of the call on its communicator, from 0.
    pub number: u64,
    /// The file of the line; null if it is not known.
    pub file: *const c_char,
    /// The operation, such as "all_reduce".
    pub operation: *const c_char,
    /// The whole call as text.
    pub text: *const c_char,
}

/// An error. Everything in it is the library's, and valid until a function of the library fails again on the same
/// thread, or the thread ends.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ErrorView {
    /// The kind.
    pub status: Status,
    /// The kind of the innermost cause: of UNISONO_STATUS_REVOKED the error that revoked the communicator, else the
    /// same as `status`.
    pub root_status: Status,
    /// Whether the communicator is as usable as before the call. After any other error of a call it is revoked.
    pub is_usable: bool,
    /// The name of the kind, such as "PeerLost".
    pub kind: *const c_char,
    /// The whole error as text.
    pub text: *const c_char,
    /// The ranks of the job that the cause names: lost ranks, awaited ranks, both of a mismatch, the rank that has
    /// aborted. Null if there are none.
    pub ranks: *const u32,
    /// The number of ranks.
    pub rank_count: usize,
    /// The calls that the cause names: both of a mismatch, else at most one. Null if there are none.
    pub calls: *const ErrorCall,
    /// The number of calls.
    pub call_count: usize,
}

/// The memory behind an [`ErrorView`].
struct Kept {
    view: ErrorView,
    _texts: Vec<CString>,
    _ranks: Vec<u32>,
    _calls: Vec<ErrorCall>,
}

thread_local! {
    static LAST: RefCell<Option<Kept>> = const { RefCell::new(None) };
}

/// The error of the last function of the library that has failed on this thread; null if none has. A function that
/// succeeds leaves it. In a callback it is the error that the callback is told.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_last_error() -> *const ErrorView {
    let view = |last: &RefCell<Option<Kept>>| match &*last.borrow() {
        Some(kept) => &raw const kept.view,
        None => ptr::null(),
    };
    // The vectors behind the pointers do not move with `Kept`, and `Kept` stays in its thread until it is replaced.
    LAST.try_with(view).unwrap_or(ptr::null())
}

/// Keeps an error as this thread's last one.
pub(crate) fn keep(error: &Error) -> Status {
    keep_as(Status::of(error), error.code().name(), error)
}

/// Keeps the text of a panic as this thread's last error.
pub(crate) fn keep_panic(text: &str) -> Status {
    let error = Error::System { what: "a bug of unisono: a panic".to_owned(), text: text.to_owned() };
    keep_as(Status::Internal, "Internal", &error)
}

fn keep_as(status: Status, kind: &str, error: &Error) -> Status {
    let cause = error.root_cause();
    let root_status = if ptr::eq(cause, error) { status } else { Status::of(cause) };
    let mut texts = vec![c_text(kind), c_text(&error.to_string())];
    let calls: Vec<ErrorCall> =
        calls(cause).into_iter().map(|(rank, call)| shown(rank, call, &mut texts)).collect();
    let ranks = ranks(cause);
    let view = ErrorView {
        status,
        root_status,
        is_usable: error.is_before_start(),
        kind: texts[0].as_ptr(),
        text: texts[1].as_ptr(),
        ranks: if ranks.is_empty() { ptr::null() } else { ranks.as_ptr() },
        rank_count: ranks.len(),
        calls: if calls.is_empty() { ptr::null() } else { calls.as_ptr() },
        call_count: calls.len(),
    };
    let kept = Kept { view, _texts: texts, _ranks: ranks, _calls: calls };
    // A thread that ends has nobody left to ask.
    let _ = LAST.try_with(|last| last.replace(Some(kept)));
    status
}

fn shown(rank: u32, call: &CallInfo, texts: &mut Vec<CString>) -> ErrorCall {
    let mut text = |text: &str| {
        let text = c_text(text);
        let start = text.as_ptr();
        texts.push(text);
        start
    };
    ErrorCall {
        rank,
        line: call.site.as_ref().map_or(0, |site| site.line),
        number: call.number,
        file: call.site.as_ref().map_or(ptr::null(), |site| text(&site.file)),
        operation: text(call.descriptor.operation.name()),
        text: text(&call.to_string()),
    }
}

/// The ranks of the job that an error names.
fn ranks(error: &Error) -> Vec<u32> {
    match error {
        Error::Mismatch { calls, .. } => calls.iter().map(|(rank, _)| rank.get()).collect(),
        Error::PeerLost { culprits, .. } => culprits.iter().map(|culprit| culprit.rank.get()).collect(),
        Error::Timeout { not_arrived, .. } => not_arrived.iter().map(|awaited| awaited.rank.get()).collect(),
        Error::Rendezvous { missing, .. } => missing.iter().map(|rank| rank.get()).collect(),
        Error::NoQuorum { silent, .. } => silent.iter().map(|rank| rank.get()).collect(),
        Error::Corrupted { from, to, .. } => vec![from.get(), to.get()],
        Error::Revoked { by, .. } | Error::Aborted { by } | Error::Cancelled { by, .. } => vec![by.get()],
        Error::NonFinite { rank, .. } | Error::Panicked { rank, .. } => vec![rank.get()],
        Error::Evicted { reported_by, .. } => vec![reported_by.get()],
        _ => Vec::new(),
    }
}

/// The calls that an error names, each with its rank.
fn calls(error: &Error) -> Vec<(u32, &CallInfo)> {
    match error {
        Error::Mismatch { calls, .. } => calls.iter().map(|(rank, call)| (rank.get(), call)).collect(),
        Error::PeerLost { call: Some(call), reported_by, .. } => vec![(reported_by.get(), call)],
        Error::Timeout { call, reported_by, .. } => vec![(reported_by.get(), call)],
        Error::Corrupted { call: Some(call), to, .. } => vec![(to.get(), call)],
        Error::Cancelled { by, call } => vec![(by.get(), call)],
        Error::NonFinite { rank, call, .. } | Error::Panicked { rank, call, .. } => vec![(rank.get(), call)],
        _ => Vec::new(),
    }
}

/// A text of C, which ends at its first NUL: such a character becomes a question mark.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use unisono::ErrorCode;

    use super::*;

    #[test]
    fn every_kind_has_the_number_of_the_crate() {
        let error = |code: ErrorCode| match code {
            ErrorCode::Closed => Error::closed(),
            _ => Error::invalid("x", "y"),
        };
        assert_eq!(Status::of(&error(ErrorCode::Closed)) as i32, i32::from(ErrorCode::Closed.number()));
        let header = include_str!("../unisono.h");
        for code in ErrorCode::ALL {
            let mut name = String::new();
            for letter in code.name().chars() {
                if letter.is_uppercase() && !name.is_empty() {
                    name.push('_');
                }
                name.push(letter.to_ascii_uppercase());
            }
            let line = format!("  UNISONO_STATUS_{name} = {},", code.number());
            assert!(header.lines().any(|one| one == line), "unisono.h lacks {line}");
        }
    }

    #[test]
    fn a_thread_has_its_own_last_error() {
        keep(&Error::invalid("count", "a\0b"));
        std::thread::spawn(|| assert!(unisono_last_error().is_null())).join().unwrap();
        // SAFETY: nothing has replaced the error of this thread.
        let (view, text) = unsafe {
            let view = &*unisono_last_error();
            (view, CStr::from_ptr(view.text))
        };
        assert_eq!((view.status, text.to_str()), (Status::InvalidArgument, Ok("invalid count: a?b")));
        assert!(view.is_usable && view.ranks.is_null() && view.calls.is_null());
    }
}
