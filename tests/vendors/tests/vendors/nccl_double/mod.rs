//! NCCL's backend over a test double of NCCL and of the CUDA driver: plumbing, errors and hangs. What real NCCL does on
//! a device is not shown here.

mod algorithms;
mod backends;
mod by_name;
mod compressed;
mod cudarc_slices;
mod faults;
mod job;
mod on_device;
mod stream_order;
mod streams;
mod suite;
mod turns;
