//! Vendors' backends: over test doubles of their libraries, and over real oneCCL where it is.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![expect(clippy::disallowed_methods, reason = "variables of tests, no settings of the library")]

// The tests of calls on devices measure with `allocation_counter`, which their macro names.
mod available;
mod ccl;
mod hccl_double;
mod nccl_double;
mod offloaded;
