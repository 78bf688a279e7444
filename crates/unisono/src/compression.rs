//! Compressed collectives: an all-reduce that sends 1, 4, 8 or 16 bits for each element; docs/compression.md says when
//! it pays, and a state with [`or_exact`](CompressionState::or_exact) measures this at its first call, on all ranks,
//! and goes on with exact calls where it does not pay.
//!
//! ```
//! use unisono::ReduceOp;
//! use unisono::compression::{CompressedCollectives, CompressionState, SignL1};
//!
//! let world = unisono::init()?;
//! let mut gradients = vec![0.5f32; 1000];
//! let mut state = CompressionState::new::<f32>(&world, SignL1::default(), gradients.len())?;
//! world.compressed_all_reduce(&mut gradients, ReduceOp::Avg, &mut state)?;
//! # Ok::<(), unisono::Error>(())
//! ```

pub use unisono_compression::{
    Bf16, BitOrder, Codec, CompressedCollectives, CompressedWork, CompressionState, DeviceMemory, Int4, Int8,
    IntOptions, KernelDevice, LoCo, NetworkBytes, Rebound, Route, SecondaryCopy, SignL1, SignRms,
    codec_by_name, network_bytes, residual_bytes, wire_bytes,
};

/// The optimiser 1-bit Adam: Adam whose ranks exchange compressed momenta after some exact steps.
pub mod one_bit_adam {
    pub use unisono_compression::one_bit_adam::{
        Adam, AdamOptions, Exchanged, OneBitAdam, OneBitAdamOptions, Resumed,
    };
}

/// Compressed collectives of vectors in the memory of NVIDIA's cards (feature `cuda`).
///
/// ```no_run
/// use std::sync::Arc;
/// use unisono::ReduceOp;
/// use unisono::compression::{CompressedCollectives, CompressionState, KernelDevice, SignL1};
/// use unisono::compression::cuda::{CudaKernels, CudaOptions};
///
/// let world = unisono::init()?;
/// let card = CudaKernels::open(&CudaOptions::default())?;
/// let mut gradients = card.allocate(1 << 20)?;
/// let mut state = CompressionState::on(&world, card, Arc::new(SignL1::default()), 1 << 20)?;
/// world.compressed_all_reduce_on(&mut gradients, ReduceOp::Avg, &mut state)?;
/// # Ok::<(), unisono::Error>(())
/// ```
#[cfg(feature = "cuda")]
pub mod cuda {
    pub use unisono_compression_cuda::{CudaKernels, CudaMemory, CudaOptions};
}

/// Compressed collectives of vectors in the memory of Huawei's Ascend devices, with the codec [`SignRms`] (feature
/// `npu`). Proven on a test double only.
///
/// ```no_run
/// use std::sync::Arc;
/// use unisono::ReduceOp;
/// use unisono::compression::npu::{HcclOptions, NpuKernels};
/// use unisono::compression::{CompressedCollectives, CompressionState, KernelDevice, SignRms};
///
/// let world = unisono::init()?;
/// let npu = NpuKernels::open(&HcclOptions::default())?;
/// let mut gradients = npu.allocate(1 << 20)?;
/// let mut state = CompressionState::on(&world, npu, Arc::new(SignRms::default()), 1 << 20)?;
/// world.compressed_all_reduce_on(&mut gradients, ReduceOp::Avg, &mut state)?;
/// # Ok::<(), unisono::Error>(())
/// ```
#[cfg(feature = "npu")]
pub mod npu {
    pub use unisono_compression_npu::{HcclOptions, NpuKernels, NpuMemory};
}

/// Compressed calls on devices that wgpu reaches: vectors and residuals stay there, and only messages travel
/// (feature `wgpu`).
///
/// ```no_run
/// use std::sync::Arc;
/// use unisono::ReduceOp;
/// use unisono::compression::wgpu::{OpenOptions, WgpuKernels};
/// use unisono::compression::{CompressedCollectives, CompressionState, KernelDevice, SignL1};
///
/// let world = unisono::init()?;
/// let kernels = WgpuKernels::open(&OpenOptions::default())?;
/// let mut gradients = kernels.allocate(1000)?;
/// let mut state = CompressionState::on(&world, kernels, Arc::new(SignL1::default()), 1000)?;
/// world.compressed_all_reduce_on(&mut gradients, ReduceOp::Avg, &mut state)?;
/// # Ok::<(), unisono::Error>(())
/// ```
#[cfg(feature = "wgpu")]
pub mod wgpu {
    pub use unisono_compression_wgpu::{
        AdapterChoice, OpenOptions, WgpuCode, WgpuKernels, WgpuMemory, adapters, wgpu,
    };
}
