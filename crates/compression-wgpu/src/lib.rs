//! The kernels of compression on devices that wgpu reaches: WGSL, with the bytes of every other target.

#![deny(unsafe_code)]

mod adapter;
mod arguments;
mod device;
mod error;
mod job;
mod kernels;
mod link;
mod memory;
mod pipelines;
mod pool;
mod regions;
mod shaders;

pub use adapter::{AdapterChoice, OpenOptions, adapters};
pub use device::WgpuKernels;
pub use error::WgpuCode;
pub use memory::WgpuMemory;
pub use wgpu;
