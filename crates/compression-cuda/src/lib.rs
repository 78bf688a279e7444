//! Compressed collectives of vectors in the memory of an NVIDIA card.
//!
//! Vectors and residuals stay on the card; only encoded messages go through the host. Every kernel gives the bytes of
//! [`unisono_kernels::reference`], so ranks with cards and ranks without take part in one call.
//!
//! Nothing of NVIDIA's is needed to build. At run time the driver is opened, and the kernels in `kernels/cuda` are
//! compiled for the card by NVRTC (seconds, once for each process and kind of card), or were compiled before
//! ([`KernelCode::Compiled`]). A missing library is an error with a remedy; nothing falls back to the processor.
//!
//! ```no_run
//! use std::sync::Arc;
//! # mod unisono {
//! #     pub use {unisono_collectives::*, unisono_communicator::*};
//! #     pub mod compression { pub use unisono_compression::*; pub use unisono_compression_cuda as cuda; }
//! # }
//! use unisono::{ReduceOp, Solo};
//! use unisono::compression::{CompressedCollectives, CompressionState, KernelDevice, SignL1};
//! use unisono::compression::cuda::{CudaKernels, CudaOptions};
//!
//! let comm = Solo::new();
//! let card = CudaKernels::open(&CudaOptions::default())?;
//! let mut gradients = card.allocate(1 << 20)?;
//! let mut state = CompressionState::on(&comm, card, Arc::new(SignL1::default()), 1 << 20)?;
//! comm.compressed_all_reduce_on(&mut gradients, ReduceOp::Avg, &mut state)?;
//! # Ok::<(), unisono_communicator::Error>(())
//! ```

mod card;
mod code;
mod kernels;
mod launch;
mod memory;
mod spans;

pub use card::{CudaKernels, CudaOptions};
pub use code::{KERNELS, compile, source};
pub use memory::CudaMemory;
pub use unisono_cuda as cuda;
pub use unisono_cuda::{Compiled, KernelCode};
