//! The adapter that tests run on.

#![allow(dead_code, reason = "every test file takes its own part")]

use std::sync::OnceLock;

use unisono_communicator::Error;
use unisono_compression_wgpu::{AdapterChoice, OpenOptions, WgpuKernels, wgpu};

/// A device of the software adapter, with these limits. `None` without the adapter, which is a failure where
/// `UNISONO_REQUIRE` lists `wgpu`.
pub(crate) fn open(limits: Option<wgpu::Limits>) -> Option<WgpuKernels> {
    match WgpuKernels::open(&OpenOptions { adapter: AdapterChoice::Software, limits }) {
        Ok(kernels) => Some(kernels),
        Err(error @ Error::LibraryMissing { .. }) => {
            unisono_tests::skip("wgpu", &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The device that all tests of a file share: compiling the kernels takes a while.
pub(crate) fn device() -> Option<&'static WgpuKernels> {
    static DEVICE: OnceLock<Option<WgpuKernels>> = OnceLock::new();
    DEVICE.get_or_init(|| open(None)).as_ref()
}
