//! NVIDIA's NCCL, opened at run time: nothing of it is needed to build or to link. What it works on, memory and streams
//! of a device, comes from the driver (`unisono-cuda`), which is opened at run time too.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `sys` | the C API of NCCL 2.18 to 2.32: types, constants, the table of functions |
//! | `discovery` | [`Nccl`]: where its file comes from ([`NcclOptions`]), and which versions are taken |
//! | `error` | what its codes mean, and what to do |
//!
//! AMD's RCCL has the same functions by the same names, and is found by its own file name.

#![deny(unsafe_code)]

mod discovery;
#[cfg(test)]
mod discovery_tests;
mod error;
mod sys;

pub use discovery::{Nccl, NcclOptions, Version};
