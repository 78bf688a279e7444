//! NCCL's backend over a test double of NCCL and of the CUDA driver: plumbing, errors and hangs. What real NCCL does on
//! a device is not shown here.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod algorithms;
mod backends;
mod compressed;
mod cudarc_slices;
mod faults;
mod job;
mod on_device;
mod stream_order;
mod suite;
