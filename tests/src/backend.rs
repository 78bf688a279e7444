//! What a backend is to the suite: worlds of any number of ranks, whose ranks are threads of the test.

use std::any::Any;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use unisono_collectives::Solo;
use unisono_communicator::{CallOptions, Communicator, DType, Result};
use unisono_control::handshake::JobId;
use unisono_control::secret::{SECRET_BYTES, Secret};
use unisono_engine::in_process::Groups;
use unisono_engine::{EngineOptions, FaultPlan, Faulty, in_process};
use unisono_job::Listener;
use unisono_job::config::Config;
use unisono_job::job_settings::Checksum;
use unisono_job::rendezvous::Membership;
use unisono_job::transport::Transport;
use unisono_transport_tcp as tcp;

use crate::capabilities::{Algorithms, Arithmetic, COMMON_TYPES};
use crate::late::{LateLinks, Releases};
use crate::sample::mix;

/// Makes worlds.
pub trait Backend: Sync {
    /// For messages.
    fn name(&self) -> &'static str;

    /// Whether its ranks can run on this machine; says so, if not.
    fn is_there(&self) -> bool {
        true
    }

    /// A new world, which `ranks` threads then join.
    fn open(&self, ranks: u32, options: &EngineOptions) -> Box<dyn Job>;

    /// The numbers of ranks that every test runs with.
    fn rank_counts(&self) -> &'static [u32];

    /// Larger worlds, for a few tests.
    fn large_rank_counts(&self) -> &'static [u32] {
        &[16]
    }

    /// The most ranks that a test may run with: a library whose ranks poll is slow where there are more than cores.
    fn ranks_max(&self) -> u32 {
        u32::MAX
    }

    /// Those of these numbers of ranks that are allowed, or else the smallest.
    ///
    /// # Panics
    /// For no numbers.
    fn among(&self, rank_counts: &[u32]) -> Vec<u32> {
        let allowed: Vec<u32> =
            rank_counts.iter().copied().filter(|ranks| *ranks <= self.ranks_max()).collect();
        if allowed.is_empty() { vec![*rank_counts.iter().min().unwrap()] } else { allowed }
    }

    /// What calls run by.
    fn algorithms(&self) -> Algorithms {
        Algorithms::Open
    }

    /// The element types that sum, prod, min and max must take. Others may be refused.
    fn always_reduces(&self) -> &'static [DType] {
        COMMON_TYPES
    }

    /// What it says of its reductions of floats.
    fn arithmetic(&self) -> Arithmetic {
        Arithmetic::ENGINE
    }

    /// Options that force an algorithm of ours, or none where there are none.
    fn forcing(&self, algorithm: &str) -> CallOptions {
        match self.algorithms() {
            Algorithms::Open | Algorithms::BuiltIn | Algorithms::Named => {
                CallOptions::new().algorithm(algorithm)
            }
            Algorithms::None => CallOptions::new(),
        }
    }
}

/// One world in the making.
pub trait Job: Sync {
    /// Joins as `rank`, on that rank's thread.
    ///
    /// # Errors
    /// For wrong options.
    fn join(&self, rank: u32) -> Result<Member>;
}

/// A rank's communicator, and whatever else must live as long.
pub struct Member {
    /// The world's communicator.
    pub communicator: Arc<dyn Communicator>,
    /// Makes groups with members only.
    pub groups: Box<dyn MakeGroup>,
    /// Dropped after the communicator.
    pub keep: Box<dyn Any>,
}

/// A rank's way to groups that only their members make.
pub trait MakeGroup: Send + Sync {
    /// The group of these ranks of the job.
    ///
    /// # Errors
    /// For wrong lists.
    fn make_group(&self, key: &str, ranks: &[u32]) -> Result<Arc<dyn Communicator>>;
}

impl MakeGroup for Groups {
    fn make_group(&self, key: &str, ranks: &[u32]) -> Result<Arc<dyn Communicator>> {
        Groups::make_group(self, key, ranks)
    }
}

impl MakeGroup for unisono_job::Job {
    fn make_group(&self, key: &str, ranks: &[u32]) -> Result<Arc<dyn Communicator>> {
        unisono_job::Job::make_group(self, key, ranks)
    }
}

/// Ranks as threads that talk through memory.
pub struct InProcess;

impl Backend for InProcess {
    fn name(&self) -> &'static str {
        "in_process"
    }

    fn open(&self, ranks: u32, options: &EngineOptions) -> Box<dyn Job> {
        InProcessJob::boxed(in_process::world_of_groups(ranks, options, |_, links| links))
    }

    fn rank_counts(&self) -> &'static [u32] {
        &[1, 2, 3, 4, 5, 6, 7, 8]
    }

    fn large_rank_counts(&self) -> &'static [u32] {
        &[16, 33, 64]
    }
}

/// [`InProcess`] over links that misbehave: few bytes at a time, and not always ready.
pub struct FaultyInProcess(pub FaultPlan);

impl Backend for FaultyInProcess {
    fn name(&self) -> &'static str {
        "faulty in_process"
    }

    fn open(&self, ranks: u32, options: &EngineOptions) -> Box<dyn Job> {
        let plan = |rank| FaultPlan { seed: mix(self.0.seed ^ mix(u64::from(rank))), ..self.0 };
        InProcessJob::boxed(in_process::world_of_groups(ranks, options, |rank, links| {
            Faulty::new(links, plan(rank))
        }))
    }

    fn rank_counts(&self) -> &'static [u32] {
        &[1, 2, 3, 5, 8]
    }
}

/// [`InProcess`] over links that release bytes late.
pub struct LateInProcess;

impl Backend for LateInProcess {
    fn name(&self) -> &'static str {
        "late in_process"
    }

    fn open(&self, ranks: u32, options: &EngineOptions) -> Box<dyn Job> {
        let releases = Releases::default();
        InProcessJob::boxed(in_process::world_of_groups(ranks, options, |rank, links| {
            LateLinks::new(rank, links, &releases)
        }))
    }

    fn rank_counts(&self) -> &'static [u32] {
        &[1, 2, 3, 5, 8]
    }
}

/// [`Solo`], which has one rank, no links and no settings.
pub struct WorldOfOne;

impl Backend for WorldOfOne {
    fn name(&self) -> &'static str {
        "solo"
    }

    fn open(&self, ranks: u32, _: &EngineOptions) -> Box<dyn Job> {
        assert_eq!(ranks, 1, "a test of more ranks is no row of this backend");
        Box::new(WorldOfOne)
    }

    fn rank_counts(&self) -> &'static [u32] {
        &[1]
    }

    fn large_rank_counts(&self) -> &'static [u32] {
        &[1]
    }

    fn ranks_max(&self) -> u32 {
        1
    }

    fn algorithms(&self) -> Algorithms {
        Algorithms::None
    }
}

impl Job for WorldOfOne {
    fn join(&self, _: u32) -> Result<Member> {
        Ok(Member { communicator: Arc::new(Solo::new()), groups: Box::new(WorldOfOne), keep: Box::new(()) })
    }
}

impl MakeGroup for WorldOfOne {
    fn make_group(&self, _: &str, ranks: &[u32]) -> Result<Arc<dyn Communicator>> {
        Ok(Solo::new().subgroup(ranks)?.unwrap())
    }
}

type Seated = (Arc<dyn Communicator>, Groups);

struct InProcessJob(Vec<Mutex<Option<Seated>>>);

impl InProcessJob {
    fn boxed<C: Communicator + 'static>(members: Vec<(Arc<C>, Groups)>) -> Box<dyn Job> {
        let seat = |(communicator, groups)| Mutex::new(Some((communicator as Arc<dyn Communicator>, groups)));
        Box::new(InProcessJob(members.into_iter().map(seat).collect()))
    }
}

impl Job for InProcessJob {
    fn join(&self, rank: u32) -> Result<Member> {
        let (communicator, groups) = self.0[rank as usize].lock().unwrap().take().unwrap();
        Ok(Member { communicator, groups: Box::new(groups), keep: Box::new(()) })
    }
}

/// Ranks as threads that talk over loopback sockets, each with its own control plane.
pub struct Tcp;

/// The same through memory, on one host.
pub struct Shm;

/// The same on two hosts, through memory within each and over TCP between them, with checksums over everything.
pub struct MixedChecked;

impl Backend for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn open(&self, ranks: u32, options: &EngineOptions) -> Box<dyn Job> {
        loopback(vec![0; ranks as usize], plain(options), &tcp::Tcp { memory: false })
    }

    fn rank_counts(&self) -> &'static [u32] {
        &[1, 2, 3, 4, 5, 8]
    }
}

impl Backend for Shm {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn open(&self, ranks: u32, options: &EngineOptions) -> Box<dyn Job> {
        loopback(vec![0; ranks as usize], plain(options), &tcp::Tcp { memory: true })
    }

    fn rank_counts(&self) -> &'static [u32] {
        &[1, 2, 3, 4, 5, 8]
    }
}

impl Backend for MixedChecked {
    fn name(&self) -> &'static str {
        "mixed, checked"
    }

    fn open(&self, ranks: u32, options: &EngineOptions) -> Box<dyn Job> {
        let mut config = plain(options);
        config.checksum = Checksum::Always;
        loopback((0..ranks).map(|rank| rank % 2).collect(), config, &tcp::Tcp { memory: true })
    }

    fn rank_counts(&self) -> &'static [u32] {
        &[3, 5]
    }

    fn large_rank_counts(&self) -> &'static [u32] {
        &[8]
    }
}

fn loopback(hosts: Vec<u32>, config: Config, transport: &'static tcp::Tcp) -> Box<dyn Job> {
    Box::new(LoopbackJob::new(hosts, config, transport))
}

fn plain(options: &EngineOptions) -> Config {
    with_options(Config::from_lookup(&|_| None).unwrap(), options)
}

/// After how long a silent rank is taken for dead: no test of the suite waits for that, and on a machine with much
/// other work a rank may be silent for longer than users want to wait.
const SUSPECT_AFTER: Duration = Duration::from_secs(15);

/// The settings of a world with these options.
pub(crate) fn with_options(mut config: Config, options: &EngineOptions) -> Config {
    config.call_timeout = options.timeout;
    config.suspect_after = SUSPECT_AFTER;
    config.probe_delay = options.probe_after;
    config.algorithm = options.algorithm.map(|name| name.text().unwrap().to_owned());
    config.piece_bytes = options.piece_bytes.map_or(config.piece_bytes, |bytes| bytes as u32);
    config.algorithms = options.register.clone();
    config.skipped = options.skipped;
    config
}

struct LoopbackJob {
    config: Config,
    transport: &'static dyn Transport,
    members: Membership,
    listeners: Vec<Mutex<Option<Listener>>>,
}

impl LoopbackJob {
    /// A rank for each of these hosts.
    fn new(hosts: Vec<u32>, config: Config, transport: &'static dyn Transport) -> LoopbackJob {
        let ranks = hosts.len() as u32;
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let secret = Secret::take(&mut [7; SECRET_BYTES]);
        let listen = |_| unisono_job::Job::listen(local, (&secret, None), &config).unwrap();
        let listeners: Vec<_> = (0..ranks).map(listen).collect();
        let members = Membership {
            rank: 0,
            world_size: ranks,
            job: JobId::random().unwrap(),
            secret,
            addresses: listeners.iter().map(|listener| listener.local_addr().unwrap()).collect(),
            hosts,
            processes: Vec::new(),
            job_settings: config.job_settings().unwrap().encode(),
            cores: Vec::new(),
        };
        let listeners = listeners.into_iter().map(|listener| Mutex::new(Some(listener))).collect();
        LoopbackJob { config, transport, members, listeners }
    }
}

impl Job for LoopbackJob {
    fn join(&self, rank: u32) -> Result<Member> {
        let listener = self.listeners[rank as usize].lock().unwrap().take().unwrap();
        let membership = Membership { rank, ..self.members.clone() };
        let world = unisono_job::Job::start(membership, listener, &self.config, self.transport)?;
        let communicator = world.communicator()?;
        Ok(Member { communicator, groups: Box::new(world.clone()), keep: Box::new(world) })
    }
}
