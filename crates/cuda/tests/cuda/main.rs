//! The driver on its test double, and NVIDIA's run-time compiler.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod driver;
mod nvrtc;
