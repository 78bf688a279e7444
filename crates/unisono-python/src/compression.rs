//! States of compressed calls, which keep the compression error.

use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};
use unisono::compression::{Codec, codec_by_name};
use unisono::{DType, Error};

use crate::communicator::Communicator;
use crate::dtypes::of_name;
use crate::errors::{Raise, invalid};

/// The state itself.
pub(crate) type State = unisono::compression::CompressionState;

/// The residuals of one vector between compressed calls. The codec is one of sign, sign-rms, int8, int4, bf16; with
/// `or_exact` the first call measures whether compression pays, and the state makes exact calls where it does not. One
/// call at a time uses a state.
///
/// >>> gradients = np.array([0.5, -0.25, 1.0], "float32")
/// >>> state = un.CompressionState(world, "int8", 3)
/// >>> bool(abs(world.compressed_all_reduce(gradients, un.AVG, state)[2] - 1) < 0.01), state.calls
/// (True, 1)
#[pyclass(frozen, module = "unisono")]
pub(crate) struct CompressionState {
    state: Arc<Mutex<State>>,
}

/// Evaluates an expression with `T` as one of the types that compressed calls take.
macro_rules! for_float {
    ($dtype:expr, $T:ident => $made:expr) => {
        match $dtype {
            unisono::DType::F32 => {
                type $T = f32;
                $made
            }
            unisono::DType::F16 => {
                type $T = unisono::f16;
                $made
            }
            unisono::DType::BF16 => {
                type $T = unisono::bf16;
                $made
            }
            other => Err(unisono::Error::invalid(
                "dtype",
                format!("{other}, but compressed calls take f32, f16 and bf16"),
            )),
        }
    };
}

pub(crate) use for_float;

impl CompressionState {
    fn made(py: Python<'_>, state: unisono::Result<State>) -> PyResult<CompressionState> {
        Ok(CompressionState { state: Arc::new(Mutex::new(state.raise(py)?)) })
    }

    /// The state for a call on another thread.
    pub(crate) fn shared(&self) -> Arc<Mutex<State>> {
        self.state.clone()
    }

    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, State>> {
        locked(&self.state).raise(py)
    }
}

/// The state, unless a call uses it.
pub(crate) fn locked(state: &Mutex<State>) -> unisono::Result<MutexGuard<'_, State>> {
    match state.try_lock() {
        Ok(state) => Ok(state),
        Err(TryLockError::Poisoned(state)) => Ok(state.into_inner()),
        Err(TryLockError::WouldBlock) => Err(Error::invalid("state", "another call uses it")),
    }
}

fn chosen(py: Python<'_>, codec: &str, dtype: &str) -> PyResult<(Arc<dyn Codec>, DType)> {
    let dtype = of_name(dtype).map_err(|problem| invalid(py, "dtype", problem))?;
    Ok((codec_by_name(codec).raise(py)?, dtype))
}

#[pymethods]
impl CompressionState {
    /// A state without residuals for vectors of `elements` elements of f32, f16 or bf16.
    #[new]
    #[pyo3(signature = (communicator, codec, elements, *, dtype = "f32", or_exact = false))]
    fn new(
        py: Python<'_>,
        communicator: &Bound<'_, Communicator>,
        codec: &str,
        elements: usize,
        dtype: &str,
        or_exact: bool,
    ) -> PyResult<CompressionState> {
        let (codec, dtype) = chosen(py, codec, dtype)?;
        let state = State::with_codec(&communicator.get().inner, codec, dtype, elements);
        CompressionState::made(py, state.map(|state| if or_exact { state.or_exact() } else { state }))
    }

    /// A state for compressed_reduce_scatter of arrays of these lengths.
    #[classmethod]
    #[pyo3(signature = (communicator, codec, lengths, *, dtype = "f32"))]
    fn reduce_scatter(
        _: &Bound<'_, PyType>,
        py: Python<'_>,
        communicator: &Bound<'_, Communicator>,
        codec: &str,
        lengths: Vec<usize>,
        dtype: &str,
    ) -> PyResult<CompressionState> {
        let ((codec, dtype), comm) = (chosen(py, codec, dtype)?, &communicator.get().inner);
        CompressionState::made(py, for_float!(dtype, T => State::reduce_scatter::<T>(comm, codec, &lengths)))
    }

    /// A state for compressed_all_gather of `shares[r]` elements of each rank r.
    #[classmethod]
    #[pyo3(signature = (communicator, codec, shares, *, dtype = "f32"))]
    fn all_gather(
        _: &Bound<'_, PyType>,
        py: Python<'_>,
        communicator: &Bound<'_, Communicator>,
        codec: &str,
        shares: Vec<usize>,
        dtype: &str,
    ) -> PyResult<CompressionState> {
        let ((codec, dtype), comm) = (chosen(py, codec, dtype)?, &communicator.get().inner);
        CompressionState::made(py, for_float!(dtype, T => State::all_gather::<T>(comm, codec, &shares)))
    }

    /// The state that `export` wrote on the same rank of as many ranks, with the same codec and elements.
    #[classmethod]
    #[pyo3(signature = (communicator, codec, exported, *, dtype = "f32"))]
    fn restore(
        _: &Bound<'_, PyType>,
        py: Python<'_>,
        communicator: &Bound<'_, Communicator>,
        codec: &str,
        exported: &[u8],
        dtype: &str,
    ) -> PyResult<CompressionState> {
        let ((codec, dtype), comm) = (chosen(py, codec, dtype)?, &communicator.get().inner);
        CompressionState::made(
            py,
            for_float!(dtype, T => State::import_with_codec::<T>(comm, codec, exported)),
        )
    }

    /// The state as bytes, for a checkpoint.
    fn export<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.lock(py)?.export().raise(py)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Forgets all residuals.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.lock(py)?.reset().raise(py)
    }

    /// Elements of the vector.
    #[getter]
    fn elements(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.lock(py)?.elements())
    }

    /// The number of calls that have succeeded with it.
    #[getter]
    fn calls(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.lock(py)?.calls())
    }

    /// Bytes of the residuals.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.lock(py)?.bytes())
    }

    /// Whether it makes exact calls; `None` as long as it has not measured, or does not.
    #[getter]
    fn declined(&self, py: Python<'_>) -> PyResult<Option<bool>> {
        Ok(self.lock(py)?.declined())
    }

    fn __repr__(&self) -> String {
        let Ok(state) = locked(&self.state) else { return "CompressionState(in a call)".to_owned() };
        let (codec, elements, calls) = (state.codec(), state.elements(), state.calls());
        format!("CompressionState({codec:?}, {elements} elements, {calls} calls)")
    }
}
