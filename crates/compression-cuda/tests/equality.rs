//! Every kernel, on the test double of the driver, gives the bytes of the definition.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::OnceLock;

use unisono_compression_cuda::CudaKernels;
use unisono_tests::kernels_suite;

const SEED: u64 = 1;

macro_rules! suite {
    ($($area:ident,)*) => {
        $(
            #[test]
            fn $area() {
                static DEVICE: OnceLock<Option<CudaKernels>> = OnceLock::new();
                if let Some(device) = DEVICE.get_or_init(common::open) {
                    kernels_suite::$area(device, SEED);
                }
            }
        )*
    };
}

suite!(signs, signs_with_one_scale, integers, integers_by_shared_scales, narrow_floats, vectors,);
