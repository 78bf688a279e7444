//! The double, opened as programs open a vendor's library. Each test has a copy of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod api;
mod callers;
mod collectives;
mod communicators;
mod driver;
mod faults;
#[path = "../shared/numbers.rs"]
mod numbers;
mod rank;
