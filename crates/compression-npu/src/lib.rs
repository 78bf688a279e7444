//! Compressed collectives of vectors in the memory of a Huawei Ascend device: one bit for each element and one scale
//! for the vector ([`SignRms`](unisono_compression::SignRms)), as DeepSpeed's 1-bit Adam sends on these devices.
//!
//! Vectors and residuals stay on the device; only encoded messages go through the host. The kernels are sequences of
//! aclnn's operators, which CANN brings: nothing of Huawei's is needed to build, and nothing is compiled at run time.
//!
//! **Never run on a device.** The tests use a test double of ACL and aclnn that was written from their public
//! documentation.
//!
//! # The bytes
//!
//! Given the same scale, bits, results and residuals equal the processor's, byte for byte: signs are 1 and -1, so every
//! product with a scale is exact, and every sum is rounded once, in the same order. The exceptions are numbers below
//! 2^-126, which the processor takes for zero and these operators may keep, and the sign of a zero.
//!
//! **The scale may differ from the processor's in its last bits**: the order in which `aclnnNorm` adds squares is not
//! documented, and may differ from run to run. Any order of sums in f32 of the 2^20 elements that a call of it takes
//! stays within 1 part in 32 of the exact scale; by trees, as devices add, it is within some parts in 2^20. Ranks do
//! not differ: a scale travels with the bits, and all ranks, its maker too, use the copy that has travelled. So ranks
//! with these devices and ranks without take part in one call. Error feedback owes the rest that this scale has left.
//!
//! Devices must be in the mode in which an overflow is an infinity, the default of Atlas A2 and A3; where it is the
//! largest number (`aclrtSetDeviceSatMode`), elements that are not finite are not found.
//!
//! ```no_run
//! use std::sync::Arc;
//! # mod unisono {
//! #     pub use {unisono_collectives::*, unisono_communicator::*};
//! #     pub mod compression { pub use unisono_compression::*; pub use unisono_compression_npu as npu; }
//! # }
//! use unisono::{ReduceOp, Solo};
//! use unisono::compression::{CompressedCollectives, CompressionState, KernelDevice, SignRms};
//! use unisono::compression::npu::{HcclOptions, NpuKernels};
//!
//! let comm = Solo::new();
//! let npu = NpuKernels::open(&HcclOptions::default())?;
//! let mut gradients = npu.allocate(1 << 20)?;
//! let mut state = CompressionState::on(&comm, npu, Arc::new(SignRms::default()), 1 << 20)?;
//! comm.compressed_all_reduce_on(&mut gradients, ReduceOp::Avg, &mut state)?;
//! # Ok::<(), unisono_communicator::Error>(())
//! ```
//!
//! | file | contents |
//! | --- | --- |
//! | `npu` | [`NpuKernels`]: the device, its stream, how vectors come and go |
//! | `memory` | words in the device's memory, and allocations that are used again |
//! | `spans` | the buffers of a call as addresses |
//! | `steps` | operators on spans, in tiles |
//! | `kernels` | the kernels of the codecs |

mod kernels;
mod memory;
mod npu;
mod spans;
mod steps;

pub use memory::NpuMemory;
pub use npu::NpuKernels;
pub use unisono_offload_hccl::HcclOptions;
