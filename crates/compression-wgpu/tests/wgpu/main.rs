//! The kernels in WGSL, on the software adapter.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod calls;
mod equality;
mod parts;
mod refusals;
mod support;
