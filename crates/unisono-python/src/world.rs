//! The world: all ranks of a job, and how a program joins it.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use unisono::comms_log::Stragglers;
use unisono::{Config, GroupOptions, SecondInit};

use crate::communicator::Communicator;
use crate::errors::Raise;
use crate::interrupt::waiting;
use crate::meeting::ProgramsStore;
use crate::site::site;
use crate::store::Store;
use crate::timeouts::seconds;

/// All ranks of the job that this process has joined.
///
/// >>> world.rank, world.size
/// (0, 1)
/// >>> pair = world.make_group("the first rank", [0])
/// >>> pair.close()
#[pyclass(frozen, extends = Communicator, module = "unisono")]
pub(crate) struct World {
    pub(crate) world: unisono::World,
}

impl World {
    fn new(py: Python<'_>, world: unisono::World) -> PyResult<Py<World>> {
        let base = Communicator::new(world.communicator());
        Py::new(py, PyClassInitializer::from(base).add_subclass(World { world }))
    }
}

/// Joins the job that this process was started in, by `unisono run`, mpirun, torchrun or srun; without a launcher it is
/// a world of one. Blocks until all ranks have come, at most `join_timeout` seconds.
///
/// `init_method`, `rank` and `world_size` place this process by hand, as torch's `init_process_group` does. With
/// `store`, an object with `set(key, value)` and `get(key, seconds)`, which gives bytes or `None`, the ranks find each
/// other through it: every process that reads it can join the job, unless the settings have a secret. While a world is
/// open, a second call is refused; with `adopt` it gives the same world, and with `another` all ranks make one more.
/// Settings that are not given come from the environment; `unisono settings` lists them.
#[pyfunction]
#[pyo3(signature = (*, init_method = None, store = None, rank = None, world_size = None, call_timeout = None,
                    join_timeout = None, backend = None, adopt = false, another = false))]
#[expect(clippy::too_many_arguments, reason = "one for each setting")]
pub(crate) fn init(
    py: Python<'_>,
    init_method: Option<&str>,
    store: Option<Py<PyAny>>,
    rank: Option<u32>,
    world_size: Option<u32>,
    call_timeout: Option<f64>,
    join_timeout: Option<f64>,
    backend: Option<&str>,
    adopt: bool,
    another: bool,
) -> PyResult<Py<World>> {
    let mut config = Config::from_environment().raise(py)?.with_site(site(py));
    if let Some(url) = init_method {
        config = config.with_init_method(url).raise(py)?;
    }
    if let Some(store) = store {
        config = config.with_meeting(Arc::new(ProgramsStore::new(store)));
    }
    match (rank, world_size) {
        (Some(rank), Some(size)) => config = config.with_rank(rank, size).raise(py)?,
        (None, None) => {}
        _ => return Err(crate::errors::invalid(py, "rank", "rank and world_size go together")),
    }
    let durations: [Option<Duration>; 2] =
        [call_timeout.map(seconds).transpose()?, join_timeout.map(seconds).transpose()?];
    if let Some(timeout) = durations[0] {
        config = config.with_call_timeout(timeout);
    }
    if let Some(timeout) = durations[1] {
        config = config.with_join_timeout(timeout);
    }
    if let Some(name) = backend {
        let backend = name.parse().map_err(|problem: unisono::extend::tcp::UnknownBackend| {
            crate::errors::invalid(py, "backend", problem.to_string())
        })?;
        config = config.with_backend(backend);
    }
    let second = match (adopt, another) {
        (false, false) => SecondInit::Refuse,
        (true, false) => SecondInit::Adopt,
        (false, true) => SecondInit::Another,
        (true, true) => return Err(crate::errors::invalid(py, "adopt", "does not go with another")),
    };
    config = config.with_second_init(second);
    let world = waiting(py, || unisono::init_with(&config))?;
    World::new(py, world)
}

/// Whether a world of this process is open.
#[pyfunction]
pub(crate) fn is_initialized() -> bool {
    unisono::is_initialized()
}

#[pymethods]
impl World {
    /// A communicator that only its members make: of these ranks of the job, in the order given. The others need not
    /// know of it. A key stands for one list of ranks.
    #[pyo3(signature = (key, ranks, *, timeout = None, label = None, spin = None))]
    fn make_group(
        &self,
        py: Python<'_>,
        key: &str,
        ranks: Vec<u32>,
        timeout: Option<f64>,
        label: Option<&str>,
        spin: Option<f64>,
    ) -> PyResult<Communicator> {
        let mut options = GroupOptions { spin: spin.map(seconds).transpose()?, ..GroupOptions::new() };
        if let Some(timeout) = timeout {
            options = options.timeout(seconds(timeout)?);
        }
        if let Some(label) = label {
            options = options.label(label);
        }
        let group = waiting(py, || self.world.make_group_with(key, &ranks, &options))?;
        Ok(Communicator::new(group))
    }

    /// A key-value store that all ranks share; with `communicator` the store of one of the world's groups.
    #[pyo3(signature = (communicator = None))]
    fn store(&self, communicator: Option<PyRef<'_, Communicator>>) -> Store {
        match communicator {
            Some(communicator) => Store::new(self.world.store_of(&*communicator.inner)),
            None => Store::new(self.world.store()),
        }
    }

    /// The last calls of this rank as JSON, which `unisono doctor --flight` reads from files.
    fn flight_record(&self, py: Python<'_>) -> PyResult<String> {
        let record = waiting(py, || self.world.flight_record())?;
        json(&record)
    }

    /// Records the cost of every call from now on.
    fn start_log(&self) {
        self.world.comms_logger().start();
    }

    /// Records no more calls; earlier records stay.
    fn stop_log(&self) {
        self.world.comms_logger().stop();
    }

    /// The communication log as JSON: operations, sizes, times and bandwidths of this rank's calls.
    fn log_json(&self) -> PyResult<String> {
        json(&self.world.comms_logger().report())
    }

    /// The communication log as a table.
    fn log_table(&self) -> String {
        self.world.comms_logger().report().to_string()
    }

    /// The rank that the others wait for, if one stands out in the last 1,024 collectives that all ranks have recorded,
    /// also of a group: the same report on every rank, as text, or with `json` as JSON. Collective.
    #[pyo3(signature = (communicator = None, *, json = false))]
    fn log_stragglers(
        slf: &Bound<'_, World>,
        communicator: Option<&Bound<'_, Communicator>>,
        json: bool,
    ) -> PyResult<String> {
        let (py, log) = (slf.py(), slf.get().world.comms_logger());
        let comm = &*communicator.unwrap_or_else(|| slf.as_super()).get().inner;
        let report = waiting(py, || log.stragglers(comm))?;
        if json { self::json(&report) } else { Ok(report.to_string()) }
    }
}

fn json(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value)
        .map_err(|problem| pyo3::exceptions::PyValueError::new_err(problem.to_string()))
}
