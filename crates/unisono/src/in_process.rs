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
//! What a program does after a failure is tested in the same way. Here rank 2 leaves, and the others go on:
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
//! threads of your own; [`world_with_groups`] does so with what makes groups by key.

pub use unisono_engine::in_process::{
    EngineOptions, Groups, InProcessCommunicator, InProcessLinks, run, run_of, run_with, world, world_of,
    world_of_groups, world_with_groups,
};
pub use unisono_engine::{FaultPlan, Faults, Faulty};
