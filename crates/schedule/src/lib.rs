//! Collective algorithms as data.
//!
//! An [`Algorithm`] is a pure function of (rank, [`Shape`]) to a [`Schedule`]: a list of `Send`, `Recv`, `RecvReduce`
//! and `Copy` steps over chunks. A schedule has no bytes, element types, clocks or sockets. One engine runs it on any
//! link, [`verify()`] proves it right, a [`CostModel`] predicts its time, `Display` prints it.
//!
//! # Chunks and extents
//! A step names a chunk by its slot and its *extent*: an index into a table of offsets and lengths that the call fills
//! in. All-reduce, broadcast and reduce cut the vector evenly into `chunks`. Reduce-scatter, all-gather, gather and
//! scatter have k extents per rank, and all-to-all has k per pair of ranks. Mostly k is 1, and then extent `i * ranks +
//! j` of an all-to-all goes from rank i to rank j. [`Layout`] says which extents a rank holds, and which are the same
//! bytes in a call in place.
//!
//! # The meaning of order
//! * Step i waits for `dependencies(i)` piece by piece: its piece k waits for piece min(k, last) of each. A *piece* is
//!   a part of a chunk, of a fixed size. An empty chunk counts as one piece, piece 0, without bytes.
//! * Per link and direction, piece 0 of every step comes first, in list order, then piece 1 of every step, and so on.
//! * A send has finished a piece when its bytes may be overwritten. Unless the send is
//!   [buffered](Schedule::is_buffered), this may last until the peer has received them.
//! * A scratch chunk is a window of two pieces. So piece k of a write waits until every other step on the chunk has
//!   finished, or has finished piece k - 2.

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
mod random;
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
pub use canonical::{Fold, ReductionTree, canonical_prefix_tree, canonical_tree};
pub use choice::{Choice, UnknownChoice};
pub use choose::{Admit, BreakPoint, Chooser};
pub use collective::{Collective, UnknownCollective};
pub use cost_model::CostModel;
pub use digest::Digest;
pub use fraction::Fraction;
pub use intern::{INTERNED_BYTES_MAX, INTERNED_MAX, NotInterned, intern};
pub use layout::Layout;
pub use random::{SplitMix, mix64};
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
