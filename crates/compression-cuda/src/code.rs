//! The text of the kernels.

use unisono_communicator::Result;
use unisono_cuda::{Capability, Code, Nvrtc, Source};
use unisono_kernels::cuda;

/// Every kernel's name.
pub const KERNELS: [&str; 20] = [
    "average",
    "bf16_decode_sum",
    "bf16_encode",
    "bf16_expand",
    "bf16_reduce_encode",
    "compensate",
    "int_decode_sum",
    "int_encode",
    "int_encode_shared",
    "int_expand",
    "int_expand_shared",
    "int_magnitudes",
    "int_reduce_encode",
    "sign_decode_sum",
    "sign_encode",
    "sign_expand",
    "sign_pack",
    "sign_reduce_encode",
    "sign_reduce_global",
    "sum",
];

/// The program of the kernels, for NVRTC.
pub fn source() -> Source<'static> {
    Source {
        name: "kernels.cu",
        text: cuda::KERNELS,
        headers: cuda::FILES,
        options: &["--std=c++17", "--fmad=false"],
    }
}

/// Compiles the kernels for a kind of card. It takes seconds.
///
/// # Errors
/// As [`Nvrtc::compile`].
pub fn compile(nvrtc: &Nvrtc, capability: Capability) -> Result<Code> {
    nvrtc.compile(&source(), capability)
}
