//! Collective communication between the ranks of a job: all-reduce, all-gather, all-to-all and their family, over TCP
//! and through memory within a host, in pure Rust.
//!
//! A program is started once per rank, by `unisono run -n 4`, `torchrun`, `mpirun` or `srun`; its ranks find each other
//! by themselves. Started alone, with no launcher around it, it is a world of one:
//!
//! ```
//! use unisono::{Collectives, ReduceOp};
//!
//! fn main() -> unisono::Result<()> {
//!     let world = unisono::init()?;
//!     let (rank, size) = (world.rank(), world.size());
//!
//!     // Every rank contributes its own gradients and gets the mean of all, the same bits everywhere.
//!     let mut gradients = vec![rank as f32; 1000];
//!     world.all_reduce(&mut gradients, ReduceOp::Avg)?;
//!     assert_eq!(gradients[0], (size - 1) as f32 / 2.0);
//!
//!     println!("rank {rank} of {size}: mean {}", gradients[0]);
//!     world.close()
//! }
//! ```
//!
//! ```text
//! $ unisono run -n 4 -- target/release/mean
//! [2] rank 2 of 4: mean 1.5
//! [0] rank 0 of 4: mean 1.5
//! [3] rank 3 of 4: mean 1.5
//! [1] rank 1 of 4: mean 1.5
//! ```
//!
//! # Where things are
//!
//! * **Joining a job**: [`init`], [`Config`]; every setting is a row of [`config::GROUPS`], which `unisono settings`
//!   prints and docs/settings.md shows.
//! * **Calls**: [`Collectives`]; asynchronous ones in [`CollectivesAsync`], calls with counts that differ by rank in
//!   [`CollectivesUneven`], scan and exscan in [`CollectivesPrefix`], calls on lists of buffers in
//!   [`CollectivesOfLists`], calls on bytes, texts and values of serde in [`CollectivesOfObjects`]. [`CallOptions`] set
//!   the deadline of a call, its label, its algorithm, and whether it gives the same bits for any number of ranks;
//!   [`Collectives::with`] takes them.
//! * **Groups, failures, algorithms**: [`Communicator`] with [`subgroup`](Communicator::subgroup),
//!   [`shrink`](Communicator::shrink) and [`register`](Communicator::register). `unisono demo --kill 2@300` shows a
//!   training that goes on after the death of a rank.
//! * **Several kinds of parallelism at once**: [`DeviceMesh`] has a group for each named dimension, as torch's.
//! * **Coordination that is no collective**: [`World::store`], a key-value store as torch's.
//! * **The cost of calls**: [`comms_log`] records operations, sizes, times and bandwidths, and finds the rank that
//!   all others wait for; `unisono run --comms`, docs/logging.md.
//! * **The causes of failures**: an [`Error`] says which rank, in which call, and how it was noticed; [`flight`]
//!   keeps the last calls for `unisono doctor`.
//! * **Elements and operators**: [`DType`], [`Element`], [`ReduceOp`]; [`UserOp`] for operators of your own.
//! * **Tests** with ranks as threads, without a network: [`in_process`].
//! * **Algorithms** of your own, and the proofs of all: [`schedule`].
//! * **Compression**: `compression` (feature `compression`); `CompressionState::or_exact` measures whether it pays.
//! * **Backends**: TCP, and vendors' libraries that are opened at run time ([`BACKENDS`], docs/backends.md).
//! * **Lists, memory of others, device memory**: [`call`]. **A transport, a vendor's library or a codec
//!   of your own**: [`extend`].
//!
//! Warnings, such as of a call that makes no progress, are `tracing` events; without a subscriber they reach standard
//! error, as far as `UNISONO_LOG` lets them.
//!
//! Programs to start from are in [`examples`]. For a program that runs on MPI, torch.distributed or deepspeed.comm,
//! docs/porting.md has their names beside ours.

#![forbid(unsafe_code)]
#![doc(test(attr(deny(warnings))))]

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod algorithms;
pub mod call;
pub mod comms_log;
#[cfg(feature = "compression")]
pub mod compression;
pub mod config;
mod element;
#[cfg(doc)]
pub mod examples;
pub mod extend;
pub mod flight;
pub mod in_process;
mod mesh;
mod open_worlds;
pub mod operators;
pub mod prelude;
pub mod schedule;
mod selection;
mod store;
mod world;

#[cfg(feature = "cli")]
#[doc(inline)]
pub use algorithms::algorithms_main;
/// Casts between plain types and bytes: its derives make a plain type of yours an [`Element`].
///
/// ```
/// use unisono::bytemuck::{Pod, Zeroable};
/// use unisono::prelude::*;
/// use unisono::{DType, Element, UserOp};
///
/// /// The best loss of all ranks, and the rank that has it.
/// #[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
/// #[bytemuck(crate = "unisono::bytemuck")]
/// #[repr(C)]
/// struct Best { loss: f32, rank: u32 }
///
/// impl Element for Best { const DTYPE: DType = DType::opaque_of::<Best>(); }
///
/// let world = unisono::init()?;
/// let mut best = [Best { loss: 0.25, rank: world.rank() }];
/// let lower = |left: &[Best], right: &[Best], out: &mut [Best]| {
///     out[0] = if right[0].loss < left[0].loss { right[0] } else { left[0] };
/// };
/// world.all_reduce_user(&mut best, UserOp::ordered("best"), lower)?;
/// assert_eq!(best[0].rank, 0);
/// # Ok::<(), unisono::Error>(())
/// ```
pub use bytemuck;
pub use config::backend::Backend;
pub use config::process::Config;
pub use mesh::{Cartesian, DeviceMesh, MeshWorld};
pub use open_worlds::{SecondInit, is_initialized};
pub use selection::{BACKENDS, is_available};
pub use store::Store;
#[cfg(feature = "serde")]
pub use unisono_collectives::Serialized;
pub use unisono_collectives::{
    AllReduceCache, Batch, Collectives, CollectivesAsync, CollectivesGrouped, CollectivesOfLists,
    CollectivesOfObjects, CollectivesPrefix, CollectivesPrepared, CollectivesUneven, GroupedCalls,
    OBJECT_BYTES_MAX, Object, PointToPoint, Prepared, PreparedInPlace, Solo, UserOperators,
};
pub use unisono_communicator::{
    Awaited, Bool, Bytes, CallInfo, CallOptions, Collective, Communicator, Complex, Culprit, DType,
    Determinism, Element, Error, ErrorCode, Group, GroupBackend, GroupOptions, JobRank, LogLevel, Outcome,
    Peer, Probed, Received, ReduceOp, Result, Scope, Shrunk, Tag, Trust, TypedWork, UserFunction, UserOp,
    WhenBusy, Work, bf16, f8e4m3, f8e5m2, f16, wait_all, wait_any, wait_any_timeout,
};
pub use world::World;

/// Joins the job that this process was started in, and gives all its ranks as a [`World`]. With no launcher
/// around, a world of one. Blocks until all ranks have come, at most `UNISONO_JOIN_TIMEOUT_S`.
///
/// `UNISONO_BACKEND` says who does the collectives, [`BACKENDS`] lists who can: a backend that is named does them for
/// any number of ranks, also for one, or is an error on every rank. `auto` is TCP, and a world of one without any
/// network. docs/backends.md has the rest.
///
/// The world keeps the connections and their thread; when its last handle is dropped, it says goodbye.
///
/// While a world of this process is open, a second call is refused; [`SecondInit`] has other fates. After it was closed
/// or has lost its last handle, a call makes a new one: all ranks must call again, and meet again. Another communicator
/// of the same ranks costs less with [`Communicator::duplicate`]. With `UNISONO_SECRET_FD` a process can join once,
/// because the secret is taken out of the pipe.
///
/// # Errors
/// [`Error::InvalidArgument`] for a second world, see [`SecondInit`]. [`Error::Configuration`] for a setting that
/// cannot be obeyed, also in a world of one; [`Error::Rendezvous`] when not
/// all ranks come in time, [`Error::Refused`] when this process does not belong to the job it found.
///
/// With a vendor's library [`Error::LibraryMissing`] when it is not there, [`Error::Vendor`] when it fails,
/// [`Error::Unsupported`] when ranks have several versions. Every rank gets the same error, among several ranks as the
/// cause of an [`Error::Revoked`].
///
/// ```
/// use unisono::Collectives;
/// let world = unisono::init()?;
/// world.barrier()?;
/// # Ok::<(), unisono::Error>(())
/// ```
#[track_caller]
pub fn init() -> Result<World> {
    init_with(&Config::from_environment()?)
}

/// [`init`] with these settings, which mostly come from the environment and are changed in code: a value that code sets
/// wins. Algorithms of the program's own may fit several ranks only; a world of one takes them all the same, unless a
/// backend is named.
///
/// # Errors
/// As [`init`]; [`Error::AlgorithmRefused`] for one of [`JobConfig::algorithms`](config::JobConfig::algorithms).
///
/// ```
/// use std::time::Duration;
/// use unisono::{Collectives, Config};
///
/// let config = Config::from_environment()?.with_call_timeout(Duration::from_secs(20));
/// let world = unisono::init_with(&config)?;
/// world.barrier()?;
/// # Ok::<(), unisono::Error>(())
/// ```
#[track_caller]
pub fn init_with(config: &Config) -> Result<World> {
    let site = config.site.unwrap_or(unisono_communicator::Site::caller());
    open_worlds::enter(config, site, || selection::open(config))
}
