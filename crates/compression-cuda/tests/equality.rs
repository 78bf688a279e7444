//! Every kernel, on the test double of the driver, gives the bytes of the definition.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::OnceLock;

use unisono_compression_cuda::cuda::{Capability, Code};
use unisono_compression_cuda::{Compiled, CudaKernels, CudaOptions, KernelCode};
use unisono_tests::cuda::{DOUBLE_CODE, driver_double};
use unisono_tests::kernels_suite;

fn device() -> Option<&'static CudaKernels> {
    static DEVICE: OnceLock<Option<CudaKernels>> = OnceLock::new();
    let open = || {
        let compiled = Compiled { capability: Capability::from_number(90), code: Code::new(DOUBLE_CODE) };
        let code = KernelCode::Compiled(vec![compiled]);
        let options = CudaOptions { driver: Some(driver_double()?.to_owned()), code, ..Default::default() };
        Some(CudaKernels::open(&options).unwrap())
    };
    DEVICE.get_or_init(open).as_ref()
}

macro_rules! suite {
    ($($area:ident,)*) => {
        $(
            #[test]
            fn $area() {
                if let Some(device) = device() {
                    kernels_suite::$area(device, 1);
                }
            }
        )*
    };
}

suite!(signs, signs_with_one_scale, integers, integers_by_shared_scales, narrow_floats, vectors,);
