//! Every kernel, on the test double of the driver, gives the bytes of the definition.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use unisono_tests::kernels_suite::{self, Density};

#[test]
fn every_kernel_is_the_same() {
    if let Some(device) = common::open() {
        kernels_suite::check(&device, Density::FULL, 1);
    }
}
