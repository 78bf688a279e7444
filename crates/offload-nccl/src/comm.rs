//! A communicator of NCCL's, which any thread may abort while others are in a call on it. Abort frees it, so it waits a
//! little until they have left: functions of a communicator that does not block return at once, and threads that wait
//! for work that these have begun look for the abort. A thread that stays is stuck in NCCL, and only abort gets it out.
//!
//! Every other function of a communicator is an [`Operation`], of which there is one at a time: NCCL allows one thread
//! in a communicator, and since 2.26 `ncclCommGetAsyncError` completes and frees the work that calls have begun. A
//! thread that only looks for errors does not wait for its turn: while another thread is in the communicator there is
//! nothing new. An abort waits for no operation, and ends the wait for one. The turn on the device (`unisono_offload`)
//! is taken before.

#![expect(unsafe_code, reason = "calls NCCL")]

use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use unisono_communicator::{Error, Result};

use crate::discovery::NcclLibrary;
use crate::error::IN_PROGRESS;
use crate::sys::CommHandle;

/// The time that an abort waits for threads that are in a call: much longer than a [`NAP`].
const LEAVE_MAX: Duration = Duration::from_millis(500);

/// The time for which a thread that waits for NCCL only gives its core away before it sleeps, and the time for which it
/// sleeps. NCCL makes a thread for each call of several ranks on a communicator that does not block, which takes longer
/// than to enqueue the call.
const SPIN: Duration = Duration::from_millis(1);
const NAP: Duration = Duration::from_micros(100);

/// A communicator of NCCL.
pub struct NcclComm(Arc<Shared>);

struct Shared {
    handle: CommHandle,
    state: Mutex<State>,
    /// Somebody has left, an operation is over, or the communicator is ending.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Calls under way, and groups that will make some.
    inside: usize,
    /// A thread is in a function of NCCL's.
    is_operated: bool,
    /// The threads that wait until no thread is in one.
    waiting: usize,
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
            return Err(Error::closed());
        }
        state.inside += 1;
        Ok(())
    }

    fn leave(&self) {
        let mut state = self.state();
        state.inside -= 1;
        if state.inside == 0 && state.is_ending {
            self.changed.notify_all();
        }
    }

    /// The next operation, when it is its turn.
    ///
    /// # Errors
    /// [`Error::Closed`] when another thread aborts the communicator.
    fn operate(&self) -> Result<Operation<'_>> {
        let is_taken = |state: &mut State| state.is_operated && !state.is_ending;
        let mut state = self.state();
        state.waiting += 1;
        let waited = self.changed.wait_while(state, is_taken);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        if state.is_ending {
            return Err(Error::closed());
        }
        state.is_operated = true;
        Ok(Operation(self))
    }

    /// The next operation, unless another thread is in one, or waits for its own: threads that only look come again.
    ///
    /// # Errors
    /// As [`Shared::operate`].
    fn try_operate(&self) -> Result<Option<Operation<'_>>> {
        let mut state = self.state();
        if state.is_ending {
            return Err(Error::closed());
        }
        if state.is_operated || state.waiting > 0 {
            return Ok(None);
        }
        state.is_operated = true;
        Ok(Some(Operation(self)))
    }
}

/// This thread may call functions of the communicator, but for its abort, until this is dropped.
pub(crate) struct Operation<'a>(&'a Shared);

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_operated = false;
        // To wake nobody is a call of the kernel too.
        if state.waiting > 0 {
            self.0.changed.notify_all();
        }
    }
}

impl Operation<'_> {
    pub(crate) fn handle(&self) -> CommHandle {
        self.0.handle
    }

    /// The communicator's state of work that is under way.
    fn async_error(&self, library: &NcclLibrary) -> Result<c_int> {
        let mut code = 0;
        // SAFETY: the communicator lives while somebody is inside, and nobody else is in a function of it; this writes
        // one number.
        let own = unsafe { (library.table.comm_get_async_error)(self.0.handle, &mut code) };
        library.check("ncclCommGetAsyncError", own)?;
        Ok(code)
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
    /// For functions that this thread calls now.
    ///
    /// # Errors
    /// [`Error::Closed`] when another thread aborts the communicator.
    pub(crate) fn operate(&self) -> Result<Operation<'_>> {
        self.0.operate()
    }

    /// The communicator's state of work that is under way: it goes on, if another thread is in the communicator.
    ///
    /// # Errors
    /// [`Error::Vendor`]; [`Error::Closed`] when another thread aborts the communicator.
    pub(crate) fn async_error(&self, library: &NcclLibrary) -> Result<c_int> {
        self.0.try_operate()?.map_or(Ok(IN_PROGRESS), |operation| operation.async_error(library))
    }

    /// Waits for the end of the work that `call` has begun, and returned `code` for.
    ///
    /// # Errors
    /// The error of the call; [`Error::Closed`] when another thread aborts the communicator, or `gives_up` is true.
    pub(crate) fn settle(
        &self,
        library: &NcclLibrary,
        call: &'static str,
        mut code: c_int,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<()> {
        let mut since = None;
        while code == IN_PROGRESS {
            if self.0.state().is_ending || gives_up() {
                return Err(Error::closed());
            }
            if since.get_or_insert_with(Instant::now).elapsed() < SPIN {
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
        NcclComm(Arc::new(Shared { handle, state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Keeps the communicator from being freed.
    ///
    /// # Errors
    /// [`Error::Closed`] when it was aborted.
    pub(crate) fn enter(&self) -> Result<Inside<'_>> {
        self.0.enter()?;
        Ok(Inside(&self.0))
    }

    /// Ends the work that is under way, and frees the communicator. False when NCCL has not: the work may go on.
    pub(crate) fn abort(&self, library: &NcclLibrary) -> bool {
        let mut state = self.await_leave();
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

    /// Lets nobody enter any more, and waits a little until all have left.
    fn await_leave(&self) -> MutexGuard<'_, State> {
        let mut state = self.0.state();
        state.is_ending = true;
        self.0.changed.notify_all();
        let waited = self.0.changed.wait_timeout_while(state, LEAVE_MAX, |state| state.inside > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Frees the communicator when its work is done, unless it was aborted.
    ///
    /// # Errors
    /// [`Error::Vendor`]; [`Error::System`] when another thread does not come out of it, which keeps it then.
    pub(crate) fn destroy(&self, library: &NcclLibrary) -> Result<()> {
        let mut state = self.await_leave();
        if !state.is_freed && state.inside > 0 {
            let (what, text) = (DESTROY.to_owned(), "another thread is in the communicator".to_owned());
            return Err(Error::System { what, text });
        }
        if std::mem::replace(&mut state.is_freed, true) {
            return Ok(());
        }
        drop(state);
        // SAFETY: nobody is inside, nobody can enter, and it is freed once.
        match unsafe { (library.table.comm_destroy)(self.0.handle) } {
            // It goes on by itself.
            IN_PROGRESS => Ok(()),
            code => library.check(DESTROY, code),
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

/// Ends the innermost group of this thread by `end`, whose code it takes. The outermost one makes its calls: this waits
/// until they are made.
///
/// # Errors
/// As [`Inside::settle`], of the first communicator that has one.
pub(crate) fn group_ends(library: &NcclLibrary, end: impl FnOnce() -> c_int) -> Result<()> {
    GROUP.with_borrow_mut(|group| {
        group.depth -= 1;
        if group.depth > 0 {
            return library.check(GROUP_END, end());
        }
        let mut comms = std::mem::take(&mut group.comms);
        // Two threads that end groups on the same communicators take their turns in one order.
        comms.sort_by_key(Arc::as_ptr);
        // A communicator that is being aborted has none: the group is closed all the same.
        let operations: Vec<Operation<'_>> = comms.iter().filter_map(|comm| comm.operate().ok()).collect();
        let code = end();
        drop(operations);
        let mut result = Ok(());
        for comm in &comms {
            let inside = Inside(comm);
            if result.is_ok() {
                result = inside.settle(library, GROUP_END, code, &|| false);
            }
        }
        // A group without calls.
        result.and_then(|()| if code == IN_PROGRESS { Ok(()) } else { library.check(GROUP_END, code) })
    })
}

const GROUP_END: &str = "ncclGroupEnd";
const DESTROY: &str = "ncclCommDestroy";
