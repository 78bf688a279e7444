//! Operators that MPI has and [`ReduceOp`](crate::ReduceOp) has not, for the calls that take the caller's own operator.
//!
//! ```
//! use unisono::operators::{Located, MAX_LOC, max_loc};
//! use unisono::prelude::*;
//!
//! let world = unisono::init()?;
//! let mut worst = [Located { value: 0.75f64, index: world.rank() }];
//! world.all_reduce_user(&mut worst, MAX_LOC, max_loc)?;
//! assert_eq!({ worst[0].index }, 0);
//! # Ok::<(), unisono::Error>(())
//! ```

pub use unisono_collectives::operators::{
    LOGICAL_AND, LOGICAL_OR, LOGICAL_XOR, Located, MAX_LOC, MIN_LOC, REPLACE, logical_and, logical_or,
    logical_xor, max_loc, min_loc, replace,
};
