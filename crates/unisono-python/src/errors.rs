//! From errors of the library to exceptions: `unisono._errors` has a class for each kind.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use unisono::{Error, ErrorCode, JobRank, Result};

use crate::site::site;

/// The module with the classes.
const MODULE: &str = "unisono._errors";

/// The result of a call, as Python has it.
pub(crate) trait Raise<T> {
    /// Turns the error into an exception of its class.
    fn raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> Raise<T> for Result<T> {
    #[inline]
    fn raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, &error))
    }
}

/// An invalid argument, which this package finds itself; with the line of the program.
pub(crate) fn invalid(py: Python<'_>, argument: &'static str, problem: impl Into<String>) -> PyErr {
    exception(py, &Error::invalid(argument, problem).in_call(&format_args!("the call{}", site(py).at())))
}

/// The exception of an error. A failure on the way to it is an exception too, which Python shows.
#[cold]
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    made(py, error).unwrap_or_else(|problem| problem)
}

fn made(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let facts = PyDict::new(py);
    facts.set_item("ranks", ranks(error))?;
    facts.set_item("call", call(error))?;
    facts.set_item("usable", error.is_before_start())?;
    let class = class(py, error.code())?;
    let value = class.call((error.to_string(),), Some(&facts))?;
    let raised = PyErr::from_value(value);
    if let Error::Revoked { cause, .. } = error {
        raised.set_cause(py, Some(made(py, cause)?));
    }
    Ok(raised)
}

/// The class of a kind, which has the kind's name.
fn class(py: Python<'_>, code: ErrorCode) -> PyResult<Bound<'_, PyType>> {
    static CLASSES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let load = || -> PyResult<Py<PyDict>> {
        Ok(py.import(MODULE)?.getattr("CLASSES")?.cast_into::<PyDict>()?.unbind())
    };
    let classes = CLASSES.get_or_try_init(py, load)?.bind(py);
    Ok(classes.as_any().get_item(code.name())?.cast_into::<PyType>()?)
}

/// The ranks of the job that an error names: lost, awaited, different, or the rank that ended the communicator.
fn ranks(error: &Error) -> Vec<u32> {
    let numbers = |ranks: &[JobRank]| ranks.iter().map(|rank| rank.get()).collect();
    match error {
        Error::Mismatch { calls, .. } => calls.iter().map(|(rank, _)| rank.get()).collect(),
        Error::PeerLost { culprits, .. } => culprits.iter().map(|culprit| culprit.rank.get()).collect(),
        Error::Timeout { not_arrived, .. } => not_arrived.iter().map(|awaited| awaited.rank.get()).collect(),
        Error::Corrupted { from, to, .. } => vec![from.get(), to.get()],
        Error::NoQuorum { silent, .. } => numbers(silent),
        Error::Rendezvous { missing, .. } => numbers(missing),
        Error::Evicted { reported_by: rank, .. }
        | Error::Revoked { by: rank, .. }
        | Error::Aborted { by: rank }
        | Error::Cancelled { by: rank, .. }
        | Error::NonFinite { rank, .. }
        | Error::Panicked { rank, .. } => vec![rank.get()],
        _ => Vec::new(),
    }
}

/// The call in which an error was noticed, with its line.
fn call(error: &Error) -> Option<String> {
    match error {
        Error::InvalidArgument { call, .. } | Error::Closed { call } => call.clone(),
        Error::ConcurrentUse { call } => Some(call.clone()),
        Error::Mismatch { calls, .. } => Some(calls[0].1.to_string()),
        Error::PeerLost { call, .. } | Error::Corrupted { call, .. } => {
            call.as_ref().map(|call| call.to_string())
        }
        Error::Timeout { call, .. }
        | Error::Cancelled { call, .. }
        | Error::NonFinite { call, .. }
        | Error::Panicked { call, .. } => Some(call.to_string()),
        Error::StoreTimeout { call, .. } | Error::StoreFull { call, .. } => Some(call.to_string()),
        Error::Revoked { cause, .. } => call(cause),
        _ => None,
    }
}
