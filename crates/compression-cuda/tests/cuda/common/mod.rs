//! Kernels on the test double of the driver.

#![allow(dead_code, reason = "every test takes its own part")]

use std::path::{Path, PathBuf};

use unisono_communicator::Result;
use unisono_compression_cuda::{CudaKernels, CudaOptions};
use unisono_tests::cuda::{double_kernels, driver_double, failing_double};

/// On the double in this file.
pub(crate) fn open_on(driver: &Path) -> Result<CudaKernels> {
    let options = CudaOptions {
        driver: Some(driver.to_owned()),
        code: double_kernels(&[90]),
        ..CudaOptions::default()
    };
    CudaKernels::open(&options)
}

/// On a double that never fails, unless there is none on this machine.
pub(crate) fn open() -> Option<CudaKernels> {
    Some(open_on(driver_double()?).unwrap())
}

/// A double that fails in this way.
pub(crate) fn failing(requests: &str) -> Option<PathBuf> {
    failing_double(requests)
}

/// On a device of the double in this file.
pub(crate) fn open_device(driver: &Path, device: u32) -> CudaKernels {
    CudaKernels::open(&CudaOptions { driver: Some(driver.to_owned()), code: double_kernels(&[90]), device })
        .unwrap()
}
