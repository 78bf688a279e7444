//! The double, opened as programs open a vendor's library. Each test has a copy of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod api;
mod collectives;
mod faults;
#[path = "../shared/numbers.rs"]
mod numbers;
mod operators;
mod refusals;
