//! A backend of the suite whose ranks are processes.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use unisono_communicator::{DType, Result};
use unisono_control::secret::Secret;
use unisono_engine::EngineOptions;
use unisono_job::rendezvous::{StoreConfig, StoreHost, store_job};
use unisono_job::secret::create_secret_file;

use super::messages::{CommunicatorInfo, Request, WorldMessage};
use super::pool::{Environment, Lease, Process, Program};
use super::proxy::{Proxy, ProxyGroups};
use crate::backend::{Backend, Job, Member};
use crate::capabilities::{Algorithms, Arithmetic};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a rank may take to drop what it has. One that takes longer is stuck in a library and is replaced.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(30);

/// Ranks that are processes of a program that [`super::serve`]s.
#[derive(Clone, Copy, Debug)]
pub struct Processes {
    /// For messages.
    pub name: &'static str,
    /// The program, such as `env!("CARGO_BIN_EXE_suite_rank")`.
    pub program: &'static str,
    /// Its argument: the backend.
    pub argument: &'static str,
    /// The numbers of ranks that every test runs with.
    pub rank_counts: &'static [u32],
    /// Larger worlds, for a few tests.
    pub large_rank_counts: &'static [u32],
    /// The most ranks of tests that have numbers of their own.
    pub ranks_max: u32,
    /// What calls run by.
    pub algorithms: Algorithms,
    /// The element types that it must reduce; see [`Backend::always_reduces`].
    pub always_reduces: &'static [DType],
    /// What it says of its reductions of floats.
    pub arithmetic: fn() -> Arithmetic,
    /// What they find in their environment besides that of the test; `None` where they cannot run, after
    /// [`crate::skip`].
    pub environment: fn() -> Option<Environment>,
    /// How many worlds may be open at once, in all tests of the test binary.
    pub worlds_max: u32,
}

impl Processes {
    /// A new world, with a way to end its ranks.
    ///
    /// # Panics
    /// When a process or the store cannot be started, and for algorithms from outside, which cannot travel.
    pub fn open_job(&self, ranks: u32, options: &EngineOptions) -> ProcessJob {
        assert!(options.register.is_empty(), "algorithms from outside cannot travel to a process");
        let environment = (self.environment)().expect("a backend that is there");
        let program = Program { path: self.program, argument: self.argument, environment };
        let lease = Lease::take(program, ranks, self.worlds_max);
        let directory = tempfile::tempdir().unwrap();
        let (secret, secret_file) = (Secret::random().unwrap(), directory.path().join("secret"));
        create_secret_file(&secret, &secret_file).unwrap();
        let (store, listen) = start_store(ranks, &secret);
        let world = WorldMessage {
            rank: 0,
            ranks,
            store: listen.to_string(),
            secret_file: secret_file.to_str().unwrap().to_owned(),
            timeout: options.timeout,
            probe_after: options.probe_after,
            piece_bytes: options.piece_bytes,
            skipped: options.skipped,
            algorithm: options.algorithm.map(|name| name.text().unwrap().to_owned()),
        };
        ProcessJob { world, _store: store, _directory: directory, lease }
    }
}

/// The store of a job, and where it listens. The job is named after that, so the port is chosen before the store
/// starts; when another process has taken it meanwhile, another one is.
fn start_store(world_size: u32, secret: &Secret) -> (StoreHost, SocketAddr) {
    const TRIES_MAX: u32 = 16;
    let mut failures = Vec::new();
    for _ in 0..TRIES_MAX {
        let listen = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let (job, handshake_timeout) = (store_job(&listen.to_string()), HANDSHAKE_TIMEOUT);
        let secret = secret.clone();
        match StoreHost::start(StoreConfig { listen, world_size, secret, job, handshake_timeout }) {
            Ok(store) => return (store, listen),
            Err(error) => failures.push(error),
        }
    }
    panic!("no store starts: {failures:?}");
}

impl Backend for Processes {
    fn name(&self) -> &'static str {
        self.name
    }

    fn open(&self, ranks: u32, options: &EngineOptions) -> Box<dyn Job> {
        Box::new(self.open_job(ranks, options))
    }

    fn is_there(&self) -> bool {
        (self.environment)().is_some()
    }

    fn rank_counts(&self) -> &'static [u32] {
        self.rank_counts
    }

    fn large_rank_counts(&self) -> &'static [u32] {
        self.large_rank_counts
    }

    fn ranks_max(&self) -> u32 {
        self.ranks_max
    }

    fn algorithms(&self) -> Algorithms {
        self.algorithms
    }

    fn always_reduces(&self) -> &'static [DType] {
        self.always_reduces
    }

    fn arithmetic(&self) -> Arithmetic {
        (self.arithmetic)()
    }
}

/// A world whose ranks are processes.
pub struct ProcessJob {
    world: WorldMessage,
    _store: StoreHost,
    _directory: TempDir,
    lease: Lease,
}

impl ProcessJob {
    fn process(&self, rank: u32) -> &Arc<Process> {
        &self.lease.processes[rank as usize]
    }

    /// The process id of a rank.
    pub fn pid(&self, rank: u32) -> u32 {
        self.process(rank).remote.pid()
    }

    /// Kills the process of a rank, wherever it is. What the test asks of it from then on fails with a system error.
    pub fn kill(&self, rank: u32) {
        self.process(rank).set_clean(false);
        self.process(rank).kill();
    }

    /// Stops the process of a rank, until [`ProcessJob::resume`]: it hangs.
    pub fn stop(&self, rank: u32) {
        self.process(rank).signal("STOP");
    }

    /// Lets a stopped process go on.
    pub fn resume(&self, rank: u32) {
        self.process(rank).signal("CONT");
    }
}

impl Job for ProcessJob {
    fn join(&self, rank: u32) -> Result<Member> {
        let process = self.process(rank);
        let world = WorldMessage { rank, ..self.world.clone() };
        // Until it has left again.
        process.set_clean(false);
        let keep = Box::new(InWorld(process.clone()));
        let info: CommunicatorInfo = process.remote.result(&Request::Join { world })?;
        let communicator = Proxy::shared(&process.remote, info);
        Ok(Member { communicator, groups: Box::new(ProxyGroups(process.remote.clone())), keep })
    }
}

/// A process that has joined a world. It leaves when this is dropped.
struct InWorld(Arc<Process>);

impl Drop for InWorld {
    fn drop(&mut self) {
        let left = self.0.remote.ask_within(&Request::Leave {}, LEAVE_TIMEOUT);
        self.0.remote.forget();
        self.0.set_clean(left == Some(true));
    }
}
