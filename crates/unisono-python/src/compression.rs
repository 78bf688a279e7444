//! Compressed all-reduces, with states that keep the compression error.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};
use unisono::call::Division;
use unisono::compression::{CompressedCollectives, codec_by_name};
use unisono::{Collectives, DType, Element, Error, bf16, f16};

use crate::arrays::Array;
use crate::building::given;
use crate::communicator::Communicator;
use crate::dtypes::of_name;
use crate::errors::{Raise, invalid};
use crate::interrupt::waiting;
use crate::operators::operator;
use crate::request::Arrays;

/// The residuals of one vector between compressed calls. The codec is one of sign, sign-rms, int8, int4, bf16; with
/// `or_exact` the first call measures whether compression pays, and the state makes exact calls where it does not.
#[pyclass(frozen, module = "unisono")]
pub(crate) struct CompressionState {
    state: Mutex<unisono::compression::CompressionState>,
}

impl CompressionState {
    fn lock(&self) -> MutexGuard<'_, unisono::compression::CompressionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn element_type(py: Python<'_>, name: &str) -> PyResult<DType> {
    of_name(name).map_err(|problem| invalid(py, "dtype", problem))
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
        let (codec, dtype) = (codec_by_name(codec).raise(py)?, element_type(py, dtype)?);
        let comm = &communicator.get().inner;
        let made = unisono::compression::CompressionState::with_codec(comm, codec, dtype, elements);
        let state = made.raise(py)?;
        Ok(CompressionState { state: Mutex::new(if or_exact { state.or_exact() } else { state }) })
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
        type State = unisono::compression::CompressionState;
        let codec = codec_by_name(codec).raise(py)?;
        let comm = &communicator.get().inner;
        let restored = match element_type(py, dtype)? {
            DType::F16 => State::import_with_codec::<f16>(comm, codec, exported),
            DType::BF16 => State::import_with_codec::<bf16>(comm, codec, exported),
            DType::F32 => State::import_with_codec::<f32>(comm, codec, exported),
            other => Err(Error::invalid("dtype", format!("{other}, but states are of f32, f16 and bf16"))),
        };
        Ok(CompressionState { state: Mutex::new(restored.raise(py)?) })
    }

    /// The state as bytes, for a checkpoint.
    fn export<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.lock().export().raise(py)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Forgets all residuals.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.lock().reset().raise(py)
    }

    /// Elements of the vector.
    #[getter]
    fn elements(&self) -> usize {
        self.lock().elements()
    }

    /// The number of calls that have succeeded with it.
    #[getter]
    fn calls(&self) -> u64 {
        self.lock().calls()
    }

    /// Bytes of the residuals.
    #[getter]
    fn nbytes(&self) -> usize {
        self.lock().bytes()
    }

    /// Whether it makes exact calls; `None` as long as it has not measured, or does not.
    #[getter]
    fn declined(&self) -> Option<bool> {
        self.lock().declined()
    }

    fn __repr__(&self) -> String {
        let state = self.lock();
        format!(
            "CompressionState({:?}, {} elements, {} calls)",
            state.codec(),
            state.elements(),
            state.calls()
        )
    }
}

#[pymethods]
impl Communicator {
    /// The array becomes about the sum or the mean of all ranks' arrays, the same bits everywhere, with fewer bytes on
    /// the network; the compression error stays in the state, and comes with the next call. `op` is SUM or AVG.
    #[pyo3(signature = (array, op, state, *, dtype = None))]
    fn compressed_all_reduce<'py>(
        &self,
        py: Python<'py>,
        array: &Bound<'py, PyAny>,
        op: &Bound<'py, PyAny>,
        state: &Bound<'py, CompressionState>,
        dtype: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let buffer = given(array, "array", dtype, Division::Coalesced)?;
        let Arrays::One(mut memory) = buffer.arrays else {
            return Err(invalid(py, "array", "a list, but a compressed call takes one array"));
        };
        let (op, _) = operator(Some(op), buffer.dtype)?;
        let (at, options, state) = (self.at(py), self.options, state.get());
        let comm = at.with(options);
        if memory.is_read_only() {
            return Err(invalid(py, "array", "is read-only"));
        }
        let memory = &mut memory;
        waiting(py, || match buffer.dtype {
            DType::F16 => comm.compressed_all_reduce(elements::<f16>(memory)?, op, &mut state.lock()),
            DType::BF16 => comm.compressed_all_reduce(elements::<bf16>(memory)?, op, &mut state.lock()),
            DType::F32 => comm.compressed_all_reduce(elements::<f32>(memory)?, op, &mut state.lock()),
            other => {
                Err(Error::invalid("dtype", format!("{other}, but compressed calls take f32, f16 and bf16")))
            }
        })?;
        Ok(array.clone())
    }
}

fn elements<T: Element>(array: &mut Array) -> unisono::Result<&mut [T]> {
    bytemuck::try_cast_slice_mut(array.bytes_mut())
        .map_err(|problem| Error::invalid("array", format!("its memory holds no {}: {problem}", T::DTYPE)))
}
