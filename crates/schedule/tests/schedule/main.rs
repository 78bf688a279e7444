//! Proofs of algorithms, and failures to prove.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod counterexamples;
mod mutations;
mod outside;
mod registry;
mod rounds;
mod widest;
