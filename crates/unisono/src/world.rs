//! The world: all ranks of a job, as a program holds them.

use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use unisono_backend::{Companion, GroupKeys};
use unisono_collectives::Solo;
use unisono_communicator::{
    Call, CommsLogger, Communicator, Error, Executor, Group, GroupBackend, GroupOptions, JobRank, Life,
    Outcome, OwnedCall, Result, Work,
};
use unisono_control::store::{StoreCall, StoreReply};
use unisono_job::Job;
use unisono_job::comms_log::WorldLog;
use unisono_job::config::Config as JobConfig;
use unisono_job::flight::FlightRecord;
use unisono_job::store::LocalStore;

use crate::store::Store;

/// All ranks of the job that this process has joined: a communicator, and the means to make groups and flight records.
/// [`init`](crate::init) gives it.
///
/// A clone is a handle of the same world. A handle may be moved to another thread, borrowed by several, kept in a
/// static, or leaked. The last handle that is dropped says goodbye to the other ranks; the exit of the process does the
/// same for the handles that are left. After [`close`](Communicator::close) every call gives
/// [`Error::Closed`]; groups that were made before go on.
///
/// ```
/// use unisono::prelude::*;
///
/// /// The mean of all ranks' values.
/// fn mean(comm: &dyn Communicator, value: f32) -> unisono::Result<f32> {
///     let mut mean = [value];
///     comm.all_reduce(&mut mean, ReduceOp::Avg)?;
///     Ok(mean[0])
/// }
///
/// let world = unisono::init()?;
/// assert_eq!(mean(&world, 2.0)?, 2.0);
/// let again = world.clone();
/// std::thread::spawn(move || again.barrier()).join().unwrap()?;
/// println!("rank {} of {}", world.rank(), world.size());
/// world.close()?;
/// # Ok::<(), unisono::Error>(())
/// ```
#[derive(Clone)]
pub struct World {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    // First, so that it is dropped first. The communicator then holds the last handle of the job, and its streams are
    // there when the job looks for messages that nobody has received.
    kind: Kind,
    communicator: Arc<dyn Communicator>,
    /// The number of meshes that this rank has made.
    meshes: AtomicU64,
}

/// Puts a vendor's communicator on top of one over TCP.
type OnCompanion = dyn Fn(Companion) -> Result<Arc<dyn Communicator>> + Send + Sync;

/// The way in which a world makes groups.
enum Kind {
    /// One rank without a network.
    Alone(Alone),
    /// Several ranks over TCP.
    Tcp(Job),
    /// Several ranks, whose collectives a vendor's library does.
    #[cfg_attr(
        not(any(feature = "ccl", feature = "nccl", feature = "hccl")),
        expect(dead_code, reason = "no vendor is in this build")
    )]
    Vendor(Job, Box<OnCompanion>),
}

/// A world of one rank.
struct Alone {
    solo: Arc<Solo>,
    keys: GroupKeys,
    store: Box<LocalStore>,
    call_timeout: Duration,
    /// Until the world is dropped.
    _log: WorldLog,
}

impl World {
    pub(crate) fn alone(config: &JobConfig) -> Result<World> {
        let log = WorldLog::start(0, &config.comms_logger, config.metrics_directory.clone())?;
        let solo = Solo::new().with_skipped(config.skipped).with_comms_logger(log.logger().clone());
        let solo = Arc::new(solo);
        let (keys, store) = (GroupKeys::default(), Box::new(LocalStore::new(JobRank::new(0))));
        let call_timeout = config.call_timeout;
        let alone = Alone { solo: solo.clone(), keys, store, call_timeout, _log: log };
        Ok(World::new(solo, Kind::Alone(alone)))
    }

    pub(crate) fn over_tcp(job: Job) -> Result<World> {
        Ok(World::new(job.communicator()?, Kind::Tcp(job)))
    }

    #[cfg(any(feature = "ccl", feature = "nccl", feature = "hccl"))]
    pub(crate) fn on_vendor(job: Job, communicator: Arc<dyn Communicator>, on: Box<OnCompanion>) -> World {
        World::new(communicator, Kind::Vendor(job, on))
    }

    fn new(communicator: Arc<dyn Communicator>, kind: Kind) -> World {
        World::of(Arc::new(Shared { communicator, kind, meshes: AtomicU64::new(0) }))
    }

    pub(crate) fn of(shared: Arc<Shared>) -> World {
        World { shared }
    }

    pub(crate) fn downgrade(&self) -> Weak<Shared> {
        Arc::downgrade(&self.shared)
    }

    /// The communicator of all ranks as a shared trait object, for code that keeps communicators of any origin.
    pub fn communicator(&self) -> Arc<dyn Communicator> {
        self.shared.clone()
    }

    /// A communicator that only its members make: of these ranks of the job, in the order given. The others need not
    /// know of it, and groups that overlap may be made in different orders by different members. Over TCP no message
    /// is sent: the first call waits for members that have not come yet, and when one never comes, it fails with
    /// [`Error::Timeout`], which names that rank. A vendor's library makes its communicator at once, with all members.
    ///
    /// A key stands for one list of ranks as long as the job runs; any text does, also an empty one. Each time that all
    /// members have made a group under a key again, it is a new communicator. Members that give different lists for
    /// one key get [`Error::Refused`] with both lists from their first call.
    ///
    /// Cost: as for a subgroup; one control thread serves all groups of the world. A key takes 24 bytes as long as the
    /// job runs, however long it and its list are. A key that is used again takes no more.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = unisono::init()?;
    /// let half = world.size().div_ceil(2);
    /// if world.rank() < half {
    ///     let ranks: Vec<u32> = (0..half).collect();
    ///     let first_half = world.make_group("first half", &ranks)?;
    ///     first_half.barrier()?;
    /// }
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a list without this rank, for a rank that the job does not have or that comes
    /// twice, and for a list other than this rank gave for the key before. [`Error::System`] when no descriptor is
    /// left. [`Error::Closed`] after [`close`](Communicator::close). With a vendor's library also its errors.
    pub fn make_group(&self, key: &str, ranks: &[u32]) -> Result<Arc<dyn Communicator>> {
        self.make_group_with(key, ranks, &GroupOptions::new())
    }

    /// [`World::make_group`] with options, which all members give alike.
    ///
    /// ```
    /// use std::time::Duration;
    /// use unisono::prelude::*;
    /// use unisono::GroupOptions;
    ///
    /// let world = unisono::init()?;
    /// let patient = GroupOptions::new().timeout(Duration::from_secs(3600)).label("checkpoint");
    /// let group = world.make_group_with("checkpoint", &[world.rank()], &patient)?;
    /// group.barrier()?;
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`World::make_group`]; [`Error::InvalidArgument`] for an option that no group can have, such as an algorithm
    /// of a name that no collective has.
    pub fn make_group_with(
        &self,
        key: &str,
        ranks: &[u32],
        options: &GroupOptions,
    ) -> Result<Arc<dyn Communicator>> {
        match &self.shared.kind {
            Kind::Alone(Alone { keys, .. }) => {
                options.check()?;
                keys.note_use(key, ranks, self.group())?;
                #[expect(clippy::expect_used, reason = "the only rank is a member")]
                self.subgroup_with(&[0], options).map(|group| group.expect("a group of the only rank"))
            }
            Kind::Tcp(job) => Ok(open(job)?.make_group_companion(key, ranks, options)?.communicator()),
            Kind::Vendor(job, on) => {
                let companion = open(job)?.make_group_companion(key, ranks, options)?;
                match options.backend {
                    GroupBackend::OfParent => on(companion),
                    GroupBackend::Companion => Ok(companion.communicator()),
                }
            }
        }
    }

    /// Refuses options with which [`World::make_group_with`] makes no group.
    pub(crate) fn check_group_options(&self, options: &GroupOptions) -> Result<()> {
        match &self.shared.kind {
            Kind::Alone(..) => options.check(),
            Kind::Tcp(job) | Kind::Vendor(job, _) => job.check_group_options(options),
        }
    }

    /// A key-value store that all ranks share, for coordination that is not a collective; see [`Store`]. Rank 0 holds
    /// it. Makes no message; every handle that any rank asks for is of the same store.
    ///
    /// ```
    /// let world = unisono::init()?;
    /// let store = world.store();
    /// store.set(&format!("address of rank {}", world.rank()), b"10.0.0.7:9000")?;
    /// let of_rank_0 = store.get("address of rank 0", None)?;
    /// assert_eq!(of_rank_0, b"10.0.0.7:9000");
    /// # Ok::<(), unisono::Error>(())
    /// ```
    pub fn store(&self) -> Store {
        self.store_of(self)
    }

    /// The store of one of the communicators of this world, as [`World::store`] is of all ranks: the communicator's
    /// rank 0 holds it, and it has no key in common with others. After the loss of a rank, survivors go on with the
    /// store of the communicator that [`Communicator::shrink`] gives, which is empty.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = unisono::init()?;
    /// let survivors = world.shrink()?.communicator;
    /// assert_eq!(world.store_of(&*survivors).count()?, 0);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    pub fn store_of(&self, communicator: &dyn Communicator) -> Store {
        Store::new(self.shared.clone(), communicator.group())
    }

    /// The number of a new mesh: how many this rank has made before.
    pub(crate) fn next_mesh(&self) -> u64 {
        self.shared.meshes.fetch_add(1, Ordering::Relaxed)
    }

    /// The groups of the communicators that this rank has now, in the order in which they were made: all ranks, copies,
    /// subgroups, survivors. A communicator that was closed is there until it is dropped.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = unisono::init()?;
    /// let sizes: Vec<u32> = world.groups().iter().map(|group| group.size()).collect();
    /// assert_eq!(sizes, [world.size()]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    pub fn groups(&self) -> Vec<Group> {
        match &self.shared.kind {
            Kind::Alone(..) => vec![self.group().clone()],
            Kind::Tcp(job) | Kind::Vendor(job, _) => job.groups(),
        }
    }

    /// The communication log of this rank: the cost of its calls in all communicators of the world.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = unisono::init()?;
    /// world.comms_logger().start();
    /// world.all_reduce(&mut [1.0f32; 1024], ReduceOp::Sum)?;
    /// println!("{}", world.comms_logger().report());
    /// # Ok::<(), unisono::Error>(())
    /// ```
    pub fn comms_logger(&self) -> &CommsLogger {
        self.group().comms_logger()
    }

    /// The last calls of this rank in all communicators of the job.
    ///
    /// # Errors
    /// [`Error::Unsupported`] in a world of one, which keeps none.
    pub fn flight_record(&self) -> Result<FlightRecord> {
        match &self.shared.kind {
            Kind::Tcp(job) | Kind::Vendor(job, _) => Ok(job.flight_record()),
            Kind::Alone(..) => Err(Error::Unsupported {
                what: "a flight record".to_owned(),
                backend: self.backend(),
                instead: Some("UNISONO_BACKEND=tcp, which keeps one for any number of ranks".to_owned()),
            }),
        }
    }

    /// Writes [`World::flight_record`] to its file in `directory`, for `unisono doctor --flight`, and gives the path.
    /// With `UNISONO_FLIGHT_DIR` set this happens by itself when a communicator is revoked.
    ///
    /// # Errors
    /// As [`World::flight_record`]; [`Error::System`] when the file cannot be written.
    pub fn dump_flight(&self, directory: &Path) -> Result<PathBuf> {
        self.flight_record()?.write(directory)
    }
}

impl Shared {
    /// Whether the communicator of all ranks is not closed.
    pub(crate) fn is_open(&self) -> bool {
        match &self.kind {
            Kind::Alone(alone) => !alone.solo.is_closed(),
            Kind::Tcp(job) | Kind::Vendor(job, _) => open(job).is_ok(),
        }
    }

    /// Calls a store of the world.
    pub(crate) fn call_store(&self, call: StoreCall) -> Result<StoreReply> {
        match &self.kind {
            Kind::Alone(alone) => alone.store.call(call),
            Kind::Tcp(job) | Kind::Vendor(job, _) => job.call_store(call),
        }
    }

    /// The deadline of calls in a group.
    pub(crate) fn call_timeout(&self, group: &Group) -> Duration {
        match &self.kind {
            Kind::Alone(alone) => group.options().timeout.unwrap_or(alone.call_timeout),
            Kind::Tcp(job) | Kind::Vendor(job, _) => job.call_timeout(group),
        }
    }
}

/// The job, unless its communicator of all ranks is closed.
fn open(job: &Job) -> Result<&Job> {
    match job.companion()?.gate().is_closed() {
        true => Err(Error::closed().in_call(&"make_group")),
        false => Ok(job),
    }
}

impl Deref for World {
    type Target = dyn Communicator;

    fn deref(&self) -> &(dyn Communicator + 'static) {
        &*self.shared.communicator
    }
}

/// A handle passes each call on to the doors of the world's communicator.
macro_rules! impl_executor {
    ($handle:ty, $this:ident => $communicator:expr) => {
        impl Executor for $handle {
            fn group(&$this) -> &Group {
                $communicator.group()
            }

            fn execute(&$this, call: &mut Call<'_>) -> Result<Outcome> {
                $communicator.execute(call)
            }

            fn submit(&$this, call: OwnedCall) -> Work {
                $communicator.submit(call)
            }

            fn life(&$this) -> &dyn Life {
                $communicator.life()
            }
        }
    };
}

// A handle that is a communicator only keeps the world open all the same.
impl_executor!(Shared, self => (*self.communicator));
// So that `&world` goes where a `&dyn Communicator` is asked for.
impl_executor!(World, self => (*self.shared.communicator));

impl fmt::Debug for World {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "World(rank {} of {}, {})", self.rank(), self.size(), self.backend())
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;
    use std::sync::atomic::AtomicUsize;

    use unisono_communicator::{
        Buffers, Collective, CommsLoggerConfig, DType, Descriptor, Finished, OwnedBuffers,
    };

    use super::*;

    /// A backend that counts the calls of its doors.
    struct Counting {
        group: Group,
        executed: AtomicUsize,
        submitted: AtomicUsize,
    }

    impl Life for Counting {}

    impl Executor for Counting {
        fn group(&self) -> &Group {
            &self.group
        }

        fn execute(&self, _: &mut Call<'_>) -> Result<Outcome> {
            self.executed.fetch_add(1, Ordering::Relaxed);
            Ok(Outcome::done(0, ""))
        }

        fn submit(&self, call: OwnedCall) -> Work {
            self.submitted.fetch_add(1, Ordering::Relaxed);
            Work::finished(Finished { result: Ok(Outcome::done(0, "")), buffers: Some(call.buffers) })
        }

        fn life(&self) -> &dyn Life {
            self
        }
    }

    fn world_on(communicator: Arc<Counting>) -> World {
        let alone = Alone {
            solo: Arc::new(Solo::new()),
            keys: GroupKeys::default(),
            store: Box::new(LocalStore::new(JobRank::new(0))),
            call_timeout: Duration::from_secs(1),
            _log: WorldLog::start(0, &CommsLoggerConfig::default(), None).unwrap(),
        };
        World::new(communicator, Kind::Alone(alone))
    }

    /// Each kind of handle reaches the communicator's own doors, by one way only.
    #[test]
    fn handles_of_a_world_have_the_doors_of_its_communicator() {
        let counting = Arc::new(Counting {
            group: Group::world(0, 1),
            executed: AtomicUsize::new(0),
            submitted: AtomicUsize::new(0),
        });
        let world = world_on(counting.clone());
        let (again, shared) = (world.clone(), world.communicator());
        let handles: [&dyn Communicator; 5] = [&world, &*world, &again, &*shared, &shared];
        let barrier = Descriptor::new(Collective::Barrier, DType::U8, 0);
        for (index, handle) in handles.into_iter().enumerate() {
            assert!(ptr::eq(handle.group(), &counting.group), "{index}");
            assert!(ptr::addr_eq(handle.life(), &*counting), "{index}");
            handle.execute(&mut Call::new(barrier, Buffers::none())).unwrap();
            assert_eq!(counting.executed.load(Ordering::Relaxed), index + 1);
            handle.submit(OwnedCall::new(barrier, OwnedBuffers::None)).wait().unwrap();
            assert_eq!(counting.submitted.load(Ordering::Relaxed), index + 1);
        }
    }
}
