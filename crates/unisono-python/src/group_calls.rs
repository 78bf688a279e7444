//! Several calls as one.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use unisono::CollectivesGrouped;
use unisono::extend::calls::{Operation, Site};

use crate::communicator::Communicator;
use crate::errors::invalid;
use crate::interrupt::waiting;
use crate::messages::Received;
use crate::request::{Memory, Request};
use crate::site::site;

/// Calls that a `with` block collects, and makes at its end: messages start together and come first, collectives follow
/// in their order, and no other thread's call comes between. Every rank groups the same collectives. After an exception
/// in the block it makes none. No call of a group uses an array that another one of them writes. A list of arrays in
/// one call travels as one; calls of a group travel one by one.
///
/// >>> first, second, seen = np.ones(3), np.ones(2), np.zeros(1)
/// >>> with world.group_calls() as group:
/// ...     group.all_reduce(first)
/// ...     rows = group.all_gather(second)
/// ...     group.send(second, None)
/// ...     group.recv(seen, None)
/// array([1., 1., 1.])
/// >>> rows.shape, [received.source for received in group.received]
/// ((1, 2), [None])
#[pyclass(frozen, module = "unisono")]
pub(crate) struct GroupCalls {
    comm: Py<Communicator>,
    stage: Mutex<Stage>,
}

enum Stage {
    Open(Vec<(Request, Site)>),
    Over(Vec<Py<Received>>),
}

impl GroupCalls {
    pub(crate) fn communicator(&self) -> &Communicator {
        self.comm.get()
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call, and gives the array of its result.
    pub(crate) fn add(&self, py: Python<'_>, request: Request) -> PyResult<Py<PyAny>> {
        let (array, call) = (request.gives.array(py), (request, site(py)));
        match &mut *self.lock() {
            Stage::Open(calls) => calls.push(call),
            Stage::Over(_) => return Err(over(py)),
        }
        Ok(array)
    }
}

fn over(py: Python<'_>) -> PyErr {
    invalid(py, "group", "its block has ended; group_calls() makes another one")
}

#[pymethods]
impl Communicator {
    /// A block of calls that are made as one, at its end.
    fn group_calls(slf: Py<Communicator>) -> GroupCalls {
        GroupCalls { comm: slf, stage: Mutex::new(Stage::Open(Vec::new())) }
    }
}

#[pymethods]
impl GroupCalls {
    /// The facts of the receives, in their order; after the block.
    #[getter]
    fn received(&self, py: Python<'_>) -> Vec<Py<Received>> {
        match &*self.lock() {
            Stage::Open(_) => Vec::new(),
            Stage::Over(received) => received.iter().map(|one| one.clone_ref(py)).collect(),
        }
    }

    fn __enter__(slf: Py<GroupCalls>) -> Py<GroupCalls> {
        slf
    }

    /// Makes the calls, unless the block ends with an exception.
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let stage = std::mem::replace(&mut *self.lock(), Stage::Over(Vec::new()));
        let mut requests = match stage {
            Stage::Open(requests) if kind.is_none() => requests,
            Stage::Open(_) => return Ok(()),
            Stage::Over(_) => return Err(over(py)),
        };
        Memory::check_all(py, requests.iter().map(|(request, _)| &request.memory))?;
        let types: Vec<_> = requests
            .iter()
            .filter(|(request, _)| request.descriptor.operation == Operation::Recv)
            .map(|(request, _)| request.descriptor.dtype)
            .collect();
        let comm = self.communicator();
        let calls: Vec<_> = requests.iter_mut().map(|(request, site)| request.call(comm, *site)).collect();
        let inner = &*comm.inner;
        let made = || inner.group_calls(|group| calls.into_iter().for_each(|call| group.call(call)));
        let received = waiting(py, made)?;
        let facts =
            received.into_iter().zip(types).map(|(unisono::Received { source, tag, count }, dtype)| {
                Py::new(py, Received::new(source, tag, count as u64, dtype))
            });
        *self.lock() = Stage::Over(facts.collect::<PyResult<_>>()?);
        Ok(())
    }
}
