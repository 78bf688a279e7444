//! Ranks as threads of one process: the same engine and schedules over pipes in memory. For tests without sockets.
//!
//! [`run`] starts a thread per rank; [`world`] gives the communicators to your own threads. Ranks notice each other's
//! end like processes:
//!
//! * A rank that closes its communicator, or drops its last handle, has left. Calls of other ranks go on, until one
//!   needs more bytes of that rank: it fails with [`Error::PeerLost`] and `left with n calls finished`.
//! * A rank whose last handle is dropped by a panic of its thread has died. Calls of the others fail within
//!   milliseconds with `PeerLost`, naming the same rank on all, unless the dead rank had sent all its bytes. Under
//!   [`run`] the error has the panic's text.
//! * `shrink` and `agree` go on without ranks that have left or died. A dead rank whose panic was caught gets
//!   [`Error::Evicted`] if it makes another communicator.
//!
//! A panic of a thread that only borrows a communicator goes unnoticed: the handle survives, and the others wait until
//! their calls' deadlines. Give each thread its own handle, or use [`run`].
//!
//! | file | contents |
//! | --- | --- |
//! | `run` | a closure per rank on its own thread |
//! | `world` | all communicators of a world, the ranks that have come and left, the agreements |
//! | `room` | the shared state of the ranks of one communicator |
//! | `control` | the control plane as the engine sees it |
//! | `links`, `pipe` | the streams |

mod control;
mod links;
mod pipe;
mod room;
mod run;
#[cfg(test)]
mod tests;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use unisono_backend::{Companion, GroupKeys, WeakCompanion};
use unisono_communicator::{Communicator, Error, Group, GroupOptions, GroupRank, Result};
use unisono_schedule::CostModel;

use crate::communicator::EngineCommunicator;
use crate::links::Links;
use room::{Origin, RoomKey};
use world::World;

pub use crate::options::EngineOptions;
pub use links::InProcessLinks;
pub use pipe::PipeLink;
pub use run::{run, run_of, run_on_hosts, run_with};

/// Makes groups of the ranks of an in-process world, on one rank.
pub struct Groups {
    world: Arc<World>,
    job: Group,
    options: EngineOptions,
    keys: GroupKeys,
    numbers: AtomicU64,
    whole: WeakCompanion,
}

impl Groups {
    /// All ranks of the world.
    pub fn group(&self) -> &Group {
        &self.job
    }

    /// The number of calls that this rank has made of this method before: a number for objects that every rank makes in
    /// the same order, which keeps the keys of their groups apart.
    pub fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes a communicator of these ranks of the world, in the order given. Only its members call this. A key stands
    /// for one list of ranks; each time that all members call with it, they get a new communicator. Members that give
    /// different lists get [`Error::Refused`] with both lists.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*, unisono_engine::in_process}; }
    /// use unisono::{Collectives, Communicator, ReduceOp};
    /// let ranks = unisono::in_process::world_with_groups(3).into_iter().map(|(comm, groups)| {
    ///     std::thread::spawn(move || {
    ///         if comm.group().rank() != 1 {
    ///             let pair = groups.make_group("outer", &[2, 0]).unwrap();
    ///             let mut sum = [1];
    ///             pair.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
    ///             assert_eq!(sum, [2]);
    ///         }
    ///     })
    /// });
    /// ranks.collect::<Vec<_>>().into_iter().for_each(|rank| rank.join().unwrap());
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the list lacks this rank, has a rank twice, has a rank outside the world, or
    /// differs from the earlier list of this key. [`Error::Evicted`] when this rank has dropped a communicator in a
    /// panic.
    pub fn make_group(&self, key: &str, ranks: &[u32]) -> Result<Arc<dyn Communicator>> {
        Ok(self.make_group_companion(key, ranks, &GroupOptions::new())?.communicator())
    }

    /// [`Groups::make_group`], for a vendor's communicator on top.
    ///
    /// # Errors
    /// As [`Groups::make_group`].
    pub fn make_group_companion(
        &self,
        key: &str,
        ranks: &[u32],
        options: &GroupOptions,
    ) -> Result<Companion> {
        self.check_group_options(options)?;
        let (members, uses) = self.keys.note_use(key, ranks, &self.job)?;
        let missing = || Error::invalid("ranks", "this rank is not among them");
        let group = self.job.subgroup(&members, 0).ok_or_else(missing)?.with_options(*options);
        let origin = Origin::Named { name: key.to_owned(), uses };
        let key = RoomKey { origin, members, options: *options };
        let group = control::communicator(&self.world, &key, group, &self.options, |links| links)?;
        let group = group.as_companion();
        self.whole.upgrade().inspect(|whole| whole.note_group(&group));
        Ok(group)
    }

    /// Refuses options that no group of the world can have.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] as [`GroupOptions::check`], and for an algorithm that no collective has.
    pub fn check_group_options(&self, options: &GroupOptions) -> Result<()> {
        options.check()?;
        self.options.check_algorithm(options.algorithm)
    }
}

/// [`world`], and for each rank the means to make groups.
pub fn world_with_groups(ranks: u32) -> Vec<(Arc<InProcessCommunicator>, Groups)> {
    world_of_groups(ranks, &options_for(ranks), |_, links| links)
}

/// [`world_of`], and for each rank the means to make groups.
///
/// # Panics
/// As [`world_of`].
pub fn world_of_groups<L: Links + 'static>(
    ranks: u32,
    options: &EngineOptions,
    wrap: impl Fn(u32, InProcessLinks) -> L,
) -> Vec<(Arc<EngineCommunicator<L>>, Groups)> {
    let options = configured(options);
    let (world, communicators) = world_and_communicators(on_one_host(ranks), &options, wrap);
    let with_groups = |(rank, communicator): (u32, Arc<EngineCommunicator<L>>)| {
        let groups = Groups {
            world: world.clone(),
            job: Group::world(rank, ranks),
            options: options.clone(),
            keys: GroupKeys::default(),
            numbers: AtomicU64::new(0),
            whole: communicator.clone().as_companion().downgrade(),
        };
        (communicator, groups)
    };
    (0..ranks).zip(communicators).map(with_groups).collect()
}

/// A communicator whose ranks are threads of this process.
pub type InProcessCommunicator = EngineCommunicator<InProcessLinks>;

/// A world of `ranks` communicators, one for each thread to take.
///
/// ```
/// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*, unisono_engine::in_process}; }
/// use unisono::{Collectives, ReduceOp};
/// let world = unisono::in_process::world(3);
/// let ranks = world.into_iter().map(|comm| {
///     std::thread::spawn(move || {
///         let mut value = [1u32];
///         comm.all_reduce(&mut value, ReduceOp::Sum).unwrap();
///         assert_eq!(value, [3]);
///     })
/// });
/// for rank in ranks.collect::<Vec<_>>() {
///     rank.join().unwrap();
/// }
/// ```
pub fn world(ranks: u32) -> Vec<Arc<InProcessCommunicator>> {
    world_of(ranks, &options_for(ranks), |_, links| links)
}

/// A world with settings and wrapped links, for instance wrapped by [`crate::Faulty`].
///
/// # Panics
/// When an algorithm of [`EngineOptions::register`] has an invalid name, or a name that is taken.
pub fn world_of<L: Links + 'static>(
    ranks: u32,
    options: &EngineOptions,
    wrap: impl Fn(u32, InProcessLinks) -> L,
) -> Vec<Arc<EngineCommunicator<L>>> {
    world_and_communicators(on_one_host(ranks), &configured(options), wrap).1
}

fn on_one_host(ranks: u32) -> Arc<[u32]> {
    vec![0; ranks as usize].into()
}

/// The options for ranks without threads, which cannot prove algorithms together.
fn configured(options: &EngineOptions) -> EngineOptions {
    let registry = options.configured().unwrap_or_else(|error| panic!("{error}"));
    EngineOptions { registry, register: Vec::new(), ..options.clone() }
}

/// The default deadline of a call: a test that waits for longer hangs.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(120);

/// The default time without progress after which a call warns.
const WARN_AFTER: Duration = Duration::from_secs(5);

/// Options that suit tests with `ranks` threads on this machine: [`CALL_TIMEOUT`], and a warning after 5 s.
pub fn options_for(ranks: u32) -> EngineOptions {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let cost_model = CostModel::LOOPBACK.with_ranks_on_cores(u64::from(ranks), cores);
    EngineOptions { cost_model, timeout: CALL_TIMEOUT, warn_after: WARN_AFTER, ..EngineOptions::default() }
}

fn world_and_communicators<L: Links + 'static>(
    hosts: Arc<[u32]>,
    options: &EngineOptions,
    wrap: impl Fn(u32, InProcessLinks) -> L,
) -> (Arc<World>, Vec<Arc<EngineCommunicator<L>>>) {
    let world = Arc::<World>::default();
    let members = GroupRank::all(hosts.len() as u32).collect();
    let key = RoomKey { origin: Origin::Whole, members, options: GroupOptions::new() };
    let make = |rank| {
        let group = Group::world_on(rank, hosts.clone()).with_skipped(options.skipped);
        let made = control::communicator(&world, &key, group, options, |links| wrap(rank, links));
        #[expect(clippy::expect_used, reason = "no rank of a new world has panicked")]
        made.expect("a new world")
    };
    let communicators = (0..hosts.len() as u32).map(make).collect();
    (world, communicators)
}
