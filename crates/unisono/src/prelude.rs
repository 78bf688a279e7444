//! The names that programs use: `use unisono::prelude::*;` brings the calls, the types that they take, and the worlds.
//!
//! ```
//! use unisono::prelude::*;
//!
//! let world = unisono::init()?;
//! let mut gradients = vec![1.0f32; 8];
//! world.all_reduce(&mut gradients, ReduceOp::Avg)?;
//! # Ok::<(), unisono::Error>(())
//! ```

#[cfg(feature = "serde")]
pub use crate::comms_log::Stragglers;
pub use crate::{
    CallOptions, Collectives, CollectivesAsync, CollectivesOfLists, CollectivesOfObjects, CollectivesPrefix,
    CollectivesUneven, Communicator, Config, DType, Element, Error, Peer, Received, ReduceOp, TypedWork,
    UserOp, World, in_process,
};
