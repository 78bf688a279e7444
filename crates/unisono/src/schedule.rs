//! Algorithms: the builder, the verifier, the cost model and the printer. They build and prove, also without a job, an
//! algorithm that [`Communicator::register`](crate::Communicator::register) takes.
//!
//! ```
//! use std::sync::Arc;
//! use unisono::schedule::{Algorithm, Own, Shape, verify};
//! use unisono::{CallOptions, Collective, Collectives, ReduceOp, Trust, in_process};
//!
//! // Both ranks send their whole vector, and add the arriving one, the lower rank's on the left.
//! let pair = Algorithm::new("pair", Collective::AllReduce, |builder| {
//!     let (peer, own) = (1 - builder.rank(), if builder.rank() == 0 { Own::Left } else { Own::Right });
//!     builder.send(peer, 0);
//!     builder.recv_reduce(peer, 0, own, true);
//! });
//! let pair = Arc::new(pair.fits(|shape| shape.ranks == 2));
//! assert_eq!(verify(&pair, &Shape::new(2)).unwrap().cost.rounds, 1);
//! in_process::run(2, |comm| {
//!     comm.register(pair.clone(), Trust::Prove).unwrap();
//!     let mut value = [1u32];
//!     comm.with(CallOptions::new().algorithm("pair")).all_reduce(&mut value, ReduceOp::Sum).unwrap();
//!     assert_eq!(value, [2]);
//! });
//! ```

pub use unisono_schedule::{
    Action, Algorithm, Builder, Cost, CostModel, Counterexample, Fault, Fraction, Own, Proof, Requires,
    Schedule, Shape, Slot, Step, StepIndex, Summary, Totals, algorithms, find, verify, verify_range,
};
