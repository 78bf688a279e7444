//! Waits without the interpreter's lock, which Ctrl-C ends: the main thread asks now and then for signals.

use std::cell::{Cell, RefCell};

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use unisono::extend::calls::InterruptCheck;
use unisono::{Error, Result};

use crate::errors::Raise;

thread_local! {
    /// Whether signal handlers of Python run on this thread; `None` before the first wait.
    static IS_MAIN: Cell<Option<bool>> = const { Cell::new(None) };
    /// The exception of a signal handler that has ended the wait of this thread.
    static SIGNAL: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Makes a call that may wait, without the interpreter's lock. An exception of a signal handler ends the call, which
/// aborts its communicator, and is raised in place of the call's error.
pub(crate) fn waiting<T: Send>(py: Python<'_>, call: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    let is_main = IS_MAIN.get().map_or_else(|| is_main(py), Ok)?;
    if !is_main {
        return py.detach(call).raise(py);
    }
    let result = py.detach(|| {
        let _check = InterruptCheck::begin(has_signal);
        call()
    });
    match SIGNAL.take() {
        None => result.raise(py),
        Some(signal) => Err(noted(py, signal, result.err())),
    }
}

fn is_main(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let is_main = threading.call_method0("current_thread")?.is(&threading.call_method0("main_thread")?);
    IS_MAIN.set(Some(is_main));
    Ok(is_main)
}

/// Runs the handlers of signals that have come; true when one has raised an exception.
fn has_signal() -> bool {
    let raised = Python::try_attach(|py| py.check_signals().err()).flatten();
    let has_raised = raised.is_some();
    if has_raised {
        SIGNAL.replace(raised);
    }
    has_raised
}

/// The exception of a signal handler, with a note on the end of the call.
fn noted(py: Python<'_>, signal: PyErr, error: Option<Error>) -> PyErr {
    if !signal.is_instance_of::<PyKeyboardInterrupt>(py) {
        return signal;
    }
    let became = error.map_or_else(|| "the wait is over".to_owned(), |error| error.to_string());
    let note = format!("unisono: Ctrl-C has ended a call, and its communicator on every rank: {became}");
    match signal.value(py).call_method1("add_note", (note,)) {
        Ok(_) => signal,
        Err(error) => error,
    }
}
