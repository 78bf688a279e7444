//! A closure per rank, each on its own thread, for unit tests.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::{Builder, Scope, ScopedJoinHandle};

use unisono_communicator::{Communicator, JobRank};
use unisono_schedule::Algorithm;

use super::world::World;
use super::{InProcessLinks, options_for, world_and_communicators};
use crate::communicator::EngineCommunicator;
use crate::links::Links;
use crate::options::EngineOptions;

/// The payload of a panic.
type Panic = Box<dyn Any + Send>;

/// Runs `body` once per rank of a new world, each on its own thread, and gives their results in rank order.
///
/// ```
/// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*, unisono_engine::in_process}; }
/// use unisono::{Collectives, ReduceOp};
///
/// let sums = unisono::in_process::run(4, |comm| {
///     let mut value = [comm.group().rank()];
///     comm.all_reduce(&mut value, ReduceOp::Sum).unwrap();
///     value[0]
/// });
/// assert_eq!(sums, [6, 6, 6, 6]);
/// ```
///
/// When a rank panics, calls of the others fail within milliseconds with
/// [`PeerLost`](unisono_communicator::Error::PeerLost) and the panic's text:
///
/// ```
/// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*, unisono_engine::in_process}; }
/// use unisono::Collectives;
///
/// let result = std::panic::catch_unwind(|| {
///     unisono::in_process::run(2, |comm| {
///         assert_eq!(comm.group().rank(), 0, "only rank 0 goes on");
///         let error = comm.barrier().unwrap_err();
///         assert!(error.to_string().contains("only rank 0 goes on"), "{error}");
///     })
/// });
/// assert!(result.is_err());
/// ```
///
/// A rank that returns has left; calls of the others go on as long as they need no more bytes from it. `run` joins all
/// threads, also after a panic, so it returns only after the deadline of a call that hangs; see [`run_with`].
///
/// # Panics
/// With the first panic of a rank, and when the system has no room for another thread.
pub fn run<R: Send>(ranks: u32, body: impl Fn(Arc<dyn Communicator>) -> R + Sync) -> Vec<R> {
    run_with(ranks, &options_for(ranks), body)
}

/// [`run`] with settings, for instance a shorter deadline for every call.
///
/// ```
/// use std::time::Duration;
/// use unisono_collectives::Collectives;
/// use unisono_communicator::Error;
/// use unisono_engine::in_process::{self, EngineOptions};
///
/// let options = EngineOptions { timeout: Duration::from_millis(50), ..EngineOptions::default() };
/// in_process::run_with(2, &options, |comm| {
///     if comm.group().rank() == 0 {
///         assert!(matches!(comm.barrier(), Err(Error::Timeout { .. })));
///     } else {
///         std::thread::sleep(Duration::from_millis(500));
///     }
/// });
/// ```
///
/// # Panics
/// As [`run`], and when an algorithm of [`EngineOptions::register`] is refused.
pub fn run_with<R: Send>(
    ranks: u32,
    options: &EngineOptions,
    body: impl Fn(Arc<dyn Communicator>) -> R + Sync,
) -> Vec<R> {
    run_of(ranks, options, |_, links| links, body)
}

/// [`run_with`] with wrapped links, for instance [`crate::Faulty`], to test a program under faults.
///
/// ```
/// use unisono_collectives::Collectives;
/// use unisono_communicator::ReduceOp;
/// use unisono_engine::in_process::{self, EngineOptions};
/// use unisono_engine::{FaultPlan, Faulty};
///
/// // Every link of rank 1 breaks in the middle of the call.
/// let plan = |rank| FaultPlan { cut_after_bytes: (rank == 1).then_some(100_000), ..FaultPlan::default() };
/// let wrap = |rank, links| Faulty::new(links, plan(rank));
/// in_process::run_of(3, &EngineOptions::default(), wrap, |comm| {
///     comm.all_reduce(&mut vec![1u64; 100_000], ReduceOp::Sum).unwrap_err();
/// });
/// ```
///
/// # Panics
/// As [`run_with`].
pub fn run_of<R: Send, L: Links + 'static>(
    ranks: u32,
    options: &EngineOptions,
    wrap: impl Fn(u32, InProcessLinks) -> L,
    body: impl Fn(Arc<dyn Communicator>) -> R + Sync,
) -> Vec<R> {
    run_on_hosts(&vec![0; ranks as usize], options, wrap, body)
}

/// [`run_of`] as if rank r were on host number `hosts[r]`, although all ranks are threads of this process. The choice
/// of algorithms, and calls in two levels, depend on hosts.
///
/// ```
/// use unisono_communicator::Communicator;
/// use unisono_engine::in_process::{self, EngineOptions};
///
/// let hosts = in_process::run_on_hosts(&[0, 0, 1, 1], &EngineOptions::default(), |_, links| links, |comm| {
///     comm.group().hosts()[comm.group().rank() as usize]
/// });
/// assert_eq!(hosts, [0, 0, 1, 1]);
/// ```
///
/// # Panics
/// As [`run_with`].
pub fn run_on_hosts<R: Send, L: Links + 'static>(
    hosts: &[u32],
    options: &EngineOptions,
    wrap: impl Fn(u32, InProcessLinks) -> L,
    body: impl Fn(Arc<dyn Communicator>) -> R + Sync,
) -> Vec<R> {
    let ranks = hosts.len() as u32;
    let (world, communicators) = world_and_communicators(hosts.into(), options, wrap);
    let (world, body) = (&world, &body);
    let ended: Vec<Result<R, Panic>> = std::thread::scope(|scope| {
        let start = |(rank, communicator)| start(scope, world, rank, communicator, &options.register, body);
        let threads: Vec<_> = JobRank::all(ranks).zip(communicators).map(start).collect();
        threads.into_iter().map(|thread| thread.join().and_then(|ended| ended)).collect()
    });
    let (mut results, mut panics) = (Vec::with_capacity(ended.len()), Vec::new());
    for (rank, ended) in JobRank::all(ranks).zip(ended) {
        match ended {
            Ok(result) => results.push(result),
            Err(panic) => panics.push((rank, panic)),
        }
    }
    let deaths = world.deaths();
    let order = |rank: JobRank| deaths.iter().position(|&dead| dead == rank);
    match panics.into_iter().min_by_key(|(rank, _)| order(*rank)) {
        Some((_, panic)) => resume_unwind(panic),
        None => results,
    }
}

/// Starts the thread of one rank.
fn start<'scope, R: Send + 'scope, L: Links + 'static>(
    scope: &'scope Scope<'scope, '_>,
    world: &'scope World,
    rank: JobRank,
    communicator: Arc<EngineCommunicator<L>>,
    register: &'scope [Arc<Algorithm>],
    body: &'scope (impl Fn(Arc<dyn Communicator>) -> R + Sync),
) -> ScopedJoinHandle<'scope, Result<R, Panic>> {
    let main = move || {
        // Kept until the panic's text has reached the other ranks.
        let kept: Arc<dyn Communicator> = communicator.clone();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let registered = communicator.register_all(register);
            registered.unwrap_or_else(|error| panic!("{error}"));
            body(communicator)
        }));
        if let Err(panic) = &ended {
            world.die(rank, &evidence(panic));
        }
        drop(kept);
        ended
    };
    let thread = Builder::new().name(format!("rank {rank}"));
    thread.spawn_scoped(scope, main).unwrap_or_else(|error| {
        // This unwind drops the communicators without threads, which ends the calls of the others.
        panic!("no thread for rank {rank}: {error}")
    })
}

/// The text of a panic for errors.
fn evidence(panic: &Panic) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    match text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)) {
        Some(text) => format!("panicked: {text}"),
        None => super::world::THREAD_PANICKED.to_owned(),
    }
}
