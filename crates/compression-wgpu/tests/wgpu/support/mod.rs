//! The adapter that tests run on.

#![allow(dead_code, reason = "every test file takes its own part")]

use std::sync::OnceLock;

use unisono_communicator::Error;
use unisono_compression_wgpu::{AdapterChoice, OpenOptions, WgpuKernels, wgpu};

/// The name of an adapter to test in place of the software adapter, such as a GPU's.
const ADAPTER: &str = "UNISONO_TEST_ADAPTER";

/// A device of the adapter, with these limits. `None` without the adapter, which is a failure where `UNISONO_REQUIRE`
/// lists `wgpu`.
#[expect(clippy::disallowed_methods, reason = "a setting of tests, no knob of the library")]
pub(crate) fn open(limits: Option<wgpu::Limits>) -> Option<WgpuKernels> {
    let adapter = std::env::var(ADAPTER).map_or(AdapterChoice::Software, AdapterChoice::Named);
    match WgpuKernels::open(&OpenOptions { adapter, limits }) {
        Ok(kernels) => Some(kernels),
        Err(error @ Error::LibraryMissing { .. }) => {
            unisono_tests::skip("wgpu", &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The device that all tests share: compiling the kernels takes a while.
pub(crate) fn device() -> Option<&'static WgpuKernels> {
    static DEVICE: OnceLock<Option<WgpuKernels>> = OnceLock::new();
    shared(&DEVICE, None)
}

/// A device whose bindings hold little more than the largest block of as many parts as tests have, and whose dispatches
/// have three workgroups.
pub(crate) fn small_device() -> Option<&'static WgpuKernels> {
    static DEVICE: OnceLock<Option<WgpuKernels>> = OnceLock::new();
    let limits = wgpu::Limits {
        max_storage_buffer_binding_size: 37 << 10,
        max_compute_workgroups_per_dimension: 3,
        min_storage_buffer_offset_alignment: 256,
        ..device()?.device().limits()
    };
    shared(&DEVICE, Some(limits))
}

/// Each test says that it is left out, not only the first one.
fn shared(
    device: &'static OnceLock<Option<WgpuKernels>>,
    limits: Option<wgpu::Limits>,
) -> Option<&'static WgpuKernels> {
    match device.get() {
        Some(None) => open(limits).and(None),
        _ => device.get_or_init(|| open(limits)).as_ref(),
    }
}
