//! Reads of foreign memory that PyO3 has no safe form for: memory of arrays, by the buffer protocol, by numpy and by
//! DLPack, for calls that are made and calls that are started; and the frame that runs. The one file with `unsafe`.

#![expect(unsafe_code, reason = "memory of Python objects by its address, and frames")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
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
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyDict, PyType};
use unisono::call::OwnedBuffer;
use unisono::{DType, Work};

use crate::dtypes::of_numpy;
use crate::exit::Kept;

/// A frame of Python.
pub(crate) struct Frame<'py>(Bound<'py, PyAny>);

impl<'py> Frame<'py> {
    /// The frame that runs on this thread, if one does.
    pub(crate) fn current(py: Python<'py>) -> Option<Frame<'py>> {
        // SAFETY: the interpreter is attached, whose thread lends the frame; the value has a reference of its own.
        let frame = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetFrame().cast()) };
        frame.map(Frame)
    }

    /// The frame that called this one, if one did.
    pub(crate) fn back(&self) -> PyResult<Option<Frame<'py>>> {
        let back = self.0.getattr(intern!(self.0.py(), "f_back"))?;
        Ok((!back.is_none()).then_some(Frame(back)))
    }

    /// Its code object.
    pub(crate) fn code(&self) -> Bound<'py, PyAny> {
        // SAFETY: the interpreter is attached, and the value is a frame; every frame has code, and gives a reference.
        unsafe { Bound::from_owned_ptr(self.0.py(), ffi::PyFrame_GetCode(self.0.as_ptr().cast()).cast()) }
    }

    /// The number of the instruction that runs, in its code.
    pub(crate) fn instruction(&self) -> PyResult<i32> {
        self.0.getattr(intern!(self.0.py(), "f_lasti"))?.extract()
    }

    /// The line of the instruction, found by a walk through the code's table of lines; 0 for one in no line.
    pub(crate) fn line(&self) -> u32 {
        // SAFETY: the interpreter is attached, and the value is a frame.
        let line = unsafe { ffi::PyFrame_GetLineNumber(self.0.as_ptr().cast()) };
        u32::try_from(line).unwrap_or(0)
    }
}

/// Memory that a Python object exports. Its exporter keeps it where it is as long as this value lives: it may neither
/// free nor resize it.
pub(crate) struct Exported {
    by: Exporter,
    start: NonNull<u8>,
    bytes: usize,
}

/// The number of an array, and a part of its bytes.
pub(crate) type Piece = (usize, Range<usize>);

/// The value that keeps the memory.
enum Exporter {
    Buffer(PyUntypedBuffer),
    /// An array of numpy, of exactly this type.
    Numpy(Py<PyAny>),
    Tensor(Box<Tensor>),
}

// SAFETY: the address belongs to the exporter, which may move to another thread; the bytes are used by one call.
unsafe impl Send for Exported {}
// SAFETY: through a shared reference the bytes are only read.
unsafe impl Sync for Exported {}

/// Whether an object has the buffer protocol.
pub(crate) fn has_buffer(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the interpreter is attached, and the object is borrowed.
    unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) != 0 }
}

impl Exported {
    /// The memory of a plain array of numpy, its element type, and whether it is read-only: read where it stands, which
    /// takes a tenth of the time of the buffer protocol. `None` for every other object, and for arrays that this
    /// protocol may refuse. As behind the protocol, the reference to the array keeps its memory in place.
    pub(crate) fn by_numpy(object: &Bound<'_, PyAny>) -> Option<(Exported, DType, bool)> {
        let py = object.py();
        if !object.get_type().is(numpy_array_type(py)?) {
            return None;
        }
        // SAFETY: the object is of this type, whose layout was checked when the type was found. The interpreter is
        // attached, so that no other thread changes the array.
        let array = unsafe { object.as_ptr().cast::<NumpyArray>().as_ref() }?;
        // SAFETY: every array has an element type.
        let element = unsafe { &*array.element };
        let is_native = matches!(element.byte_order as u8, b'=' | b'|');
        if !is_native || array.flags & NUMPY_PLAIN != NUMPY_PLAIN || array.flags & NUMPY_WARNS != 0 {
            return None;
        }
        let dtype = of_numpy(element.number)?;
        let count: usize = array.shape().iter().map(|&length| length as usize).product();
        let start = NonNull::new(array.data).unwrap_or(NonNull::dangling());
        let exported =
            Exported { by: Exporter::Numpy(object.clone().unbind()), start, bytes: count * dtype.bytes() };
        Some((exported, dtype, array.flags & NUMPY_WRITEABLE == 0))
    }

    /// The memory of a buffer.
    ///
    /// # Errors
    /// The words for memory that is not contiguous.
    pub(crate) fn by_buffer(buffer: PyUntypedBuffer) -> Result<Exported, String> {
        if !buffer.is_c_contiguous() {
            return Err(strided(buffer.shape(), buffer.strides()));
        }
        let start = NonNull::new(buffer.buf_ptr().cast()).unwrap_or(NonNull::dangling());
        let bytes = buffer.len_bytes();
        Ok(Exported { by: Exporter::Buffer(buffer), start, bytes })
    }

    /// The memory of a tensor.
    ///
    /// # Errors
    /// The words for memory that is not contiguous or not on the host.
    pub(crate) fn by_tensor(tensor: Tensor) -> Result<Exported, String> {
        let bytes = tensor.contiguous()?;
        let offset = usize::try_from(tensor.raw.byte_offset).unwrap_or(0);
        let start = tensor.raw.data.cast::<u8>().wrapping_add(offset);
        let start = NonNull::new(start).unwrap_or(NonNull::dangling());
        Ok(Exported { by: Exporter::Tensor(Box::new(tensor)), start, bytes })
    }

    /// The number of elements in each dimension.
    pub(crate) fn shape(&self, _py: Python<'_>) -> Vec<usize> {
        match &self.by {
            Exporter::Buffer(buffer) => buffer.shape().to_vec(),
            Exporter::Numpy(array) => {
                // SAFETY: as in `by_numpy`.
                let array = unsafe { &*array.as_ptr().cast::<NumpyArray>() };
                array.shape().iter().map(|&length| length as usize).collect()
            }
            Exporter::Tensor(tensor) => tensor.shape().iter().map(|&length| length as usize).collect(),
        }
    }

    /// The format of a buffer's elements.
    pub(crate) fn format(&self) -> Option<&CStr> {
        match &self.by {
            Exporter::Buffer(buffer) => Some(buffer.format()),
            Exporter::Numpy(_) | Exporter::Tensor(_) => None,
        }
    }

    /// The number of its bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// The addresses of its bytes.
    pub(crate) fn addresses(&self) -> Range<usize> {
        self.start.addr().get()..self.start.addr().get() + self.bytes
    }

    /// Its bytes, to read. Another thread of the program that writes them meanwhile breaks the promise of every call on
    /// an array, as with numpy's own functions.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the exporter keeps the bytes in place, contiguous and initialized, as long as this value lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// Its bytes, to write.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`. `Request` refuses memory that is read-only, and arrays of a call that overlap.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// A part of its memory for a started call, which has no other part with the same bytes.
    ///
    /// # Safety
    /// The value lives until the call has ended.
    unsafe fn lend(&self, part: Range<usize>, dtype: DType) -> unisono::Result<OwnedBuffer> {
        let Range { start, end } = part.start.min(self.bytes)..part.end.min(self.bytes);
        // SAFETY: the exporter keeps the bytes in place as long as this value lives. `Request` refuses overlaps.
        unsafe { OwnedBuffer::lent(self.start.as_ptr().add(start), end.saturating_sub(start), dtype) }
    }
}

/// The flags of numpy's arrays: C-contiguous and aligned; writeable; writeable with a warning.
const NUMPY_PLAIN: c_int = 0x101;
const NUMPY_WRITEABLE: c_int = 0x400;
const NUMPY_WARNS: c_int = c_int::MIN;

/// The versions of numpy's binary interface in which arrays begin as below: of numpy 1 and 2.
const NUMPY_INTERFACES: [c_uint; 2] = [0x0100_0009, 0x0200_0000];

/// The beginning of `PyArrayObject_fields` of ndarraytypes.h, which extension modules read in place.
#[repr(C)]
struct NumpyArray {
    head: ffi::PyObject,
    data: *mut u8,
    dimensions: c_int,
    shape: *const isize,
    strides: *const isize,
    base: *mut ffi::PyObject,
    element: *const NumpyElement,
    flags: c_int,
}

/// The beginning of `PyArray_Descr`.
#[repr(C)]
struct NumpyElement {
    head: ffi::PyObject,
    scalar: *mut ffi::PyTypeObject,
    kind: c_char,
    letter: c_char,
    byte_order: c_char,
    former_flags: c_char,
    number: c_int,
}

impl NumpyArray {
    fn shape(&self) -> &[isize] {
        match usize::try_from(self.dimensions) {
            Err(_) | Ok(0) => &[],
            // SAFETY: an array has a length for each dimension.
            Ok(dimensions) => unsafe { std::slice::from_raw_parts(self.shape, dimensions) },
        }
    }
}

/// `numpy.ndarray`, if the program has imported numpy, and its arrays begin as above.
fn numpy_array_type(py: Python<'_>) -> Option<&Bound<'_, PyType>> {
    static ARRAY: PyOnceLock<Option<Py<PyType>>> = PyOnceLock::new();
    static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let found = match ARRAY.get(py) {
        Some(found) => found,
        None => {
            let modules = MODULES.import(py, "sys", "modules").ok()?;
            let numpy = modules.get_item(intern!(py, "numpy")).ok()??;
            ARRAY.get_or_init(py, || checked_array_type(&numpy).ok().flatten())
        }
    };
    found.as_ref().map(|found| found.bind(py))
}

fn checked_array_type(numpy: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyType>>> {
    let interface = numpy.py().import("numpy._core._multiarray_umath")?.getattr("_ARRAY_API")?;
    let interface = interface.cast_into::<PyCapsule>()?.pointer_checked(None)?;
    // SAFETY: the capsule holds numpy's table of functions, of which the first one gives the version in all versions.
    let version = unsafe { (*interface.as_ptr().cast::<extern "C" fn() -> c_uint>())() };
    let found = numpy.getattr("ndarray")?.cast_into::<PyType>()?;
    Ok(NUMPY_INTERFACES.contains(&version).then(|| found.unbind()))
}

/// The words for memory whose elements lie apart.
fn strided(shape: &[usize], strides: &[isize]) -> String {
    format!(
        "its elements do not follow each other (shape {shape:?}, strides {strides:?}); \
         numpy.ascontiguousarray(array) gives a copy whose elements do"
    )
}

/// No elements of this type.
pub(crate) fn empty(dtype: DType) -> unisono::Result<OwnedBuffer> {
    // SAFETY: nothing is ever read or written.
    unsafe { OwnedBuffer::lent(std::ptr::null_mut(), 0, dtype) }
}

/// A call that was started, and the memory of its arrays, which it keeps until the call has ended.
pub(crate) struct Started {
    work: Work,
    arrays: Mutex<Vec<(Exported, DType)>>,
}

impl Started {
    /// Starts a call on these pieces of arrays; `start` gets a buffer for each.
    pub(crate) fn new(
        py: Python<'_>,
        arrays: Vec<(Exported, DType)>,
        pieces: Vec<Piece>,
        start: impl FnOnce(Vec<OwnedBuffer>) -> Work + Send,
    ) -> unisono::Result<Started> {
        let lend = |(array, part): Piece| {
            let (memory, dtype) = &arrays[array];
            // SAFETY: the value below keeps the memory until its call has ended.
            unsafe { memory.lend(part, *dtype) }
        };
        let lent = pieces.into_iter().map(lend).collect::<unisono::Result<Vec<_>>>()?;
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

    fn take(&self) -> Vec<(Exported, DType)> {
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

/// The newest form of capsules that is understood.
const VERSION: DlPackVersion = DlPackVersion { major: 1, minor: 0 };

/// The same for an exporter: its major and its minor number.
pub(crate) const VERSION_MAX: (u32, u32) = (VERSION.major, VERSION.minor);

/// The flag of a tensor that nobody may write.
const READ_ONLY: u64 = 1;

/// `kDLCPU` and `kDLCUDAHost`, the memory of the host.
const HOST_DEVICES: [i32; 2] = [1, 3];

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
    data: *mut c_void,
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
pub(crate) struct DlDataType {
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
}

/// The beginning of `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    version: DlPackVersion,
    manager: *mut c_void,
    deleter: *mut c_void,
    flags: u64,
    tensor: DlTensor,
}

/// A tensor of DLPack.
pub(crate) struct Tensor {
    /// Owns the tensor until somebody takes it out, and nobody does.
    _capsule: Py<PyCapsule>,
    raw: DlTensor,
    flags: u64,
}

impl Tensor {
    /// The tensor in a capsule.
    pub(crate) fn new(capsule: Bound<'_, PyCapsule>) -> PyResult<Tensor> {
        const UNVERSIONED: &CStr = c_str!("dltensor");
        const VERSIONED: &CStr = c_str!("dltensor_versioned");
        let (raw, flags) = if capsule.is_valid_checked(Some(VERSIONED)) {
            let pointer = capsule.pointer_checked(Some(VERSIONED))?.cast::<Versioned>();
            // SAFETY: a capsule of this name holds such a tensor, whose beginning is the same in all versions of
            // dlpack.h.
            let version = unsafe { (*pointer.as_ptr()).version };
            if version.major != VERSION.major {
                let text =
                    format!("a tensor of DLPack {}.{}, not {}", version.major, version.minor, VERSION.major);
                return Err(PyTypeError::new_err(text));
            }
            // SAFETY: as above; the rest is the same in all versions with this major number.
            unsafe { ((*pointer.as_ptr()).tensor, (*pointer.as_ptr()).flags) }
        } else {
            let pointer = capsule.pointer_checked(Some(UNVERSIONED))?.cast::<DlTensor>();
            // SAFETY: a capsule of this name holds a `DLManagedTensor`, which begins with its tensor.
            (unsafe { *pointer.as_ptr() }, 0)
        };
        Ok(Tensor { _capsule: capsule.unbind(), raw, flags })
    }

    /// The type of its elements.
    pub(crate) fn dtype(&self) -> DlDataType {
        self.raw.dtype
    }

    /// Whether nobody may write it.
    pub(crate) fn is_read_only(&self) -> bool {
        self.flags & READ_ONLY != 0
    }

    /// The number of elements in each dimension.
    fn shape(&self) -> &[i64] {
        self.list(self.raw.shape)
    }

    /// A list with an entry for each dimension.
    fn list(&self, start: *const i64) -> &[i64] {
        match usize::try_from(self.raw.ndim) {
            Err(_) | Ok(0) => &[],
            // SAFETY: a tensor's lists have an entry for each dimension, as long as its capsule lives.
            Ok(dimensions) => unsafe { std::slice::from_raw_parts(start, dimensions) },
        }
    }

    /// Its size in bytes.
    fn contiguous(&self) -> Result<usize, String> {
        let DlTensor { device_type, device_id, data, strides, .. } = self.raw;
        if !HOST_DEVICES.contains(&device_type) {
            let device = format!("device {device_id} of type {device_type}");
            return Err(format!("its memory is on {device} of DLPack, not on the host"));
        }
        let (shape, dtype) = (self.shape(), self.raw.dtype);
        let element = usize::from(dtype.bits).div_ceil(8) * usize::from(dtype.lanes);
        let size = shape.iter().try_fold(element, |bytes, &length| {
            usize::try_from(length).ok().and_then(|length| bytes.checked_mul(length))
        });
        let is_memory = |&bytes: &usize| isize::try_from(bytes).is_ok() && (bytes == 0 || !data.is_null());
        let Some(bytes) = size.filter(is_memory) else {
            return Err(format!("a tensor of DLPack with shape {shape:?} at {data:?} is no memory"));
        };
        if !strides.is_null() && bytes > 0 {
            let strides = self.list(strides);
            let mut next = 1;
            for (&length, &stride) in shape.iter().zip(strides).rev() {
                if length > 1 && stride != next {
                    let lengths: Vec<usize> = shape.iter().map(|&length| length as usize).collect();
                    let strides: Vec<isize> = strides.iter().map(|&stride| stride as isize).collect();
                    return Err(strided(&lengths, &strides));
                }
                next *= length;
            }
        }
        Ok(bytes)
    }
}
