//! Vendors' backends: over test doubles of their libraries, and over real oneCCL where it is.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod ccl;
mod hccl_double;
mod nccl_double;
mod offloaded;
