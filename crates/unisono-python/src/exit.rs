//! The interpreter, of which a process has one, and its end: threads of the library that let go of Python objects at
//! the end of calls never attach to an interpreter that is being finalized, because CPython ends such threads in the
//! middle.

use std::sync::{PoisonError, RwLock};

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Whether threads of the library may attach. Held by a thread while it does.
static MAY_ATTACH: RwLock<bool> = RwLock::new(true);

/// Refuses every interpreter of the process but the first: objects of two interpreters must not meet in one world. The
/// package calls it in each, because CPython gives the module of the first one to the others.
#[pyfunction]
#[pyo3(name = "_enter")]
pub(crate) fn enter(py: Python<'_>) -> PyResult<()> {
    static MODULES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let own = py.import("sys")?.getattr("modules")?;
    if MODULES.get_or_init(py, || own.clone().unbind()).is(&own) {
        return Ok(());
    }
    let text = "unisono serves one interpreter of a process, and another one has imported it: \
                sub-interpreters cannot use it";
    Err(PyImportError::new_err(text))
}

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

    /// As `get`.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.0.as_mut()
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
