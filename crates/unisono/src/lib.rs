//! Collective communication between the ranks of a job: all-reduce, all-gather, all-to-all and their family, over TCP
//! in pure Rust.
//!
//! A program is started once per rank, by `unisono run -n 4 ./program`, `torchrun`, `mpirun` or `srun`, and finds the
//! others by itself:
//!
//! ```
//! use unisono::{Collectives, ReduceOp};
//!
//! fn main() -> unisono::Result<()> {
//!     let world = unisono::init()?;
//!     let (rank, size) = (world.group().rank(), world.group().size());
//!
//!     // Every rank contributes its own gradients and gets the mean of all.
//!     let mut gradients = vec![rank as f32; 1000];
//!     world.all_reduce(&mut gradients, ReduceOp::Avg)?;
//!     assert_eq!(gradients[0], (size - 1) as f32 / 2.0);
//!
//!     // Rank 0 has something for all.
//!     let mut weights = if rank == 0 { vec![0.25f32; 10] } else { vec![0.0; 10] };
//!     world.broadcast(&mut weights, 0)?;
//!     assert_eq!(weights[9], 0.25);
//!
//!     world.close()
//! }
//! ```
//!
//! Started alone, with no launcher around it, the same program is a world of one. The typed calls are in
//! [`Collectives`], [`CollectivesAsync`] and [`CollectivesUneven`]; every setting is a row of [`config::KNOBS`]; a
//! failure says which rank, in which call, and how it was noticed: see [`Error`]. With `UNISONO_FLIGHT_DIR` set, every
//! survivor leaves its last calls for `unisono doctor`: see [`flight`]; [`World::joined`] gives them at any time.
//!
//! Tests can run many ranks as threads of one process without any network: see [`in_process`]. A panic of one rank ends
//! the calls of the others at once, and reaches the test:
//!
//! ```
//! use unisono::{Collectives, ReduceOp, in_process};
//!
//! let sums = in_process::run(4, |comm| {
//!     let mut value = [comm.group().rank()];
//!     comm.all_reduce(&mut value, ReduceOp::Sum).unwrap();
//!     value[0]
//! });
//! assert_eq!(sums, [6; 4]);
//! ```

#![forbid(unsafe_code)]

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod algorithms_cli;

use std::sync::Arc;

#[cfg(feature = "cli")]
#[doc(inline)]
pub use algorithms_cli::algorithms_main;
pub use unisono_communicator::*;
pub use unisono_engine::in_process;
pub use unisono_transport_tcp::config::{self, Config};
pub use unisono_transport_tcp::flight;
pub use unisono_transport_tcp::{TcpCommunicator, World};

/// Algorithms: the builder, the verifier, the cost model and the printer. What [`Communicator::register`] takes is
/// built and proved with these, also without a job.
///
/// ```
/// use std::sync::Arc;
/// use unisono::schedule::{Algorithm, Own, Shape, verify};
/// use unisono::{CallOptions, Collective, Collectives, ReduceOp, Trust, in_process};
///
/// // Both ranks send their whole vector, and add what comes, the lower rank's on the left.
/// let pair = Algorithm::new("pair", Collective::AllReduce, |builder| {
///     let (peer, own) = (1 - builder.rank(), if builder.rank() == 0 { Own::Left } else { Own::Right });
///     builder.send(peer, 0);
///     builder.recv_reduce(peer, 0, own, true);
/// });
/// let pair = Arc::new(pair.fits(|shape| shape.ranks == 2));
/// assert_eq!(verify(&pair, &Shape::new(2)).unwrap().cost.rounds, 1);
/// in_process::run(2, |comm| {
///     comm.register(pair.clone(), Trust::Prove).unwrap();
///     let mut value = [1u32];
///     comm.with(CallOptions::new().algorithm("pair")).all_reduce(&mut value, ReduceOp::Sum).unwrap();
///     assert_eq!(value, [2]);
/// });
/// ```
pub use unisono_schedule as schedule;

/// The backends of this build, as `UNISONO_BACKEND` names them.
pub const BACKENDS: &[&str] = &["auto", unisono_transport_tcp::BACKEND];

/// Joins the job that this process was started in, and gives the communicator of all its ranks. With no launcher
/// around, a world of one. Blocks until all ranks have come, at most `UNISONO_JOIN_TIMEOUT_S`.
///
/// The communicator keeps the connections and their thread; when its last handle is dropped, it says goodbye.
///
/// # Errors
/// [`Error::Configuration`] for a setting that cannot be obeyed, [`Error::Rendezvous`] when not all ranks come in
/// time, [`Error::Refused`] when this process does not belong to the job it found.
///
/// ```
/// use unisono::Collectives;
/// let world = unisono::init()?;
/// world.barrier()?;
/// # Ok::<(), unisono::Error>(())
/// ```
pub fn init() -> Result<Arc<dyn Communicator>> {
    init_with(&Config::from_environment()?)
}

/// [`init`] with these settings in place of the environment.
///
/// # Errors
/// As [`init`].
pub fn init_with(config: &Config) -> Result<Arc<dyn Communicator>> {
    if !BACKENDS.contains(&config.backend.as_str()) {
        return Err(Error::Configuration {
            name: "UNISONO_BACKEND".to_owned(),
            value: config.backend.clone(),
            problem: format!("this build has {}", BACKENDS.join(", ")),
        });
    }
    if config.placement.world_size() == 1 {
        let solo = Solo::new();
        config.algorithms.iter().try_for_each(|one| solo.register(one.clone(), Trust::Prove))?;
        return Ok(Arc::new(solo));
    }
    World::join(config)?.communicator()
}

/// The programs in the pages for users.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/algorithms.md")]
struct Pages;
