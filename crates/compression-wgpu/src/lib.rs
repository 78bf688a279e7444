//! The kernels of compression on devices that wgpu reaches: WGSL, with the bytes of every other target.
//!
//! ```no_run
//! use std::sync::Arc;
//! # mod unisono {
//! #     pub use {unisono_collectives::*, unisono_communicator::*};
//! #     pub mod compression { pub use unisono_compression::*; pub use unisono_compression_wgpu as wgpu; }
//! # }
//! use unisono::{ReduceOp, Solo};
//! use unisono::compression::{CompressedCollectives, CompressionState, KernelDevice, SignL1};
//! use unisono::compression::wgpu::{OpenOptions, WgpuKernels};
//!
//! let comm = Solo::new();
//! let kernels = WgpuKernels::open(&OpenOptions::default())?;
//! let mut gradients = kernels.allocate(1 << 20)?;
//! // The program's own shaders write `gradients.buffer()` on `kernels.queue()`.
//! let mut state = CompressionState::on(&comm, kernels, Arc::new(SignL1::default()), 1 << 20)?;
//! comm.compressed_all_reduce_on(&mut gradients, ReduceOp::Avg, &mut state)?;
//! # Ok::<(), unisono_communicator::Error>(())
//! ```
//!
//! Vectors and residuals stay on the device; messages are copied once, to it and from it. A kernel is a text of
//! `kernels/wgsl`, and needs only the features of every WebGPU device: 64 threads, 8 storage buffers, integers and f32
//! of 32 bits. A call on more than a binding holds becomes several dispatches of whole blocks.
//!
//! An adapter that computes on the processor is opened only when it is asked for. No call falls back to the processor:
//! a call beyond a device's limits is an error that names the adapter and the limit.

mod adapter;
mod arguments;
mod device;
mod error;
mod gather;
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
