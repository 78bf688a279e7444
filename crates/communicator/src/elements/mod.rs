//! The element types of buffers, and the reduce operators on them.

pub(crate) mod dtype;
mod float8;
pub(crate) mod reduce_op;
