//! Collective algorithms as data.
//!
//! An [`Algorithm`] is a pure function of (rank, [`Shape`]) to a [`Schedule`]: a list of `Send`, `Recv`, `RecvReduce`
//! and `Copy` steps over chunks. A schedule contains no bytes, element types, clocks or sockets. One engine runs it on
//! any link, [`verify()`] proves it right, a [`CostModel`] predicts its time, `Display` prints it.
//!
//! # Chunks and extents
//! A step names one chunk by its slot and its *extent*, an index into a table of offsets and lengths that is filled in
//! at run time. All-reduce, broadcast and reduce cut the vector evenly into `chunks`. Reduce-scatter, all-gather,
//! gather and scatter have k extents per rank, and all-to-all has k per pair of ranks: with k = 1, extent
//! `i * ranks + j` is what rank i sends to rank j. Mostly k is 1; a larger one cuts the shares further.
//! [`Layout`] says which extents a rank holds, and which are the same bytes in a call in place.
//!
//! # What order means
//! * Step i waits for `dependencies(i)`, piece by piece: its piece k waits for piece min(k, last) of each of them. A
//!   step of an empty extent counts as having one piece, piece 0, without bytes.
//! * Per link and direction, steps are served in piece order: piece 0 of every step in list order, then piece 1.
//! * A send has finished a piece when these bytes may be overwritten. That may be as late as when the peer has received
//!   them, unless the send is [buffered](Schedule::is_buffered).
//! * A scratch chunk is a window of two pieces: piece k of a write waits until every other step that touches the
//!   chunk has finished piece k - 2, or has finished.

#![forbid(unsafe_code)]

mod algorithm;
mod algorithms;
mod builder;
mod canonical;
mod choice;
mod choose;
mod collective;
mod cost_model;
mod digest;
mod fraction;
mod hazards;
mod intern;
mod layout;
mod refused;
mod registry;
mod rooted;
mod rounds;
mod schedule;
mod shape;
mod step;
mod verify;

pub use algorithm::{Algorithm, Cost, Requires, Totals};
pub use algorithms::{algorithms, find, find_by_name};
pub use builder::{Builder, Own};
pub use canonical::{Fold, ReductionTree, canonical_tree};
pub use choice::{Choice, UnknownChoice};
pub use choose::{Admit, BreakPoint, Chooser};
pub use collective::{Collective, UnknownCollective};
pub use cost_model::CostModel;
pub use digest::Digest;
pub use fraction::Fraction;
pub use intern::{INTERNED_BYTES_MAX, INTERNED_MAX, NotInterned, intern};
pub use layout::Layout;
pub use refused::{Refusal, Refused};
pub use registry::{FIRST_USE_STEPS_MAX, Facts, PROOF_STEPS_MAX, Registry, Trust, nearest_names};
pub use rounds::{Move, Rounds, rounds};
pub use schedule::Schedule;
pub use shape::Shape;
pub use step::{Action, STEP_BYTES_MAX, Slot, Step, StepIndex};
pub use verify::{
    Counterexample, Fault, Proof, StepPlace, Summary, WrongFigure, prove, roots, verify, verify_range,
    verify_schedules,
};
