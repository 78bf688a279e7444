//! A communicator, as Python has it: its facts, its options, its groups, its end.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use pyo3::prelude::*;
use unisono::call::{Call, OwnedCall};
use unisono::extend::calls::{Executor, Life, ParentCall, Site};
use unisono::{
    CallOptions, Collectives, Communicator as _, Determinism, Error, Group, GroupOptions, Outcome, Probed,
    Result, Scope,
};

use crate::interrupt::waiting;
use crate::site::site;
use crate::timeouts::seconds;

/// A group of ranks that communicate: the world, a part of it, or the ranks that are left after a failure.
///
/// >>> even = world.split(world.rank % 2)
/// >>> even.all_reduce(np.array([1.0, 2.0]), un.SUM)
/// array([1., 2.])
/// >>> even.all_gather_object({"rank": even.rank})
/// [{'rank': 0}]
#[pyclass(frozen, subclass, module = "unisono")]
pub(crate) struct Communicator {
    pub(crate) inner: Arc<dyn unisono::Communicator>,
    /// The options of every call.
    pub(crate) options: CallOptions,
}

impl Communicator {
    pub(crate) fn new(inner: Arc<dyn unisono::Communicator>) -> Communicator {
        Communicator { inner, options: CallOptions::new() }
    }

    /// This communicator for calls that the library makes of others: each has the line of the program.
    pub(crate) fn at(&self, py: Python<'_>) -> At {
        At { inner: self.inner.clone(), site: site(py), opened: None }
    }

    pub(crate) fn size_of(&self) -> usize {
        self.inner.size() as usize
    }
}

/// A communicator whose calls are of one line of the program.
#[derive(Clone)]
pub(crate) struct At {
    inner: Arc<dyn unisono::Communicator>,
    site: Site,
    /// Is told when a scope is open.
    opened: Option<Sender<()>>,
}

impl At {
    /// The same, which tells when a scope is open.
    pub(crate) fn that_tells(self, opened: Sender<()>) -> At {
        At { opened: Some(opened), ..self }
    }

    /// The error of `call` with this line: an error that is found before the communicator sees the call names a line of
    /// the library.
    pub(crate) fn named(&self, error: Error, call: &str) -> Error {
        let call = Some(format!("{call}{}", self.site.at()));
        match error {
            Error::InvalidArgument { argument, problem, .. } => {
                Error::InvalidArgument { argument, problem, call }
            }
            Error::Closed { .. } => Error::Closed { call },
            other => other,
        }
    }
}

impl Executor for At {
    fn group(&self) -> &Group {
        self.inner.group()
    }

    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
        call.site = self.site;
        self.inner.execute(call)
    }

    fn submit(&self, call: OwnedCall) -> unisono::Work {
        self.inner.submit(OwnedCall { site: self.site, ..call })
    }

    fn life(&self) -> &dyn Life {
        self
    }
}

impl Life for At {
    fn under(&self) -> Option<&dyn Life> {
        Some(self.inner.life())
    }

    fn exchange(&self, calls: &mut [Call<'_>], results: &mut [Option<Result<Outcome>>]) -> Result<()> {
        calls.iter_mut().for_each(|call| call.site = self.site);
        self.inner.life().exchange(calls, results)
    }

    fn probe(&self, call: &mut Call<'_>, waits: bool) -> Result<Option<Probed>> {
        call.site = self.site;
        self.inner.life().probe(call, waits)
    }

    fn scope(&self, parent: ParentCall, options: &CallOptions) -> Result<Scope> {
        let scope = self.inner.life().scope(ParentCall { site: Some(self.site), ..parent }, options)?;
        if let Some(opened) = &self.opened {
            // Nobody may listen any more.
            let _ = opened.send(());
        }
        Ok(scope.on(Arc::new(At { opened: None, ..self.clone() })))
    }
}

/// The survivors of a failure.
#[pyclass(frozen, module = "unisono", get_all)]
pub(crate) struct Shrunk {
    /// The communicator in which they go on.
    communicator: Py<Communicator>,
    /// The new rank of each old rank; `None` for a failed rank.
    new_ranks: Vec<Option<u32>>,
    /// The number of collectives that every survivor has completed without a gap.
    last_common_call: u64,
}

#[pymethods]
impl Communicator {
    /// This rank's number in the group.
    #[getter]
    fn rank(&self) -> u32 {
        self.inner.rank()
    }

    /// The number of ranks.
    #[getter]
    fn size(&self) -> u32 {
        self.inner.size()
    }

    /// The backend's name.
    #[getter]
    fn backend(&self) -> &'static str {
        self.inner.backend()
    }

    /// This rank's number among the group's ranks on its host.
    #[getter]
    fn local_rank(&self) -> u32 {
        self.inner.group().local_rank()
    }

    /// The number of the group's ranks on this host.
    #[getter]
    fn local_size(&self) -> u32 {
        self.inner.group().local_size()
    }

    /// The host of each rank, as a number.
    #[getter]
    fn hosts(&self) -> Vec<u32> {
        self.inner.group().hosts().to_vec()
    }

    /// The number in the job of each rank of the group. Errors and logs name ranks of the job.
    #[getter]
    fn job_ranks(&self) -> Vec<u32> {
        self.inner.group().job_ranks().iter().map(|rank| rank.get()).collect()
    }

    /// The same communicator, whose calls have these options; the others stay. `timeout` in seconds ends a call as
    /// `Timeout`; ranks compare the `label`, of at most 32 bytes; `algorithm` by its name in `unisono algo list`;
    /// `deterministic`: reductions give the same bits for any length and transport; `queued`: a call waits while
    /// another thread is in one, and all ranks keep the order; `log_name` and `profiled` are for the communication log.
    #[pyo3(signature = (*, timeout = None, label = None, algorithm = None, deterministic = None, queued = None,
                        log_name = None, profiled = None))]
    #[expect(clippy::too_many_arguments, reason = "one for each option")]
    fn with_options(
        &self,
        timeout: Option<f64>,
        label: Option<&str>,
        algorithm: Option<&str>,
        deterministic: Option<bool>,
        queued: Option<bool>,
        log_name: Option<&str>,
        profiled: Option<bool>,
    ) -> PyResult<Communicator> {
        let mut options = CallOptions::new();
        if let Some(timeout) = timeout {
            options = options.timeout(seconds(timeout)?);
        }
        if let Some(label) = label {
            options = options.label(label);
        }
        if let Some(name) = algorithm {
            options = options.algorithm(name);
        }
        if deterministic == Some(true) {
            options.determinism = Determinism::Fixed;
        }
        if queued == Some(true) {
            options = options.queued();
        }
        if let Some(name) = log_name {
            options = options.log_name(name);
        }
        if let Some(profiled) = profiled {
            options = options.profiled(profiled);
        }
        Ok(Communicator { inner: self.inner.clone(), options: options.or(&self.options) })
    }

    /// The groups of ranks that give the same colour, each in the order of the keys, then of the ranks. A rank without
    /// a colour gets `None`. Collective.
    #[pyo3(signature = (colour, key = 0))]
    fn split(&self, py: Python<'_>, colour: Option<u32>, key: i64) -> PyResult<Option<Communicator>> {
        let (at, options) = (self.at(py), self.options);
        let group = waiting(py, || at.with(options).split(colour, key))?;
        Ok(group.map(Communicator::new))
    }

    /// A communicator of some of its ranks, in the order given; `None` on a rank that is not in the list. Every rank of
    /// this communicator makes the call, the members with the same list.
    fn subgroup(&self, py: Python<'_>, ranks: Vec<u32>) -> PyResult<Option<Communicator>> {
        let group = waiting(py, || self.inner.subgroup_with(&ranks, &GroupOptions::new()))?;
        Ok(group.map(Communicator::new))
    }

    /// A second communicator of the same ranks, with its own order of calls. Collective.
    fn duplicate(&self, py: Python<'_>) -> PyResult<Communicator> {
        let inner = waiting(py, || self.inner.duplicate())?;
        Ok(Communicator { inner, options: self.options })
    }

    /// After a failure: agrees with the other survivors on who is left, and gives the communicator in which they go on.
    /// Collective over the survivors.
    fn shrink(&self, py: Python<'_>) -> PyResult<Shrunk> {
        let unisono::Shrunk { communicator, new_ranks, last_common_call } =
            waiting(py, || self.inner.shrink())?;
        let communicator = Py::new(py, Communicator { inner: communicator, options: self.options })?;
        Ok(Shrunk { communicator, new_ranks, last_common_call })
    }

    /// The logical AND of the survivors' flags, the same on all; it works on a revoked communicator.
    fn agree(&self, py: Python<'_>, flag: bool) -> PyResult<bool> {
        waiting(py, || self.inner.agree(flag))
    }

    /// Ends every call on every rank with `Aborted`. Any thread may call it.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        waiting(py, || self.inner.abort())
    }

    /// Waits until all ranks have called it, at most `timeout` seconds. The error names exactly the ranks that have not
    /// come, and revokes nothing.
    fn monitored_barrier(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let timeout: Duration = seconds(timeout)?;
        waiting(py, || self.inner.monitored_barrier(timeout))
    }

    /// Tells the other ranks that this one makes no more calls.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        waiting(py, || self.inner.close())
    }

    fn __enter__(slf: Py<Communicator>) -> Py<Communicator> {
        slf
    }

    /// Closes the communicator; after an exception it aborts it, so that no other rank waits for this one.
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if kind.is_none() {
            return self.close(py);
        }
        // The exception of the block is raised.
        py.detach(|| drop(self.inner.abort()));
        Ok(())
    }

    fn __repr__(slf: &Bound<'_, Communicator>) -> PyResult<String> {
        let own = slf.get();
        let (name, inner) = (slf.get_type().name()?, &own.inner);
        Ok(format!("{name}(rank {} of {}, {})", inner.rank(), inner.size(), inner.backend()))
    }
}
