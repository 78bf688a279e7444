//! Collectives of vendors' libraries, by a test double of a library: the conformance suite, and what goes wrong.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod errors;
mod suite;
mod threads;
