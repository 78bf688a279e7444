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
    Batch, CallOptions, Collectives, CollectivesAsync, CollectivesGrouped, CollectivesOfLists,
    CollectivesOfObjects, CollectivesPrefix, CollectivesPrepared, CollectivesUneven, Communicator, Config,
    DType, Element, Error, Peer, PointToPoint, Received, ReduceOp, Tag, TypedWork, UserOp, UserOperators,
    World, in_process, wait_all, wait_any,
};
