//! The calls on Python objects, which travel as pickles. To unpickle is to run code that the sender chose: the ranks of
//! a job trust each other.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyTuple};
use unisono::{Bytes, Collectives, CollectivesOfObjects};

use crate::building::{Argument, Maybe};
use crate::communicator::Communicator;
use crate::interrupt::waiting;
use crate::messages::{Received, peer};

/// The newest protocol of pickles that Python 3.11 writes and reads.
const PROTOCOL: u8 = 5;

fn pickled(object: Argument<'_, '_>) -> PyResult<Bytes> {
    static DUMPS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let pickle = DUMPS.import(object.py(), "pickle", "dumps")?.call1((object, PROTOCOL))?;
    Ok(Bytes::copy_from_slice(pickle.cast::<PyBytes>()?.as_bytes()))
}

fn unpickled(py: Python<'_>, pickle: &[u8]) -> PyResult<Py<PyAny>> {
    static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    Ok(LOADS.import(py, "pickle", "loads")?.call1((PyBytes::new(py, pickle),))?.unbind())
}

#[pymethods]
impl Communicator {
    /// The root's object, on every rank; the other ranks' argument is not looked at.
    #[pyo3(signature = (object = None, root = 0))]
    fn broadcast_object(&self, py: Python<'_>, object: Maybe<'_, '_>, root: u32) -> PyResult<Py<PyAny>> {
        let is_root = self.inner.rank() == root;
        // `None` is an object too.
        let own = match (is_root, object) {
            (true, Some(object)) => Some(pickled(object)?),
            (true, None) => Some(pickled(&py.None().into_bound(py))?),
            (false, _) => None,
        };
        let (at, options) = (self.at(py), self.options);
        let bytes = waiting(py, || at.with(options).broadcast_object(own, root))?;
        unpickled(py, &bytes)
    }

    /// The objects of all ranks, in rank order.
    fn all_gather_object(&self, py: Python<'_>, object: Argument<'_, '_>) -> PyResult<Vec<Py<PyAny>>> {
        let own = pickled(object)?;
        let (at, options) = (self.at(py), self.options);
        let all = waiting(py, || at.with(options).all_gather_object(own))?;
        all.iter().map(|bytes| unpickled(py, bytes)).collect()
    }

    /// The objects of all ranks in rank order on the root, `None` elsewhere.
    #[pyo3(signature = (object, root = 0))]
    fn gather_object(
        &self,
        py: Python<'_>,
        object: Argument<'_, '_>,
        root: u32,
    ) -> PyResult<Option<Vec<Py<PyAny>>>> {
        let own = pickled(object)?;
        let (at, options) = (self.at(py), self.options);
        let all = waiting(py, || at.with(options).gather_object(own, root))?;
        all.map(|all| all.iter().map(|bytes| unpickled(py, bytes)).collect()).transpose()
    }

    /// The object that the root has for this rank: the root gives one for each rank.
    #[pyo3(signature = (objects = None, root = 0))]
    fn scatter_object(&self, py: Python<'_>, objects: Maybe<'_, '_>, root: u32) -> PyResult<Py<PyAny>> {
        let own = match objects.filter(|_| self.inner.rank() == root) {
            Some(objects) => {
                let all: PyResult<Vec<Bytes>> = objects.try_iter()?.map(|object| pickled(&object?)).collect();
                Some(all?)
            }
            None => None,
        };
        let (at, options) = (self.at(py), self.options);
        let bytes = waiting(py, || at.with(options).scatter_object(own, root))?;
        unpickled(py, &bytes)
    }

    /// Sends an object as one message.
    #[pyo3(signature = (object, destination, tag = 0))]
    fn send_object(
        &self,
        py: Python<'_>,
        object: Argument<'_, '_>,
        destination: Argument<'_, '_>,
        tag: u32,
    ) -> PyResult<()> {
        let (own, destination) = (pickled(object)?, peer(destination, "destination")?);
        let (at, options) = (self.at(py), self.options);
        waiting(py, || at.with(options).send_object(own, destination, tag))
    }

    /// Receives the next object of `source` with `tag`, both of which may be `ANY`: the object, and its sender and tag.
    #[pyo3(signature = (source, tag = None))]
    fn recv_object<'py>(
        &self,
        py: Python<'py>,
        source: Argument<'_, '_>,
        tag: Maybe<'_, '_>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let (source, tagged) = (peer(source, "source")?, crate::messages::tag(tag)?);
        let (at, options) = (self.at(py), self.options);
        let received = waiting(py, || at.with(options).recv_object::<Bytes>(source, tagged))?;
        let (bytes, unisono::Received { source, tag, count }) = received;
        let told = Py::new(py, Received::new(source, tag, count as u64, unisono::DType::U8))?;
        (unpickled(py, &bytes)?, told).into_pyobject(py)
    }
}
