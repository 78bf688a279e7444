//! Handles of calls that were started.

use std::time::{Duration, Instant};

use pyo3::exceptions::{PyKeyboardInterrupt, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use unisono::{DType, Outcome, Result};

use crate::errors::Raise;
use crate::exit::{Kept, attached};
use crate::request::Gives;

/// The longest wait without a look for signals.
const TURN: Duration = Duration::from_millis(50);

/// The handle of a call that was started. The call goes on without it, and keeps its arrays until it has ended.
#[pyclass(frozen, module = "unisono")]
pub(crate) struct Work {
    work: unisono::Work,
    gives: Gives,
    dtype: DType,
}

impl Work {
    pub(crate) fn new(work: unisono::Work, gives: Gives, dtype: DType) -> Work {
        Work { work, gives, dtype }
    }

    fn value(&self, py: Python<'_>, result: Result<Outcome>) -> PyResult<Py<PyAny>> {
        self.gives.value(py, &result.raise(py)?, self.dtype)
    }
}

#[pymethods]
impl Work {
    /// Blocks until the call has ended, and gives its result: the array, or what a receive tells. Any number of threads
    /// may wait, each gets the same. Ctrl-C cancels the call, which revokes the communicator.
    ///
    /// Raises TimeoutError when it has not ended within `timeout` seconds; the call goes on. Else the call's error.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let timeout = timeout.map(seconds).transpose()?;
        let start = Instant::now();
        loop {
            let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            let turn = left.unwrap_or(TURN).min(TURN);
            if let Some(result) = py.detach(|| self.work.wait_timeout(turn)) {
                return self.value(py, result);
            }
            if let Err(signal) = py.check_signals() {
                py.detach(|| self.work.cancel());
                return Err(noted(py, signal));
            }
            if left.is_some_and(|left| left <= turn) {
                let waited = timeout.unwrap_or_default();
                return Err(PyTimeoutError::new_err(format!(
                    "the call has not ended within {waited:?}; it goes on"
                )));
            }
        }
    }

    /// Whether the call has ended. Does not block.
    fn done(&self, py: Python<'_>) -> bool {
        py.detach(|| self.work.is_done())
    }

    /// Revokes the communicator unless the call has ended: the other ranks cannot go on without this one.
    fn cancel(&self, py: Python<'_>) {
        py.detach(|| self.work.cancel());
    }

    /// Calls `function` without arguments at the end of the call, once: at once if it has ended. It must not block.
    fn on_done(&self, py: Python<'_>, function: Py<PyAny>) {
        let function = Kept::new(function);
        py.detach(|| {
            self.work.on_done(move |_| {
                attached(|py| {
                    let called = function.get().map(|function| function.call0(py));
                    if let Some(Err(error)) = called {
                        error.write_unraisable(py, None);
                    }
                });
            });
        });
    }

    fn __await__(slf: Bound<'_, Work>) -> PyResult<Bound<'_, PyAny>> {
        let py = slf.py();
        py.import("unisono._awaiting")?.call_method1("ended", (slf,))?.call_method0("__await__")
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("Work(done={})", if self.done(py) { "True" } else { "False" })
    }
}

/// A timeout in seconds.
pub(crate) fn seconds(seconds: f64) -> PyResult<Duration> {
    if seconds.is_infinite() && seconds > 0.0 {
        return Ok(Duration::MAX);
    }
    Duration::try_from_secs_f64(seconds)
        .map_err(|problem| PyValueError::new_err(format!("timeout of {seconds} s: {problem}")))
}

/// The exception of a signal, which also says what has become of the call.
pub(crate) fn noted(py: Python<'_>, signal: PyErr) -> PyErr {
    if signal.is_instance_of::<PyKeyboardInterrupt>(py) {
        let note = "unisono: the call was cancelled, which has revoked its communicator on every rank";
        if let Err(error) = signal.value(py).call_method1("add_note", (note,)) {
            return error;
        }
    }
    signal
}

/// The index of the first of the handles that has ended; `None` without handles.
#[pyfunction]
#[pyo3(signature = (works, timeout = None))]
pub(crate) fn wait_any(
    py: Python<'_>,
    works: Vec<Py<Work>>,
    timeout: Option<f64>,
) -> PyResult<Option<usize>> {
    let timeout = timeout.map(seconds).transpose()?;
    let start = Instant::now();
    let works: Vec<&unisono::Work> = works.iter().map(|work| &work.get().work).collect();
    if works.is_empty() {
        return Ok(None);
    }
    loop {
        let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
        let turn = left.unwrap_or(TURN).min(TURN);
        if let Some(index) = py.detach(|| unisono::wait_any_timeout(&works, turn)) {
            return Ok(Some(index));
        }
        py.check_signals()?;
        if left.is_some_and(|left| left <= turn) {
            let waited = timeout.unwrap_or_default();
            return Err(PyTimeoutError::new_err(format!("no call has ended within {waited:?}; they go on")));
        }
    }
}

/// The results of all handles in their order, once all calls have ended; else the first error in that order.
#[pyfunction]
pub(crate) fn wait_all(py: Python<'_>, works: Vec<Py<Work>>) -> PyResult<Vec<Py<PyAny>>> {
    let results: Vec<PyResult<Py<PyAny>>> = works.iter().map(|work| work.get().wait(py, None)).collect();
    results.into_iter().collect()
}
