//! Arrays of Python programs as memory of calls: by the buffer protocol, else by DLPack. The one file with `unsafe`.

#![expect(unsafe_code, reason = "memory of Python objects, by its address")]

use std::ffi::CStr;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::ffi::c_str;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyDict};
use unisono::call::OwnedBuffer;
use unisono::{DType, Work};

use crate::dtypes::of_format;
use crate::errors::{Raise, invalid};
use crate::exit::Kept;

/// An array that a call reads or writes. Its exporter keeps the memory where it is as long as this value lives: it may
/// neither free nor resize it.
pub(crate) struct Array {
    export: Export,
    start: NonNull<u8>,
    bytes: usize,
    dtype: DType,
    is_read_only: bool,
}

/// The number of an array, and a part of its bytes.
pub(crate) type Piece = (usize, Range<usize>);

/// The object that keeps the memory.
enum Export {
    Buffer(PyUntypedBuffer),
    /// The capsule owns the tensor until somebody takes it out, and nobody does.
    DlPack {
        _capsule: Py<PyCapsule>,
        tensor: DlTensor,
    },
}

// SAFETY: the address belongs to the export, which may move to another thread; the bytes are used by one call.
unsafe impl Send for Array {}
// SAFETY: through a shared reference the bytes are only read.
unsafe impl Sync for Array {}

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
        // SAFETY: the interpreter is attached, and the object is borrowed.
        let has_buffer = unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } != 0;
        if !has_buffer {
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
        if !buffer.is_c_contiguous() {
            return Err(strided(py, argument, buffer.shape(), buffer.strides()));
        }
        let own = of_format(buffer.format(), buffer.item_size());
        let dtype = match dtype {
            Some(dtype) => given(py, argument, dtype, buffer.item_size())?,
            None => own.map_err(|problem| invalid(py, argument, problem))?,
        };
        let start = NonNull::new(buffer.buf_ptr().cast()).unwrap_or(NonNull::dangling());
        let (bytes, is_read_only) = (buffer.len_bytes(), buffer.readonly());
        Ok(Array { export: Export::Buffer(buffer), start, bytes, dtype, is_read_only })
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
        let capsule = capsule.cast_into::<PyCapsule>()?;
        let (tensor, flags) = tensor_of(&capsule)?;
        let bytes = tensor.contiguous(py, argument)?;
        let own = tensor.dtype(py, argument);
        let dtype = match dtype {
            Some(dtype) => given(py, argument, dtype, usize::from(tensor.dtype.bits) / 8)?,
            None => own?,
        };
        let offset = usize::try_from(tensor.byte_offset).unwrap_or(0);
        let start =
            NonNull::new(tensor.data.cast::<u8>().wrapping_add(offset)).unwrap_or(NonNull::dangling());
        let is_read_only = flags & READ_ONLY != 0 || is_immutable(object)?;
        let export = Export::DlPack { _capsule: capsule.unbind(), tensor };
        Ok(Array { export, start, bytes, dtype, is_read_only })
    }

    /// The element type.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// The number of elements.
    pub(crate) fn count(&self) -> u64 {
        (self.bytes / self.dtype.bytes()) as u64
    }

    /// The number of elements in each dimension.
    pub(crate) fn shape(&self) -> Vec<usize> {
        match &self.export {
            Export::Buffer(buffer) => buffer.shape().to_vec(),
            Export::DlPack { tensor, .. } => tensor.shape().iter().map(|&length| length as usize).collect(),
        }
    }

    /// The format of a buffer's elements; `None` for a tensor.
    pub(crate) fn format(&self) -> Option<&CStr> {
        match &self.export {
            Export::Buffer(buffer) => Some(buffer.format()),
            Export::DlPack { .. } => None,
        }
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
        self.start.addr().get()..self.start.addr().get() + self.bytes
    }

    /// All its bytes.
    pub(crate) fn whole(&self) -> Range<usize> {
        0..self.bytes
    }

    /// Its bytes, to read. Another thread of the program that writes them meanwhile breaks the promise of every call on
    /// an array, as with numpy's own functions.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the export keeps the bytes in place, contiguous and initialized, as long as this value lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// Its bytes, to write.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        debug_assert!(!self.is_read_only, "checked where the call is made");
        // SAFETY: as for `bytes`. `Request` refuses memory that is read-only, and arrays of a call that overlap.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// A part of its memory for a started call, which has no other part with the same bytes.
    ///
    /// # Safety
    /// The array lives until the call has ended.
    unsafe fn lend(&self, part: Range<usize>) -> unisono::Result<OwnedBuffer> {
        let Range { start, end } = part.start.min(self.bytes)..part.end.min(self.bytes);
        // SAFETY: the export keeps the bytes in place as long as this value lives. `Request` refuses overlaps.
        unsafe { OwnedBuffer::lent(self.start.as_ptr().add(start), end.saturating_sub(start), self.dtype) }
    }
}

/// No elements of this type.
pub(crate) fn empty(py: Python<'_>, dtype: DType) -> PyResult<OwnedBuffer> {
    // SAFETY: nothing is ever read or written.
    unsafe { OwnedBuffer::lent(std::ptr::null_mut(), 0, dtype) }.raise(py)
}

/// A call that was started, and its arrays, which it keeps until the call has ended.
pub(crate) struct Started {
    work: Work,
    arrays: Mutex<Vec<Array>>,
}

impl Started {
    /// Starts a call on these pieces of arrays; `start` gets a buffer for each.
    pub(crate) fn new(
        py: Python<'_>,
        arrays: Vec<Array>,
        pieces: Vec<Piece>,
        start: impl FnOnce(Vec<OwnedBuffer>) -> Work + Send,
    ) -> PyResult<Started> {
        // SAFETY: the value below keeps the arrays until its call has ended.
        let lend = |(array, part): Piece| unsafe { arrays[array].lend(part) };
        let lent: unisono::Result<Vec<_>> = pieces.into_iter().map(lend).collect();
        let lent = lent.raise(py)?;
        let work = py.detach(|| start(lent));
        Ok(Started { work, arrays: Mutex::new(arrays) })
    }

    /// A call that keeps its arrays itself.
    pub(crate) fn without_arrays(work: Work) -> Started {
        Started { work, arrays: Mutex::default() }
    }

    /// The call's handle.
    pub(crate) fn work(&self) -> &Work {
        &self.work
    }

    /// Lets go of the arrays if the call has ended.
    pub(crate) fn release(&self) {
        if self.work.is_done() {
            self.take();
        }
    }

    fn take(&self) -> Vec<Array> {
        std::mem::take(&mut *self.arrays.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let arrays = self.take();
        if !arrays.is_empty() && !self.work.is_done() {
            // The call goes on without its handle.
            let kept = Kept::new(arrays);
            self.work.on_done(move |_| drop(kept));
        }
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

fn strided(py: Python<'_>, argument: &'static str, shape: &[usize], strides: &[isize]) -> PyErr {
    let problem = format!(
        "its elements do not follow each other (shape {shape:?}, strides {strides:?}); \
         numpy.ascontiguousarray(array) gives a copy whose elements do"
    );
    invalid(py, argument, problem)
}

/// Whether its library promises that an array never changes, which no export says.
pub(crate) fn is_immutable(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let module = object.get_type().module()?;
    Ok(module.to_str()?.split('.').next().is_some_and(|name| name.starts_with("jax")))
}

/// The newest form of capsules that is understood.
const VERSION: DlPackVersion = DlPackVersion { major: 1, minor: 0 };

/// The flag of a tensor that nobody may write.
const READ_ONLY: u64 = 1;

/// `kDLCPU` and `kDLCUDAHost`, the memory of the host.
const HOST_DEVICES: [i32; 2] = [1, 3];

/// The newest form of capsules, as an exporter is asked for it.
fn versions(py: Python<'_>) -> PyResult<&Bound<'_, PyDict>> {
    static VERSIONS: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let load = || -> PyResult<Py<PyDict>> {
        let versions = PyDict::new(py);
        versions.set_item("max_version", (VERSION.major, VERSION.minor))?;
        Ok(versions.unbind())
    };
    Ok(VERSIONS.get_or_try_init(py, load)?.bind(py))
}

#[derive(Clone, Copy)]
#[repr(C)]
struct DlPackVersion {
    major: u32,
    minor: u32,
}

/// `DLTensor` of dlpack.h.
#[derive(Clone, Copy)]
#[repr(C)]
struct DlTensor {
    data: *mut std::ffi::c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    dtype: DlDataType,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// `DLDataType`: kind, bits of an element, elements of a vector.
#[derive(Clone, Copy)]
#[repr(C)]
struct DlDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// The beginning of `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    version: DlPackVersion,
    manager: *mut std::ffi::c_void,
    deleter: *mut std::ffi::c_void,
    flags: u64,
    tensor: DlTensor,
}

/// The tensor in a capsule, and its flags.
fn tensor_of(capsule: &Bound<'_, PyCapsule>) -> PyResult<(DlTensor, u64)> {
    const UNVERSIONED: &CStr = c_str!("dltensor");
    const VERSIONED: &CStr = c_str!("dltensor_versioned");
    if capsule.is_valid_checked(Some(VERSIONED)) {
        let pointer = capsule.pointer_checked(Some(VERSIONED))?.cast::<Versioned>();
        // SAFETY: a capsule of this name holds such a tensor, whose beginning is the same in all versions of dlpack.h.
        let version = unsafe { (*pointer.as_ptr()).version };
        if version.major != VERSION.major {
            let text =
                format!("a tensor of DLPack {}.{}, not {}", version.major, version.minor, VERSION.major);
            return Err(PyTypeError::new_err(text));
        }
        // SAFETY: as above; the rest is the same in all versions with this major number.
        return Ok(unsafe { ((*pointer.as_ptr()).tensor, (*pointer.as_ptr()).flags) });
    }
    let pointer = capsule.pointer_checked(Some(UNVERSIONED))?.cast::<DlTensor>();
    // SAFETY: a capsule of this name holds a `DLManagedTensor`, which begins with its tensor.
    Ok((unsafe { *pointer.as_ptr() }, 0))
}

impl DlTensor {
    /// The number of elements in each dimension.
    fn shape(&self) -> &[i64] {
        self.list(self.shape)
    }

    /// A list with an entry for each dimension.
    fn list(&self, start: *const i64) -> &[i64] {
        match usize::try_from(self.ndim) {
            Err(_) | Ok(0) => &[],
            // SAFETY: a tensor's lists have an entry for each dimension, as long as its capsule lives.
            Ok(dimensions) => unsafe { std::slice::from_raw_parts(start, dimensions) },
        }
    }

    /// Its size in bytes.
    fn contiguous(&self, py: Python<'_>, argument: &'static str) -> PyResult<usize> {
        if !HOST_DEVICES.contains(&self.device_type) {
            let device = format!("device {} of type {}", self.device_id, self.device_type);
            return Err(invalid(
                py,
                argument,
                format!("its memory is on {device} of DLPack, not on the host"),
            ));
        }
        let shape = self.shape();
        let element = usize::from(self.dtype.bits).div_ceil(8) * usize::from(self.dtype.lanes);
        let size = shape.iter().try_fold(element, |bytes, &length| {
            usize::try_from(length).ok().and_then(|length| bytes.checked_mul(length))
        });
        let is_memory =
            |&bytes: &usize| isize::try_from(bytes).is_ok() && (bytes == 0 || !self.data.is_null());
        let Some(bytes) = size.filter(is_memory) else {
            let problem = format!("a tensor of DLPack with shape {shape:?} at {:?} is no memory", self.data);
            return Err(invalid(py, argument, problem));
        };
        if !self.strides.is_null() && bytes > 0 {
            let strides = self.list(self.strides);
            let mut next = 1;
            for (&length, &stride) in shape.iter().zip(strides).rev() {
                if length > 1 && stride != next {
                    let lengths: Vec<usize> = shape.iter().map(|&length| length as usize).collect();
                    let strides: Vec<isize> = strides.iter().map(|&stride| stride as isize).collect();
                    return Err(strided(py, argument, &lengths, &strides));
                }
                next *= length;
            }
        }
        Ok(bytes)
    }

    fn dtype(&self, py: Python<'_>, argument: &'static str) -> PyResult<DType> {
        let DlDataType { code, bits, lanes } = self.dtype;
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
            let problem = format!(
                "DLPack type {code} with {bits} bits and {lanes} lanes is no element type; give dtype=\"opaque:N\""
            );
            invalid(py, argument, problem)
        })
    }
}
