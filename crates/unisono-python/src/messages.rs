//! The other side of a message, its tag, and the facts of a receive.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use unisono::{DType, Outcome, Peer, Tag};

use crate::errors::invalid;

/// Any source, or any tag.
#[pyclass(frozen, module = "unisono")]
pub(crate) struct Wildcard;

#[pymethods]
impl Wildcard {
    fn __repr__(&self) -> &'static str {
        "unisono.ANY"
    }
}

/// The sender, the tag and the length of a message that was received.
#[pyclass(frozen, module = "unisono", get_all)]
pub(crate) struct Received {
    /// The sender's rank; `None` for a receive from nobody.
    source: Option<u32>,
    /// The message's tag.
    tag: u32,
    /// Elements received; the rest of the buffer is untouched.
    count: u64,
    /// Bytes received.
    nbytes: u64,
}

#[pymethods]
impl Received {
    fn __repr__(&self) -> String {
        let source = self.source.map_or("None".to_owned(), |source| source.to_string());
        format!("Received(source={source}, tag={}, count={})", self.tag, self.count)
    }
}

impl Received {
    pub(crate) fn new(source: Option<u32>, tag: u32, count: u64, dtype: DType) -> Received {
        Received { source, tag, count, nbytes: count * dtype.bytes() as u64 }
    }

    pub(crate) fn of(outcome: &Outcome, dtype: DType) -> Received {
        let Outcome { source, tag, bytes: nbytes, .. } = *outcome;
        Received { source, tag, count: nbytes / dtype.bytes() as u64, nbytes }
    }
}

/// The peer of an argument: a rank, `ANY`, or `None` for nobody.
pub(crate) fn peer(argument: &Bound<'_, PyAny>, name: &'static str) -> PyResult<Peer> {
    if argument.is_none() {
        return Ok(Peer::None);
    }
    match argument.cast::<Wildcard>() {
        Ok(_) => Ok(Peer::Any),
        Err(_) => number(argument, name).map(Peer::Rank),
    }
}

/// The tag of an argument: a number, or `ANY`.
pub(crate) fn tag(argument: Option<&Bound<'_, PyAny>>) -> PyResult<Tag> {
    match argument {
        None => Ok(Tag::Is(0)),
        Some(argument) => match argument.cast::<Wildcard>() {
            Ok(_) => Ok(Tag::Any),
            Err(_) => number(argument, "tag").map(Tag::Is),
        },
    }
}

/// A rank or a tag.
fn number(argument: &Bound<'_, PyAny>, name: &'static str) -> PyResult<u32> {
    let Ok(number) = argument.extract::<i64>() else {
        let kind = argument.get_type().fully_qualified_name()?;
        return Err(PyTypeError::new_err(format!("{name}: {kind}, but it is a number or unisono.ANY")));
    };
    u32::try_from(number).map_err(|_| {
        invalid(argument.py(), name, format!("{number} is not from 0 to {}; any is unisono.ANY", u32::MAX))
    })
}
