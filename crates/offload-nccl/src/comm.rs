//! A communicator of NCCL's, which any thread may abort while others are in a call on it. Abort frees it, so it waits a
//! little until they have left: functions of a communicator that does not block return at once, and those who wait for
//! what these have begun look for the abort. A thread that stays is stuck in NCCL, and abort is what gets it out.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use unisono_communicator::{Error, Result};

use crate::discovery::NcclLibrary;
use crate::error::IN_PROGRESS;
use crate::sys::CommHandle;

/// How long an abort waits for threads that are in a call: much longer than a [`NAP`].
const LEAVE_MAX: Duration = Duration::from_millis(500);

/// How often a thread that waits for NCCL gives its core away before it sleeps, and for how long it sleeps.
const YIELDS_MAX: u32 = 100;
const NAP: Duration = Duration::from_micros(100);

/// A communicator of NCCL.
pub struct NcclComm(Arc<Shared>);

struct Shared {
    handle: CommHandle,
    state: Mutex<State>,
    has_left: Condvar,
}

#[derive(Default)]
struct State {
    /// Calls under way, and groups that will make some.
    inside: usize,
    /// Nobody may enter any more.
    is_ending: bool,
    /// NCCL has it no more, or shall have it no more.
    is_freed: bool,
    /// NCCL has refused to end it.
    has_failed: bool,
}

// SAFETY: NCCL takes a communicator from any thread.
unsafe impl Send for Shared {}

// SAFETY: as above; the order of calls is their callers', and who is inside when it is freed, is in NCCL, which ends
// the call.
unsafe impl Sync for Shared {}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) -> Result<()> {
        let mut state = self.state();
        if state.is_ending {
            return Err(Error::Closed);
        }
        state.inside += 1;
        Ok(())
    }

    fn leave(&self) {
        let mut state = self.state();
        state.inside -= 1;
        if state.inside == 0 {
            self.has_left.notify_all();
        }
    }
}

/// A call is under way.
pub(crate) struct Inside<'a>(&'a Shared);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Inside<'_> {
    pub(crate) fn handle(&self) -> CommHandle {
        self.0.handle
    }

    /// What the communicator says about what is under way.
    pub(crate) fn async_error(&self, library: &NcclLibrary) -> Result<c_int> {
        let mut code = 0;
        // SAFETY: the communicator lives while somebody is inside; it writes one number.
        let own = unsafe { (library.table.comm_get_async_error)(self.0.handle, &mut code) };
        library.check("ncclCommGetAsyncError", own)?;
        Ok(code)
    }

    /// Waits until what `call` has begun, and returned `code` for, is done.
    ///
    /// # Errors
    /// That of the call; [`Error::Closed`] when another thread aborts the communicator, or `gives_up` is true.
    pub(crate) fn settle(
        &self,
        library: &NcclLibrary,
        call: &'static str,
        mut code: c_int,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<()> {
        let mut yields = 0;
        while code == IN_PROGRESS {
            if self.0.state().is_ending || gives_up() {
                return Err(Error::Closed);
            }
            if yields < YIELDS_MAX {
                yields += 1;
                thread::yield_now();
            } else {
                thread::sleep(NAP);
            }
            code = self.async_error(library)?;
        }
        library.check(call, code)
    }
}

impl NcclComm {
    /// Of a communicator that NCCL has made, or begun to make.
    pub(crate) fn new(handle: CommHandle) -> NcclComm {
        NcclComm(Arc::new(Shared { handle, state: Mutex::default(), has_left: Condvar::new() }))
    }

    /// Keeps the communicator from being freed.
    ///
    /// # Errors
    /// [`Error::Closed`] when it was aborted.
    pub(crate) fn enter(&self) -> Result<Inside<'_>> {
        self.0.enter()?;
        Ok(Inside(&self.0))
    }

    /// Ends what is under way, and frees the communicator. False when NCCL has not: what is under way may go on.
    pub(crate) fn abort(&self, library: &NcclLibrary) -> bool {
        let mut state = self.0.state();
        state.is_ending = true;
        let waited = self.0.has_left.wait_timeout_while(state, LEAVE_MAX, |state| state.inside > 0);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut state.is_freed, true) {
            return !state.has_failed;
        }
        drop(state);
        // SAFETY: nobody can enter, and it is freed once. A thread that is still inside is in a function of NCCL, which
        // this makes return, and does not touch the communicator afterwards.
        let code = unsafe { (library.table.comm_abort)(self.0.handle) };
        let has_failed = !matches!(code, 0 | IN_PROGRESS);
        self.0.state().has_failed = has_failed;
        !has_failed
    }

    /// Frees the communicator when its work is done, unless it was aborted.
    ///
    /// # Errors
    /// [`Error::Vendor`].
    pub(crate) fn destroy(&self, library: &NcclLibrary) -> Result<()> {
        let mut state = self.0.state();
        state.is_ending = true;
        if std::mem::replace(&mut state.is_freed, true) {
            return Ok(());
        }
        drop(state);
        // SAFETY: its caller says that no call is under way, nobody can enter, and it is freed once.
        match unsafe { (library.table.comm_destroy)(self.0.handle) } {
            // It goes on by itself.
            IN_PROGRESS => Ok(()),
            code => library.check("ncclCommDestroy", code),
        }
    }
}

/// The group that a thread has open. NCCL makes its calls when it ends, so their communicators stay until then.
#[derive(Default)]
struct Group {
    depth: usize,
    comms: Vec<Arc<Shared>>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// This thread has opened a group.
pub(crate) fn group_opened() {
    GROUP.with_borrow_mut(|group| group.depth += 1);
}

/// The group of this thread makes a call on this communicator, if there is a group.
///
/// # Errors
/// [`Error::Closed`] when it was aborted.
pub(crate) fn group_joins(comm: &NcclComm) -> Result<()> {
    GROUP.with_borrow_mut(|group| {
        if group.depth == 0 || group.comms.iter().any(|one| Arc::ptr_eq(one, &comm.0)) {
            return Ok(());
        }
        comm.0.enter()?;
        group.comms.push(comm.0.clone());
        Ok(())
    })
}

/// The outermost group of this thread is over, with this code of `ncclGroupEnd`: waits until its calls are made.
///
/// # Errors
/// As [`Inside::settle`], of the first communicator that has one.
pub(crate) fn group_closed(library: &NcclLibrary, code: c_int) -> Result<()> {
    GROUP.with_borrow_mut(|group| {
        group.depth -= 1;
        if group.depth > 0 {
            return library.check(GROUP_END, code);
        }
        let mut result = Ok(());
        for comm in group.comms.drain(..) {
            let inside = Inside(&comm);
            if result.is_ok() {
                result = inside.settle(library, GROUP_END, code, &|| false);
            }
        }
        // A group without calls.
        result.and_then(|()| if code == IN_PROGRESS { Ok(()) } else { library.check(GROUP_END, code) })
    })
}

const GROUP_END: &str = "ncclGroupEnd";
