//! Every kernel on a device gives the words of the definition, also where calls are divided into several dispatches.

use unisono_tests::kernels_suite::{self, Density};

const SEED: u64 = 0x5eed;

/// Rows: G13
#[test]
fn every_kernel_is_the_same() {
    if let Some(device) = crate::support::device() {
        kernels_suite::check(device, Density::QUICK, SEED);
    }
}

#[test]
fn every_kernel_is_the_same_within_small_limits() {
    if let Some(device) = crate::support::small_device() {
        kernels_suite::check(device, Density::QUICK, SEED + 1);
    }
}
