//! Every kernel against the definition, on short and long vectors of all kinds of numbers.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;
use unisono_compression_cuda::CudaKernels;
use unisono_tests::kernels_suite::{self, Density, Kernel};

/// What a kernel came to.
#[derive(Serialize)]
pub(crate) struct Check {
    kernel: String,
    /// The first difference, if there is one.
    pub(crate) failure: Option<String>,
}

/// Checks all, and prints a line for each that differs.
pub(crate) fn run(kernels: &CudaKernels, seed: u64) -> Vec<Check> {
    let check = |kernel: Kernel| {
        // A kernel that fails panics, and so does every one after it.
        let call = || kernels_suite::check_kernel(kernels, kernel, Density::FULL, seed);
        let failure = match catch_unwind(AssertUnwindSafe(call)) {
            Ok(result) => result.err(),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                Some(text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panicked").to_owned())
            }
        };
        if let Some(failure) = &failure {
            println!("{kernel:?} DIFFERS: {failure}");
        }
        Check { kernel: format!("{kernel:?}"), failure }
    };
    let checks: Vec<Check> = Kernel::ALL.into_iter().map(check).collect();
    let right = checks.iter().filter(|check| check.failure.is_none()).count();
    println!("{right} of {} kernels give the bytes of the definition", checks.len());
    checks
}
