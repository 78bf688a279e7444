//! Tests of every body of every kernel that this machine can run.

mod equality;
mod properties;
mod shared;
