//! Every kernel of compression against the definition, on short and long vectors of all kinds of numbers.

use unisono_compression_cuda::CudaKernels;
use unisono_tests::kernels_suite::{self, Density, Kernel};

use crate::report::{Check, check};

/// Checks all. A kernel that fails panics, and so does every one after it.
pub(crate) fn run(kernels: &CudaKernels, density: Density, seed: u64) -> Vec<Check> {
    let of = |kernel: Kernel| {
        let name = format!("kernel {kernel:?}");
        check(name, || kernels_suite::check_kernel(kernels, kernel, density, seed).map(drop))
    };
    Kernel::ALL.into_iter().map(of).collect()
}
