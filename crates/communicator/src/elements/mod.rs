//! What a buffer is made of and what is computed with it: the element types, the reduce operators.

pub(crate) mod dtype;
mod float8;
pub(crate) mod reduce_op;
