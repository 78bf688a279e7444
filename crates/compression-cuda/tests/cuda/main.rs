//! The kernels on the test double of the driver, and by NVIDIA's run-time compiler.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod bad_input;
mod calls;
mod common;
mod compile;
mod equality;
