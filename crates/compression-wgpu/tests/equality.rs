//! Every kernel on a device gives the words of the definition, also where calls are divided into several dispatches.

mod support;

use unisono_compression_wgpu::WgpuKernels;
use unisono_tests::kernels_suite;

const SEED: u64 = 0x5eed;

/// On a device with all limits of the adapter, and on one with small ones.
fn on_both(check: impl Fn(&WgpuKernels, u64)) {
    for device in [support::device(), support::small_device()].into_iter().flatten() {
        check(device, SEED);
    }
}

#[test]
fn signs_are_the_same() {
    on_both(kernels_suite::signs);
}

#[test]
fn signs_with_one_scale_are_the_same() {
    on_both(kernels_suite::signs_with_one_scale);
}

#[test]
fn integers_are_the_same() {
    on_both(kernels_suite::integers);
}

#[test]
fn integers_by_shared_scales_are_the_same() {
    on_both(kernels_suite::integers_by_shared_scales);
}

#[test]
fn bf16_is_the_same() {
    on_both(kernels_suite::narrow_floats);
}

#[test]
fn vectors_are_the_same() {
    on_both(kernels_suite::vectors);
}
