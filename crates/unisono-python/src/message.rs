//! A message that a probe has found.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use unisono::call::{Descriptor, OwnedBuffers, OwnedCall, OwnedMemory};
use unisono::extend::calls::{GroupRank, Operation};
use unisono::{DType, Error, Outcome, Peer, Probed, Tag};

use crate::arrays::Array;
use crate::dtypes::numpy_name;
use crate::errors::{Raise, exception, invalid};
use crate::foreign::{Started, empty};
use crate::interrupt::waiting;
use crate::messages::Received;
use crate::results::numpy_array;
use crate::site::site;

/// A message that a probe has found: nobody else receives it. Dropped, it goes back to its place.
#[pyclass(frozen, module = "unisono")]
pub(crate) struct Message {
    source: Option<u32>,
    tag: u32,
    dtype: DType,
    bytes: u64,
    /// Until it is received.
    probed: Mutex<Option<Probed>>,
}

impl Message {
    pub(crate) fn new(probed: Probed) -> Message {
        let (source, tag, dtype, bytes) = (probed.source(), probed.tag(), probed.dtype(), probed.bytes());
        Message { source, tag, dtype, bytes, probed: Mutex::new(Some(probed)) }
    }

    fn take(&self, py: Python<'_>) -> PyResult<Probed> {
        let taken = self.probed.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.ok_or_else(|| invalid(py, "message", "it was received already"))
    }

    /// Refuses an array that the message does not fit, before it is taken.
    fn check(&self, py: Python<'_>, out: &Array) -> PyResult<()> {
        if out.is_read_only() {
            return Err(invalid(py, "out", "is read-only"));
        }
        let Some(source) = self.source else { return Ok(()) };
        if out.dtype() != self.dtype {
            let problem = format!("{}, but rank {source} sent {}", out.dtype(), self.dtype);
            return Err(invalid(py, "dtype", problem));
        }
        let room_bytes = out.bytes().len() as u64;
        if self.bytes > room_bytes {
            let (source_rank, tag, sent_bytes) = (GroupRank::new(source), self.tag, self.bytes);
            return Err(exception(py, &Error::Truncated { source_rank, tag, sent_bytes, room_bytes }));
        }
        Ok(())
    }
}

#[pymethods]
impl Message {
    /// The sender's rank; `None` for a probe of nobody.
    #[getter]
    fn source(&self) -> Option<u32> {
        self.source
    }

    /// The message's tag.
    #[getter]
    fn tag(&self) -> u32 {
        self.tag
    }

    /// The type of its elements, such as `f32`.
    #[getter]
    fn dtype(&self) -> String {
        self.dtype.to_string()
    }

    /// The number of its elements.
    #[getter]
    fn count(&self) -> u64 {
        self.bytes / self.dtype.bytes() as u64
    }

    /// Its length in bytes.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.bytes
    }

    /// Receives the message into `out`, which may be longer, or into a new array of numpy. Gives the array.
    #[pyo3(signature = (out = None, *, dtype = None))]
    fn recv<'py>(
        &self,
        py: Python<'py>,
        out: Option<Bound<'py, PyAny>>,
        dtype: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let out = match out {
            Some(out) => out,
            None => match numpy_name(self.dtype) {
                Some(name) => numpy_array(py, self.count() as usize, name)?,
                None => {
                    return Err(invalid(
                        py,
                        "out",
                        format!("missing: numpy has no arrays of {}", self.dtype),
                    ));
                }
            },
        };
        let dtype = match dtype {
            Some(name) => {
                Some(crate::dtypes::of_name(name).map_err(|problem| invalid(py, "dtype", problem))?)
            }
            None => None,
        };
        let room = Array::of(&out, "out", dtype)?;
        self.check(py, &room)?;
        let Some(found) = self.take(py)?.into_found() else { return Ok(out) };
        let count = room.count();
        let descriptor = Descriptor {
            peer: self.source.map(Peer::Rank),
            tag: Tag::Is(self.tag),
            ..Descriptor::new(Operation::Recv, self.dtype, count)
        };
        let (no_input, site) = (empty(self.dtype).raise(py)?, site(py));
        let whole = room.whole();
        let started = Started::new(py, vec![room.into_memory()], vec![(0, whole)], |buffers| {
            let output =
                buffers.into_iter().next().map_or(OwnedMemory::of(Vec::<u8>::new()), OwnedMemory::One);
            let buffers = OwnedBuffers::Separate { input: OwnedMemory::One(no_input), output };
            found.receive(OwnedCall { site, ..OwnedCall::new(descriptor, buffers) })
        });
        let started = started.raise(py)?;
        waiting(py, || started.work().wait())?;
        Ok(out)
    }

    /// The facts of a receive of this message.
    fn received(&self) -> Received {
        Received::of(
            &Outcome { source: self.source, tag: self.tag, ..Outcome::done(self.bytes, "") },
            self.dtype,
        )
    }

    fn __repr__(&self) -> String {
        let source = self.source.map_or("None".to_owned(), |source| source.to_string());
        format!("Message(source={source}, tag={}, {} x {})", self.tag, self.count(), self.dtype)
    }
}
