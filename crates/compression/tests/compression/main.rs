//! Compressed collectives over ranks that are threads: laws, wire format, routes, failures.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "../../../../tests/src/skip.rs"]
mod skip;

mod auto;
mod calls;
mod common;
mod deepspeed;
mod halves;
mod laws;
mod loco;
mod not_finite;
mod one_bit_adam;
mod rebind;
mod secondary_copy;
mod summed_codes;
mod survivors;
mod two_levels;
mod wire;
