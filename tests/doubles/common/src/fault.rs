//! What goes wrong on request, in the call itself or in the work that it gives to a stream, once for each request.
//!
//! In the environment: `UNISONO_DOUBLE_INJECT="ncclAllReduce:3:5,ncclCommInitRank:1:hang"`. That is, the third call
//! of `ncclAllReduce` returns 5, and the first of `ncclCommInitRank` hangs. `in-stream=6` and `hang-in-stream` are
//! for the work. By the exported functions: `unisono_double_inject(call, nth, code)` and
//! `unisono_double_inject_in_stream(call, nth, code)`, which count from then on; the code [`HANG`] hangs.
//!
//! A hang ends when its communicator is aborted, or by `unisono_double_reset()`; `unisono_double_hangs()` says how
//! many threads hang now.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, PoisonError};

use crate::{Text, callers, clock, export, lock, settings};

/// The code that stands for a hang.
pub const HANG: i32 = i32::MIN;

/// An error of a vendor's function.
pub trait VendorError {
    /// The code that a call returns whose hang was ended.
    const ENDED: i32;

    /// The code that the function returns. Notes the text, where the vendor's library has a function for the last
    /// one.
    fn code(&self) -> i32;

    /// A function was made to return `code`, and has done nothing.
    fn note_injected(call: &str, code: i32) {
        let _ = (call, code);
    }
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The vendor's code.
    Code(i32),
    /// Until it is ended.
    Hang,
}

impl Fault {
    fn from_code(code: i32) -> Fault {
        if code == HANG { Fault::Hang } else { Fault::Code(code) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Request {
    call: String,
    /// How many more calls there are up to this one.
    calls_left: u32,
    is_in_stream: bool,
    fault: Fault,
}

static REQUESTS: LazyLock<Mutex<Vec<Request>>> =
    LazyLock::new(|| Mutex::new(parse(&settings::text("inject").unwrap_or_default())));

thread_local! {
    /// The fault of the work that the call on this thread enqueues.
    static OF_WORK: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// Reads the requests of the environment.
fn parse(text: &str) -> Vec<Request> {
    let read = |one: &str| {
        let mut parts = one.trim().split(':');
        let call = parts.next()?.to_owned();
        let calls_left = parts.next()?.parse().ok()?;
        let (is_in_stream, fault) = match parts.next()? {
            "hang" => (false, Fault::Hang),
            "hang-in-stream" => (true, Fault::Hang),
            code => match code.strip_prefix("in-stream=") {
                Some(code) => (true, Fault::Code(code.parse().ok()?)),
                None => (false, Fault::Code(code.parse().ok()?)),
            },
        };
        Some(Request { call, calls_left, is_in_stream, fault })
    };
    let parts = text.split(',').filter(|one| !one.trim().is_empty());
    parts
        .map(|one| read(one).unwrap_or_else(|| panic!("test double: inject={one} is no call:nth:fault")))
        .collect()
}

/// The fault of this call, if it has one.
fn due(call: &str) -> Option<Request> {
    let mut requests = lock(&REQUESTS);
    for request in requests.iter_mut().filter(|request| request.call == call) {
        request.calls_left = request.calls_left.saturating_sub(1);
    }
    let at = requests.iter().position(|request| request.call == call && request.calls_left == 0)?;
    Some(requests.remove(at))
}

/// Makes a call of the vendor's ABI: with its fault, or with what it does. `scope` is the communicator's handle, or
/// 0.
pub fn call<E: VendorError>(name: &'static str, scope: usize, body: impl FnOnce() -> Result<(), E>) -> i32 {
    let _watched = clock::enter(name);
    settings::stay_loaded();
    let _there = (scope != 0).then(|| callers::enter(scope, name));
    match due(name) {
        Some(request) if request.is_in_stream => OF_WORK.set(Some(request.fault)),
        Some(request) => return fail::<E>(name, request.fault, scope),
        None => {}
    }
    let code = match body() {
        Ok(()) => 0,
        Err(error) => error.code(),
    };
    // The call has given nothing to a stream.
    match take_of_work() {
        Some(fault) if code == 0 => fail::<E>(name, fault, scope),
        _ => code,
    }
}

fn fail<E: VendorError>(name: &str, fault: Fault, scope: usize) -> i32 {
    let code = match fault {
        Fault::Code(code) => code,
        Fault::Hang => {
            hang(scope);
            E::ENDED
        }
    };
    E::note_injected(name, code);
    code
}

/// The fault of the work that the call on this thread is about to enqueue.
pub fn take_of_work() -> Option<Fault> {
    OF_WORK.take()
}

struct Endings {
    /// Handles of communicators that were aborted.
    scopes: HashSet<usize>,
    resets: u64,
    /// Threads that hang now.
    hanging: u64,
}

static ENDINGS: LazyLock<Mutex<Endings>> =
    LazyLock::new(|| Mutex::new(Endings { scopes: HashSet::new(), resets: 0, hanging: 0 }));
static ENDED: Condvar = Condvar::new();

/// How often the double was reset.
pub fn resets() -> u64 {
    lock(&ENDINGS).resets
}

/// Waits until the communicator of this handle is aborted, or until the reset of the double.
pub fn hang(scope: usize) {
    hang_since(scope, resets());
}

/// As [`hang`], in work that was given to a stream after so many resets: the next one may have come meanwhile.
pub fn hang_since(scope: usize, resets: u64) {
    let mut endings = lock(&ENDINGS);
    endings.hanging += 1;
    while endings.resets == resets && !endings.scopes.contains(&scope) {
        endings = ENDED.wait(endings).unwrap_or_else(PoisonError::into_inner);
    }
    endings.hanging -= 1;
}

/// Ends every hang, of now and later, of a communicator.
pub fn end_hangs(scope: usize) {
    lock(&ENDINGS).scopes.insert(scope);
    ENDED.notify_all();
}

static MISUSES: AtomicU64 = AtomicU64::new(0);

/// Counts what a vendor's library would not notice, such as calls of two ranks that do not go together.
pub fn note_misuse() {
    MISUSES.fetch_add(1, Ordering::SeqCst);
}

fn request(call: Text, nth: u32, code: i32, is_in_stream: bool) {
    let call = call.get().unwrap_or_default();
    let fault = Fault::from_code(code);
    lock(&REQUESTS).push(Request { call, calls_left: nth.max(1), is_in_stream, fault });
}

export! {
    plain fn unisono_double_inject(call: Text, nth: u32, code: i32) {
        request(call, nth, code, false);
    }

    plain fn unisono_double_inject_in_stream(call: Text, nth: u32, code: i32) {
        request(call, nth, code, true);
    }

    plain fn unisono_double_hangs() -> u64 {
        lock(&ENDINGS).hanging
    }

    plain fn unisono_double_misuses() -> u64 {
        MISUSES.load(Ordering::SeqCst)
    }

    plain fn unisono_double_reset() {
        lock(&REQUESTS).clear();
        MISUSES.store(0, Ordering::SeqCst);
        crate::stream::hold(false);
        crate::root::stop_at_reset();
        lock(&ENDINGS).resets += 1;
        ENDED.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read() {
        let list =
            parse("ncclAllReduce:3:5, ncclSend:1:hang,ncclRecv:2:hang-in-stream,ncclSend:4:in-stream=6");
        let plain: Vec<_> =
            list.iter().map(|one| (one.call.as_str(), one.calls_left, one.is_in_stream, one.fault)).collect();
        assert_eq!(
            plain,
            [
                ("ncclAllReduce", 3, false, Fault::Code(5)),
                ("ncclSend", 1, false, Fault::Hang),
                ("ncclRecv", 2, true, Fault::Hang),
                ("ncclSend", 4, true, Fault::Code(6)),
            ]
        );
        assert_eq!(parse(""), []);
    }
}
