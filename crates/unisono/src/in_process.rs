//! Ranks as threads of one process, for tests: no network, no launcher, the same engine and the same algorithms.
//!
//! [`run`] starts a thread per rank. A panic of one rank ends the calls of the others within milliseconds, and reaches
//! the test:
//!
//! ```
//! use unisono::{Collectives, ReduceOp, in_process};
//!
//! let sums = in_process::run(4, |comm| {
//!     let mut value = [comm.rank()];
//!     comm.all_reduce(&mut value, ReduceOp::Sum).unwrap();
//!     value[0]
//! });
//! assert_eq!(sums, [6; 4]);
//! ```
//!
//! The work of a program after a failure is tested in the same way. Here rank 2 leaves, and the others go on:
//!
//! ```
//! use unisono::{Collectives, Error, ReduceOp, in_process};
//!
//! let sums = in_process::run(4, |comm| {
//!     if comm.rank() == 2 {
//!         return 0;
//!     }
//!     let mut value = [1];
//!     let error = comm.all_reduce(&mut value, ReduceOp::Sum).unwrap_err();
//!     assert!(matches!(error, Error::PeerLost { .. }), "{error}");
//!     let survivors = comm.shrink().unwrap().communicator;
//!     let mut value = [1];
//!     survivors.all_reduce(&mut value, ReduceOp::Sum).unwrap();
//!     value[0]
//! });
//! assert_eq!(sums, [3, 3, 0, 3]);
//! ```
//!
//! [`run_with`] takes deadlines and other settings ([`EngineOptions`]); [`run_of`] wraps the links of each rank, for
//! instance in [`Faulty`] ones, which deliver a few bytes at a time or break. [`world`] gives the communicators to
//! threads of your own; [`world_with_groups`] does so with a maker of groups by key.

use std::sync::Arc;

use unisono_communicator::settings::Source;
use unisono_communicator::{Communicator, Error};
use unisono_engine::in_process::{world_of, world_of_groups};

use crate::config::GROUPS;

pub use unisono_engine::in_process::{EngineOptions, Groups, InProcessCommunicator, run_of, run_with};
pub use unisono_engine::{FaultPlan, Faults, Faulty};

/// Runs `body` once per rank of a new world, each on its own thread, and gives the results in rank order. Calls have
/// the deadline of [`options`].
///
/// # Panics
/// With the first panic of a rank; when the system has no room for another thread; as [`options`].
pub fn run<R: Send>(ranks: u32, body: impl Fn(Arc<dyn Communicator>) -> R + Sync) -> Vec<R> {
    run_with(ranks, &options(ranks), body)
}

/// A world of `ranks` communicators, one for each thread to take, with the deadline of [`options`].
///
/// # Panics
/// As [`options`].
pub fn world(ranks: u32) -> Vec<Arc<InProcessCommunicator>> {
    world_of(ranks, &options(ranks), |_, links| links)
}

/// [`world`], with the means to make groups of some of the ranks.
///
/// # Panics
/// As [`options`].
pub fn world_with_groups(ranks: u32) -> Vec<(Arc<InProcessCommunicator>, Groups)> {
    world_of_groups(ranks, &options(ranks), |_, links| links)
}

/// The settings of [`run`] and [`world`] for that many ranks, which share the cores of this machine: algorithms are
/// chosen for it. The deadline of a call is `UNISONO_CALL_TIMEOUT_S`, else 120 s. `UNISONO_SKIP` holds as in a job.
/// A call without progress warns after 5 s. `EngineOptions::default()` has the settings of a job over TCP instead, with
/// a deadline of 600 s.
///
/// # Panics
/// When `UNISONO_CALL_TIMEOUT_S` is no time, or `UNISONO_SKIP` names something else than operations.
pub fn options(ranks: u32) -> EngineOptions {
    let suited = unisono_engine::in_process::options_for(ranks);
    let (settings, name) = (Source::of_environment(GROUPS), "UNISONO_CALL_TIMEOUT_S");
    let read = || {
        let (timeout, skipped) = (settings.duration(name)?, unisono_job::config::skipped(&settings)?);
        let timeout = if settings.is_set(name) { timeout } else { suited.timeout };
        Ok::<_, Error>((timeout, skipped))
    };
    match read() {
        Ok((timeout, skipped)) => EngineOptions { timeout, skipped, ..suited },
        Err(error) => panic!("{error}"),
    }
}
