//! The job as this process sees it: its ranks, the control thread, and the communicators made from it.

use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use unisono_backend::{Companion, GroupKeys, WeakCompanion, is_in_call};
use unisono_communicator::{
    AlgorithmName, Communicator, Error, Group, GroupOptions, JobRank, Result, Severity, Trust, log,
};
use unisono_control::DialTimeouts;
use unisono_control::wire::CommunicatorKey;
use unisono_engine::{CostModel, EngineOptions, PIECE_BYTES, SharedRegistry};

use crate::answers::unless_interrupted;
use crate::comms_log::WorldLog;
use crate::config::Config;
use crate::connecting::{Acceptor, Listener, RingShare};
use crate::control_thread::{
    Begin, Commands, ControlThread, Identity, Measurements, Settings, THREAD_NAME, fail_for_all, make_named,
    pending_max,
};
use crate::exit::act_at_exit;
use crate::flight::{FlightRecord, Recorder};
use crate::job_settings::JobSettings;
use crate::rendezvous::{Joined, Membership, RankProcess, listen_at, rendezvous};
use crate::report::Reporter;
use crate::secret::Secret;
use crate::sockets::{SocketOptions, listen};
use crate::task_thread::TaskThread;
use crate::transport::{NewCommunicator, Transport};

/// The time that the end of the process waits for the list of its jobs.
const JOINED_WAIT_MAX: Duration = Duration::from_millis(100);
/// The time that the end of a process waits for a flight record: its disk may be slow, or gone.
const RECORD_WAIT_MAX: Duration = Duration::from_secs(1);

/// The jobs that this process is in: one, but for tests whose ranks are threads.
static JOINED: Mutex<Vec<JoinedJob>> = Mutex::new(Vec::new());

/// A job that this process has joined. The thread that drops the last handle may still leave when the process ends.
#[derive(Clone)]
struct JoinedJob {
    world: Weak<JobShared>,
    thread: ControlThread,
}

/// A control thread that accepts connections, and how it learns of its job.
type Control = (ControlThread, oneshot::Sender<Begin>);

/// The key of the communicator of all ranks.
pub(crate) const WORLD_KEY: CommunicatorKey = CommunicatorKey { id: 0, epoch: 0 };

/// A job that this process has joined. Dropping the last handle and the last communicator says goodbye to the others
/// and waits until they have the sent bytes, at most for [`Config::drop_timeout`]; then it closes all connections and
/// ends the control thread. Right after the start it waits until the connections that carry the goodbye are there, at
/// most as long as a handshake may take. The same happens when the process exits before: no program need drop
/// anything.
#[derive(Clone)]
pub struct Job {
    shared: Arc<JobShared>,
}

struct JobShared {
    group: Group,
    options: EngineOptions,
    job_settings: JobSettings,
    /// As counted when the ranks met, by the number of the host.
    cores: Vec<u32>,
    transport: &'static dyn Transport,
    whole: Mutex<Option<WeakCompanion>>,
    keys: GroupKeys,
    commands: Commands,
    recorder: Recorder,
    /// Prints a table when it is dropped, behind everything that the end of the job may log.
    _log: WorldLog,
    reporter: Option<Reporter>,
    thread: ControlThread,
}

impl Drop for JobShared {
    fn drop(&mut self) {
        // The last of its communicators is gone, so no call is in progress.
        self.thread.leave(true);
    }
}

impl Job {
    /// Joins the job that the settings describe: listens, meets the other ranks, starts the control plane. Returns
    /// when all ranks have come.
    ///
    /// # Errors
    /// As [`Config::check`]; [`Error::Rendezvous`] when not all ranks come in time, with the missing ones;
    /// [`Error::Refused`] when this process does not belong to the job that it finds; [`Error::Configuration`] when the
    /// settings do not say how to meet; [`Error::System`] when no thread or descriptor is left.
    pub fn join(config: &Config, transport: &'static dyn Transport) -> Result<Job> {
        // Before anything else: processes that this one starts while it joins do not inherit the pipe.
        let reporter = config.report_to.and_then(Reporter::take);
        let joined = TaskThread::start(THREAD_NAME).and_then(|thread| {
            let ended = thread.ended();
            let joined = Job::try_join(config, transport, thread);
            joined.inspect_err(|_| ended.wait())
        });
        joined.inspect_err(|error| {
            if let Some(reporter) = &reporter {
                reporter.not_joined(config.placement.rank(), error);
            }
        })
    }

    fn try_join(config: &Config, transport: &'static dyn Transport, thread: TaskThread) -> Result<Job> {
        let started = Instant::now();
        config.prepare()?;
        let address = thread.wait_for(listen_at(config))?;
        let listener =
            listen(address, socket_options(config)).map_err(|error| cannot_listen(address, &error))?;
        let address = listener.local_addr().map_err(|error| Error::system("cannot listen", &error))?;
        let job_settings = config.job_settings()?.encode();
        let world_size = config.placement.world_size();
        let control = Job::accept(&thread, (listener, world_size), config)?;
        let own = JobRank::new(config.placement.rank());
        let joined =
            thread.wait_for(unless_interrupted(own, rendezvous(config, address, job_settings, &thread)))?;
        // From here on the job keeps it running.
        drop(thread);
        let world = Job::begin(joined, control, (config, transport))?;
        world.log_joined(address, started.elapsed());
        Ok(world)
    }

    /// Accepts connections from now on; the other ranks may know of this one sooner than this one knows its job.
    fn accept(
        thread: &TaskThread,
        (listener, world_size): (TcpListener, u32),
        config: &Config,
    ) -> Result<Control> {
        let listener = thread.within(|| tokio::net::TcpListener::from_std(listener));
        let listener = listener.map_err(|error| Error::system("cannot listen", &error))?;
        let acceptor = Acceptor::new(listener, config.handshake_timeout, pending_max(world_size));
        Ok(ControlThread::start(thread, acceptor))
    }

    fn log_joined(&self, address: SocketAddr, took: Duration) {
        let group = &self.shared.group;
        let (ranks, hosts) = (group.size(), group.hosts().iter().collect::<BTreeSet<_>>().len());
        let counted =
            |number: u64, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
        let (ranks, hosts) = (counted(ranks.into(), "rank"), counted(hosts as u64, "host"));
        log(
            Severity::Info,
            Some(group.rank()),
            format_args!("joined a job of {ranks} on {hosts} in {took:.0?}; listens at {address}"),
        );
    }

    /// The listening sockets for [`Job::start`], with the buffers of data sockets. The ranks of this host find the one
    /// within it by the secret of the membership, and by the process that the membership has for this rank.
    ///
    /// # Errors
    /// [`Error::System`] when the address is not ours or no descriptor is left.
    pub fn listen(
        address: SocketAddr,
        identity: (&Secret, Option<&RankProcess>),
        config: &Config,
    ) -> Result<Listener> {
        let listener = Listener::bind(address, identity, socket_options(config));
        listener.map_err(|error| cannot_listen(address, &error))
    }

    /// Starts the control plane of a job whose ranks have found each other in some way. `listener` is from
    /// [`Job::listen`], at the address that the others know; the job settings of the membership are
    /// [`JobSettings::encode`]d.
    ///
    /// # Errors
    /// As [`Config::check`]; [`Error::Refused`] for job settings that cannot be decoded, [`Error::System`] when no
    /// thread or descriptor is left.
    pub fn start(
        membership: Membership,
        listener: Listener,
        config: &Config,
        transport: &'static dyn Transport,
    ) -> Result<Job> {
        config.prepare()?;
        let thread = TaskThread::start(THREAD_NAME)?;
        let Listener { tcp, unix: within_host } = listener;
        let control = Job::accept(&thread, (tcp, membership.world_size), config)?;
        Job::begin(Joined { membership, within_host }, control, (config, transport))
    }

    fn begin(
        Joined { membership, within_host }: Joined,
        (thread, begin): Control,
        (config, transport): (&Config, &'static dyn Transport),
    ) -> Result<Job> {
        let Membership { rank, job, secret, addresses, hosts, processes, job_settings, cores, .. } =
            membership;
        let job_settings = JobSettings::decode(&job_settings)?;
        let hosts: Arc<[u32]> = hosts.into();
        let group = Group::world_on(rank, hosts.clone()).with_skipped(job_settings.skipped());
        let log = WorldLog::start(rank, &config.comms_logger, config.metrics_directory.clone())?;
        let group = group.with_comms_logger(log.logger().clone());
        let group = group.with_processes(processes.iter().map(|known| known.process.clone()).collect());
        let reporter = config.report_to.and_then(Reporter::take);
        let ranks_here = hosts.iter().filter(|host| **host == hosts[rank as usize]).count();
        let rings = (transport.shares_memory() && job_settings.shares_memory())
            .then(|| Arc::new(RingShare::of_one_among(ranks_here, config.single_copy)));
        let settings = Settings {
            intervals: job_settings.intervals(),
            dial_timeouts: DialTimeouts { attempt: config.handshake_timeout, ..DialTimeouts::default() },
            socket_options: socket_options(config),
            rings,
            drop_timeout: config.drop_timeout,
            congestion_control: config.congestion_control.clone(),
            reporter: reporter.clone(),
        };
        let options = engine_options(config, job_settings.piece_bytes());
        let identity =
            Identity { rank: JobRank::new(rank), job, secret, addresses: addresses.into(), hosts, processes };
        let recorder = Recorder::start(rank, job, config.flight_directory.clone())?;
        // The thread takes it, or has ended after a panic that its hook has reported.
        let _ = begin.send((identity, settings, within_host.filter(|_| transport.shares_memory())));
        let shared = JobShared {
            group,
            options,
            job_settings,
            cores,
            transport,
            whole: Mutex::new(None),
            keys: GroupKeys::default(),
            commands: thread.commands(),
            recorder,
            _log: log,
            reporter,
            thread,
        };
        let shared = Arc::new(shared);
        let mut joined = JOINED.lock().unwrap_or_else(PoisonError::into_inner);
        joined.retain(|one| !one.thread.has_ended());
        joined.push(JoinedJob { world: Arc::downgrade(&shared), thread: shared.thread.clone() });
        drop(joined);
        act_at_exit();
        Ok(Job { shared })
    }

    /// The jobs that this process has joined and not left: for who has only a communicator, and wants a flight record
    /// all the same.
    ///
    /// ```no_run
    /// # let folder = std::path::Path::new("flight");
    /// for world in unisono_job::Job::joined() {
    ///     world.dump_flight(folder)?;
    /// }
    /// # Ok::<(), unisono_communicator::Error>(())
    /// ```
    pub fn joined() -> Vec<Job> {
        let joined = JOINED.lock().unwrap_or_else(PoisonError::into_inner);
        joined.iter().filter_map(|one| one.world.upgrade()).map(|shared| Job { shared }).collect()
    }

    /// Leaves every job: the process ends. Communicators that are still there are of no use afterwards.
    pub(crate) fn leave_all() {
        // Somebody may hold the lock for ever: a thread that the end of the process has stopped in the middle of it.
        let until = Instant::now() + JOINED_WAIT_MAX;
        let joined = loop {
            match JOINED.try_lock() {
                Ok(joined) => break joined.clone(),
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner().clone(),
                Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::yield_now(),
                Err(TryLockError::WouldBlock) => return,
            }
        };
        // A function of the program's that ends the process in the middle of a call keeps that call from going on.
        let finishes = !is_in_call();
        joined.iter().for_each(|one| one.thread.leave(finishes));
        for world in joined.iter().filter_map(|one| one.world.upgrade()) {
            world.recorder.finish(RECORD_WAIT_MAX);
        }
    }

    /// The communicator of all ranks; the same one as long as somebody holds it. The first call registers
    /// [`Config::algorithms`], for which it waits for the other ranks.
    ///
    /// # Errors
    /// [`Error::AlgorithmRefused`] for one of the algorithms, and errors of the calls that register them;
    /// [`Error::Closed`] after the last handle of it was dropped: the others have been told that it is gone.
    pub fn communicator(&self) -> Result<Arc<dyn Communicator>> {
        Ok(self.companion()?.communicator())
    }

    /// The same as [`Job::communicator`], for who puts a vendor's communicator on top of it.
    ///
    /// # Errors
    /// As [`Job::communicator`].
    pub fn companion(&self) -> Result<Companion> {
        let mut whole = self.lock_whole();
        if let Some(made) = &*whole {
            return made.upgrade().ok_or(Error::closed());
        }
        let registry = self.shared.options.registry.inherit();
        let created = self.create(WORLD_KEY, self.shared.group.clone(), registry);
        // The other ranks would wait for this one.
        let companion = created.map_err(|error| fail_for_all(self, WORLD_KEY, &self.shared.group, error))?;
        *whole = Some(companion.downgrade());
        for algorithm in &self.shared.options.register {
            companion.register(algorithm.clone(), Trust::Prove)?;
        }
        Ok(companion)
    }

    fn lock_whole(&self) -> MutexGuard<'_, Option<WeakCompanion>> {
        self.shared.whole.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A communicator that only its members make: of these ranks of the job, in the order given. The others need not
    /// know of it, and groups that overlap may be made in different orders by different members. No message is sent:
    /// the first call waits for members that have not come yet, and when one never comes, it fails with
    /// [`Error::Timeout`], which names that rank.
    ///
    /// A key stands for one list of ranks as long as the job runs; any text does, also an empty one. Each time that all
    /// members have made a group under a key again, it is a new communicator. Members that give different lists for
    /// one key get [`Error::Refused`] with both lists from their first call.
    ///
    /// Cost: as for a subgroup; all groups are looked after by the one control thread of the world. The key and the
    /// list are remembered.
    ///
    /// ```no_run
    /// # use unisono_collectives::Collectives;
    /// # use unisono_communicator::ReduceOp;
    /// # let world = unisono_job::Job::joined().remove(0);
    /// let rank = world.group().rank();
    /// if [3, 5].contains(&rank) {
    ///     let pair = world.make_group("pipeline stage 3", &[3, 5])?;
    ///     pair.all_reduce(&mut [1.0f32], ReduceOp::Sum)?;
    /// }
    /// # Ok::<(), unisono_communicator::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a list without this rank, for a rank that the job does not have or that comes
    /// twice, and for a list other than the earlier list of this rank for the key. [`Error::System`] when no
    /// descriptor is left.
    pub fn make_group(&self, key: &str, ranks: &[u32]) -> Result<Arc<dyn Communicator>> {
        Ok(self.make_group_companion(key, ranks, &GroupOptions::new())?.communicator())
    }

    /// The same as [`Job::make_group`] with options, for who puts a vendor's communicator on top of it.
    ///
    /// # Errors
    /// As [`Job::make_group`]; [`Error::InvalidArgument`] for an option that no group can have.
    pub fn make_group_companion(
        &self,
        key: &str,
        ranks: &[u32],
        options: &GroupOptions,
    ) -> Result<Companion> {
        self.check_group_options(options)?;
        let (members, uses) = self.shared.keys.note_use(key, ranks, &self.shared.group)?;
        let group = make_named(self, (&members, options), (key, uses))?;
        let whole = self.lock_whole().as_ref().and_then(WeakCompanion::upgrade);
        whole.inspect(|whole| whole.note_group(&group));
        Ok(group)
    }

    /// Refuses options that no group of the job can have.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] as [`GroupOptions::check`], and for an algorithm that no collective has.
    pub fn check_group_options(&self, options: &GroupOptions) -> Result<()> {
        options.check()?;
        self.shared.options.check_algorithm(options.algorithm)
    }

    /// Makes one communicator of the job, with these algorithms. Needs no message: every member does the same.
    pub(crate) fn create(
        &self,
        key: CommunicatorKey,
        group: Group,
        registry: SharedRegistry,
    ) -> Result<Companion> {
        self.shared.transport.communicator(NewCommunicator { job: self, key, group, registry })
    }

    /// The group of all ranks.
    pub fn group(&self) -> &Group {
        &self.shared.group
    }

    /// The groups of the communicators that this rank has now, also of groups by [`Job::make_group`].
    pub fn groups(&self) -> Vec<Group> {
        self.shared.recorder.groups()
    }

    /// This rank's record of its last calls in all its communicators.
    pub fn flight_record(&self) -> FlightRecord {
        self.shared.recorder.record()
    }

    /// Writes [`Job::flight_record`] to its file in `directory`, for `unisono doctor --flight`, and gives the path.
    /// With `UNISONO_FLIGHT_DIR` set this happens by itself when a communicator is revoked.
    ///
    /// # Errors
    /// [`Error::System`] when that cannot be written.
    pub fn dump_flight(&self, directory: &Path) -> Result<PathBuf> {
        self.flight_record().write(directory)
    }

    /// The algorithms of a group that its members make by themselves: the algorithms of the settings, proved by each
    /// rank at first use.
    pub(crate) fn configured(&self) -> Result<SharedRegistry> {
        self.shared.options.configured()
    }

    pub(crate) fn recorder(&self) -> &Recorder {
        &self.shared.recorder
    }

    pub(crate) fn reporter(&self) -> Option<&Reporter> {
        self.shared.reporter.as_ref()
    }

    pub(crate) fn commands(&self) -> &Commands {
        &self.shared.commands
    }

    pub(crate) fn measurements(&self) -> &Measurements {
        self.shared.thread.measurements()
    }

    /// The streams to the ranks of a group that carry checksums.
    pub(crate) fn checked(&self, group: &Group) -> Vec<bool> {
        let own = group.hosts()[group.rank() as usize];
        group.hosts().iter().map(|host| self.shared.job_settings.checksum().applies(*host != own)).collect()
    }

    /// To which ranks of a group data is to go through memory.
    pub(crate) fn shares_memory(&self, group: &Group) -> Vec<bool> {
        let (own, shares) = (group.hosts()[group.rank() as usize], self.shared.job_settings.shares_memory());
        let shares = shares && self.shared.transport.shares_memory();
        group.hosts().iter().map(|host| shares && *host == own).collect()
    }

    /// The number of cores that the ranks of a host have together, as the chooser of algorithms counts them.
    pub fn cores(&self, host: u32) -> u64 {
        self.shared.job_settings.cores(host, &self.shared.cores)
    }

    /// The cost model of one of its groups; the same on every rank.
    pub fn cost_model(&self, group: &Group) -> CostModel {
        self.shared.job_settings.cost_model(group, &self.shared.cores)
    }

    /// The settings of the engine of one of its groups.
    pub(crate) fn options(&self, group: &Group) -> EngineOptions {
        EngineOptions { cost_model: self.cost_model(group), ..self.shared.options.of_group(group) }
    }
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> Error {
    Error::system(format!("cannot listen at {address}"), error)
}

fn socket_options(config: &Config) -> SocketOptions {
    SocketOptions { buffer_bytes: config.socket_buffer_bytes, unsent_bytes: config.unsent_bytes }
}

fn engine_options(config: &Config, piece_bytes: u64) -> EngineOptions {
    EngineOptions {
        timeout: config.call_timeout,
        algorithm: config.algorithm.as_deref().map(AlgorithmName::new),
        register: config.algorithms.clone(),
        // The default size is divided among the scratch chunks of a schedule. A size that the user sets is not.
        piece_bytes: Some(piece_bytes).filter(|&bytes| bytes != PIECE_BYTES),
        spin: config.spin,
        probe_after: config.probe_delay,
        warn_after: config.warn_after,
        drop_timeout: config.drop_timeout,
        ..EngineOptions::default()
    }
}
