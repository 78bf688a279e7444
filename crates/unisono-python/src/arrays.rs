//! Arrays of Python programs as memory of calls: plain arrays of numpy, else by the buffer protocol, else by DLPack.

use std::ffi::CStr;
use std::ops::Range;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict};
use unisono::DType;

use crate::dtypes::of_format;
use crate::errors::invalid;
use crate::foreign::{DlDataType, Exported, Tensor, VERSION_MAX, has_buffer};

/// An array that a call reads or writes.
pub(crate) struct Array {
    memory: Exported,
    dtype: DType,
    is_read_only: bool,
}

impl Array {
    /// The memory of `object`, which a call has as `argument`. With `dtype`, its elements are of that type, also where
    /// the array says another one: for types that Python's formats lack, such as bf16.
    ///
    /// # Errors
    /// `InvalidArgument` for elements of no element type, and for memory that is not contiguous or not on the host;
    /// `TypeError` for an object that is no array.
    pub(crate) fn of(
        object: &Bound<'_, PyAny>,
        argument: &'static str,
        dtype: Option<DType>,
    ) -> PyResult<Array> {
        if let Some((memory, own, is_read_only)) = Exported::by_numpy(object) {
            let dtype = match dtype {
                Some(dtype) => given(object.py(), argument, dtype, own.bytes())?,
                None => own,
            };
            return Ok(Array { memory, dtype, is_read_only });
        }
        if !has_buffer(object) {
            return Array::by_dlpack(object, argument, dtype, None);
        }
        match PyUntypedBuffer::get(object) {
            Ok(buffer) => Array::by_buffer(object, buffer, argument, dtype),
            // numpy exports no buffer of a type that is not its own.
            Err(problem) => Array::by_dlpack(object, argument, dtype, Some(problem)),
        }
    }

    fn by_buffer(
        object: &Bound<'_, PyAny>,
        buffer: PyUntypedBuffer,
        argument: &'static str,
        dtype: Option<DType>,
    ) -> PyResult<Array> {
        let py = object.py();
        let (own, bytes) = (of_format(buffer.format(), buffer.item_size()), buffer.item_size());
        let is_read_only = buffer.readonly();
        let memory = Exported::by_buffer(buffer).map_err(|problem| invalid(py, argument, problem))?;
        let dtype = match dtype {
            Some(dtype) => given(py, argument, dtype, bytes)?,
            None => own.map_err(|problem| invalid(py, argument, problem))?,
        };
        Ok(Array { memory, dtype, is_read_only })
    }

    fn by_dlpack(
        object: &Bound<'_, PyAny>,
        argument: &'static str,
        dtype: Option<DType>,
        problem: Option<PyErr>,
    ) -> PyResult<Array> {
        let py = object.py();
        let Some(export) = object.getattr_opt(intern!(py, "__dlpack__"))? else {
            let kind = object.get_type().fully_qualified_name()?;
            let text =
                format!("{argument}: {kind} is no array; an array has the buffer protocol or __dlpack__");
            return Err(match problem {
                Some(problem) => refused(py, argument, problem),
                None => PyTypeError::new_err(text),
            });
        };
        let capsule = match export.call((), Some(versions(py)?)) {
            // Of an exporter that is older than versions.
            Err(error) if error.is_instance_of::<PyTypeError>(py) => export.call0(),
            exported => exported,
        };
        let capsule = capsule.map_err(|error| refused(py, argument, problem.unwrap_or(error)))?;
        let tensor = Tensor::new(capsule.cast_into::<PyCapsule>()?)?;
        let (own, is_read_only) = (tensor.dtype(), tensor.is_read_only() || is_immutable(object)?);
        let memory = Exported::by_tensor(tensor).map_err(|problem| invalid(py, argument, problem))?;
        let dtype = match dtype {
            Some(dtype) => given(py, argument, dtype, usize::from(own.bits) / 8)?,
            None => of_dlpack(own).map_err(|problem| invalid(py, argument, problem))?,
        };
        Ok(Array { memory, dtype, is_read_only })
    }

    /// The element type.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// The number of elements.
    pub(crate) fn count(&self) -> u64 {
        (self.memory.len() / self.dtype.bytes()) as u64
    }

    /// Its memory and its element type.
    pub(crate) fn into_memory(self) -> (Exported, DType) {
        (self.memory, self.dtype)
    }

    /// The number of elements in each dimension.
    pub(crate) fn shape(&self, py: Python<'_>) -> Vec<usize> {
        self.memory.shape(py)
    }

    /// The format of a buffer's elements; `None` for memory that was exported otherwise.
    pub(crate) fn format(&self) -> Option<&CStr> {
        self.memory.format()
    }

    /// Whether nothing may write it.
    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Whether it has a byte in common with another array.
    pub(crate) fn overlaps(&self, other: &Array) -> bool {
        let (own, other) = (self.addresses(), other.addresses());
        !own.is_empty() && !other.is_empty() && own.start < other.end && other.start < own.end
    }

    /// The addresses of its bytes.
    pub(crate) fn addresses(&self) -> Range<usize> {
        self.memory.addresses()
    }

    /// All its bytes.
    pub(crate) fn whole(&self) -> Range<usize> {
        0..self.memory.len()
    }

    /// Its bytes, to read.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.memory.bytes()
    }

    /// Its bytes, to write.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        debug_assert!(!self.is_read_only, "checked where the call is made");
        self.memory.bytes_mut()
    }
}

/// The refusal of an array that does not export its memory.
fn refused(py: Python<'_>, argument: &'static str, problem: PyErr) -> PyErr {
    let refused = invalid(py, argument, format!("its memory is not exported: {}", problem.value(py)));
    refused.set_cause(py, Some(problem));
    refused
}

/// The element type that the caller gives, for elements of this size.
fn given(py: Python<'_>, argument: &'static str, dtype: DType, bytes: usize) -> PyResult<DType> {
    if dtype.bytes() == bytes {
        return Ok(dtype);
    }
    let problem = format!("dtype {dtype} has {} bytes, but the array's elements have {bytes}", dtype.bytes());
    Err(invalid(py, argument, problem))
}

/// Whether its library promises that an array never changes, which no export says.
pub(crate) fn is_immutable(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let module = object.get_type().module()?;
    Ok(module.to_str()?.split('.').next().is_some_and(|name| name.starts_with("jax")))
}

/// The newest form of capsules, as an exporter is asked for it.
fn versions(py: Python<'_>) -> PyResult<&Bound<'_, PyDict>> {
    static VERSIONS: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let load = || -> PyResult<Py<PyDict>> {
        let versions = PyDict::new(py);
        versions.set_item("max_version", VERSION_MAX)?;
        Ok(versions.unbind())
    };
    Ok(VERSIONS.get_or_try_init(py, load)?.bind(py))
}

/// The element type of a tensor's type.
fn of_dlpack(own: DlDataType) -> Result<DType, String> {
    let DlDataType { code, bits, lanes } = own;
    let found = match (code, bits, lanes) {
        (0, 8, 1) => Some(DType::I8),
        (0, 16, 1) => Some(DType::I16),
        (0, 32, 1) => Some(DType::I32),
        (0, 64, 1) => Some(DType::I64),
        (1, 8, 1) => Some(DType::U8),
        (1, 16, 1) => Some(DType::U16),
        (1, 32, 1) => Some(DType::U32),
        (1, 64, 1) => Some(DType::U64),
        (2, 16, 1) => Some(DType::F16),
        (2, 32, 1) => Some(DType::F32),
        (2, 64, 1) => Some(DType::F64),
        (4, 16, 1) => Some(DType::BF16),
        (5, 64, 1) => Some(DType::Complex64),
        (5, 128, 1) => Some(DType::Complex128),
        (6, 8, 1) => Some(DType::Bool),
        // kDLFloat8_e4m3fn and kDLFloat8_e5m2.
        (10, 8, 1) => Some(DType::F8E4M3),
        (12, 8, 1) => Some(DType::F8E5M2),
        _ => None,
    };
    found.ok_or_else(|| {
        format!("DLPack type {code} with {bits} bits and {lanes} lanes is no element type; give dtype=\"opaque:N\"")
    })
}
