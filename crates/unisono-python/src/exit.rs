//! The end of the interpreter: threads of the library that let go of Python objects at the end of calls never attach to
//! an interpreter that is being finalized, because CPython ends such threads in the middle.

use std::sync::{PoisonError, RwLock};

use pyo3::prelude::*;

/// Whether threads of the library may attach. Held by a thread while it does.
static MAY_ATTACH: RwLock<bool> = RwLock::new(true);

/// Runs `action` with the interpreter attached; false when that is no longer possible.
pub(crate) fn attached(action: impl FnOnce(Python<'_>)) -> bool {
    let may_attach = MAY_ATTACH.read().unwrap_or_else(PoisonError::into_inner);
    *may_attach && Python::try_attach(action).is_some()
}

/// Keeps threads of the library away from now on. `atexit` of Python calls it, before finalization begins.
#[pyfunction]
#[pyo3(name = "_exit")]
pub(crate) fn exit(py: Python<'_>) {
    // A thread that attaches at this moment needs the interpreter.
    py.detach(|| *MAY_ATTACH.write().unwrap_or_else(PoisonError::into_inner) = false);
}

/// A value of Python objects that is dropped with the interpreter attached, or not at all once the interpreter ends.
pub(crate) struct Kept<T>(Option<T>);

impl<T> Kept<T> {
    pub(crate) fn new(value: T) -> Kept<T> {
        Kept(Some(value))
    }

    /// The value; `None` never, as long as it lives.
    pub(crate) fn get(&self) -> Option<&T> {
        self.0.as_ref()
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        let mut value = self.0.take();
        if !attached(|_| drop(value.take())) {
            std::mem::forget(value);
        }
    }
}
