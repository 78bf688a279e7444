//! Handles of calls that were started.

use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;
use unisono::DType;

use crate::exit::{Kept, attached};
use crate::foreign::Started;
use crate::interrupt::waiting;
use crate::results::Gives;
use crate::timeouts::seconds;

/// The handle of a call that was started. The call goes on without it, and keeps its arrays until it has ended.
///
/// >>> work = world.all_reduce_async(np.ones(2))
/// >>> work.wait(timeout=10)
/// array([1., 1.])
/// >>> work.done()
/// True
#[pyclass(frozen, module = "unisono")]
pub(crate) struct Work {
    started: Started,
    gives: Gives,
    dtype: DType,
}

impl Work {
    pub(crate) fn new(started: Started, gives: Gives, dtype: DType) -> Work {
        Work { started, gives, dtype }
    }
}

#[pymethods]
impl Work {
    /// Blocks until the call has ended, and gives its result: the array, or the facts of a receive. Any number of
    /// threads may wait, and each gets the same. Ctrl-C ends the call, which aborts the communicator.
    ///
    /// Raises TimeoutError when it has not ended within `timeout` seconds; the call goes on. Else the call's error.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let timeout = timeout.map(seconds).transpose()?;
        let ended = waiting(py, || match timeout {
            None => self.started.work().wait().map(Some),
            Some(timeout) => self.started.work().wait_timeout(timeout).transpose(),
        });
        self.started.release();
        match ended? {
            Some(outcome) => self.gives.value(py, &outcome, self.dtype),
            None => {
                let waited = timeout.unwrap_or_default();
                Err(PyTimeoutError::new_err(format!("the call has not ended within {waited:?}; it goes on")))
            }
        }
    }

    /// Whether the call has ended. Does not block.
    fn done(&self, py: Python<'_>) -> bool {
        py.detach(|| self.started.work().is_done())
    }

    /// Revokes the communicator unless the call has ended: the other ranks cannot go on without this one.
    fn cancel(&self, py: Python<'_>) {
        py.detach(|| self.started.work().cancel());
    }

    /// Calls `function` without arguments at the end of the call, once: at once if it has ended. It must not block.
    fn on_done(&self, py: Python<'_>, function: Py<PyAny>) {
        let function = Kept::new(function);
        py.detach(|| {
            self.started.work().on_done(move |_| {
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

/// The index of the first of the handles that has ended; `None` without handles.
#[pyfunction]
#[pyo3(signature = (works, timeout = None))]
pub(crate) fn wait_any(
    py: Python<'_>,
    works: Vec<Py<Work>>,
    timeout: Option<f64>,
) -> PyResult<Option<usize>> {
    let timeout = timeout.map(seconds).transpose()?;
    let handles: Vec<&unisono::Work> = works.iter().map(|work| work.get().started.work()).collect();
    let ended = waiting(py, || {
        Ok(match timeout {
            None => unisono::wait_any(&handles),
            Some(timeout) => unisono::wait_any_timeout(&handles, timeout),
        })
    })?;
    match (ended, timeout) {
        (None, Some(waited)) if !works.is_empty() => {
            Err(PyTimeoutError::new_err(format!("no call has ended within {waited:?}; they go on")))
        }
        _ => Ok(ended),
    }
}

/// The results of all handles in their order, once all calls have ended; else the first error in that order.
#[pyfunction]
pub(crate) fn wait_all(py: Python<'_>, works: Vec<Py<Work>>) -> PyResult<Vec<Py<PyAny>>> {
    let results: Vec<PyResult<Py<PyAny>>> = works.iter().map(|work| work.get().wait(py, None)).collect();
    results.into_iter().collect()
}
