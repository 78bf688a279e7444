//! The values that calls give, and new arrays for them, of the kind of the input.

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyDict, PyMemoryView, PyTuple};

use unisono::{DType, Outcome};

use crate::arrays::Array;
use crate::dtypes::numpy_name;
use crate::errors::invalid;
use crate::messages::Received;

/// The value that a call gives.
pub(crate) enum Gives {
    /// This array, or these.
    Array(Py<PyAny>),
    /// The source, the tag and the length of the message.
    Received,
    Nothing,
}

impl Gives {
    /// The array of the result, which the call fills; `None` for a call without one.
    pub(crate) fn array(&self, py: Python<'_>) -> Py<PyAny> {
        match self {
            Gives::Array(array) => array.clone_ref(py),
            Gives::Received | Gives::Nothing => py.None(),
        }
    }

    /// The value of a call with this outcome.
    pub(crate) fn value(&self, py: Python<'_>, outcome: &Outcome, dtype: DType) -> PyResult<Py<PyAny>> {
        match self {
            Gives::Received => Ok(Py::new(py, Received::of(outcome, dtype))?.into_any()),
            Gives::Array(_) | Gives::Nothing => Ok(self.array(py)),
        }
    }
}

/// A new array with this shape and the elements of `source`, whose memory is `like`: a tensor of torch for a tensor of
/// torch, else an array of numpy; without numpy a memoryview.
pub(crate) fn new_like<'py>(
    source: &Bound<'py, PyAny>,
    like: &Array,
    shape: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let py = source.py();
    let shape = PyTuple::new(py, shape)?;
    if source.get_type().module()?.to_str()?.starts_with("torch") {
        return source.call_method1("new_empty", (shape,));
    }
    let Some(empty) = numpy_empty(py)? else { return memory_view(py, like, &shape) };
    // The array's own type, which may be numpy's view of a type that numpy lacks.
    let own = if is_numpy(source)? { source.getattr_opt("dtype")? } else { None };
    let arguments = PyDict::new(py);
    match (own, numpy_name(like.dtype())) {
        (Some(dtype), _) => arguments.set_item("dtype", dtype)?,
        (None, Some(name)) => arguments.set_item("dtype", name)?,
        (None, None) => {
            let problem =
                format!("missing: numpy has no arrays of {}, in which the result could be", like.dtype());
            return Err(invalid(py, "out", problem));
        }
    }
    empty.call((shape,), Some(&arguments))
}

/// A new one-dimensional array of numpy.
pub(crate) fn numpy_array<'py>(py: Python<'py>, count: usize, dtype: &str) -> PyResult<Bound<'py, PyAny>> {
    match numpy_empty(py)? {
        Some(empty) => empty.call1((count, dtype)),
        None => {
            Err(invalid(py, "out", "missing, and numpy, whose array the result would be, is not installed"))
        }
    }
}

fn is_numpy(source: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(source.get_type().module()?.to_str()? == "numpy")
}

/// `numpy.empty`, if numpy is installed.
fn numpy_empty(py: Python<'_>) -> PyResult<Option<&Bound<'_, PyAny>>> {
    static EMPTY: PyOnceLock<Option<Py<PyAny>>> = PyOnceLock::new();
    let load = || match py.import("numpy") {
        Ok(numpy) => Ok(Some(numpy.getattr("empty")?.unbind())),
        Err(error) if error.is_instance_of::<PyImportError>(py) => Ok(None),
        Err(error) => Err(error),
    };
    Ok(EMPTY.get_or_try_init(py, load)?.as_ref().map(|empty| empty.bind(py)))
}

fn memory_view<'py>(
    py: Python<'py>,
    like: &Array,
    shape: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let Some(format) = like.format().and_then(|format| format.to_str().ok()) else {
        return Err(invalid(
            py,
            "out",
            "missing, and numpy, whose array the result would be, is not installed",
        ));
    };
    let lengths: Vec<usize> = shape.extract()?;
    let bytes = lengths.iter().product::<usize>() * like.dtype().bytes();
    let memory = PyByteArray::new_with(py, bytes, |_| Ok(()))?;
    let view = PyMemoryView::from(&memory)?;
    if bytes == 0 { view.call_method1("cast", (format,)) } else { view.call_method1("cast", (format, shape)) }
}
