//! Algorithms by name, over the double's sends and receives, with our kernels on its streams.

use unisono_collectives::Collectives;
use unisono_communicator::{CallOptions, Determinism, Error, ReduceOp, Result};
use unisono_cuda::KernelCode;
use unisono_offload::HostMemory;
use unisono_offload_nccl::{Nccl, NcclOptions};
use unisono_tests::cuda::double_kernels;
use unisono_tests::doubles::NcclDouble;
use unisono_tests::on_device::algorithms::named;
use unisono_tests::on_device::{DeviceRank, VendorDouble};
use unisono_tests::{doubles, watchdog};

use super::on_device::SECONDS_MAX;

// All types and operators.
unisono_tests::algorithms_on_device!(NcclDouble, 81);

/// The double, with no kernels on device 1.
struct KernelsMissing;

impl VendorDouble for KernelsMissing {
    type Vendor = Nccl;

    fn open(device: u32) -> Result<Nccl> {
        let kernels = match device {
            1 => KernelCode::Nvrtc(Some("/no/libnvrtc.so".into())),
            _ => double_kernels(&[90]),
        };
        let (library, driver) = (Some(doubles::nccl()), Some(doubles::nccl()));
        Nccl::open(&NcclOptions { library, driver, device, kernels, blocking: false })
    }

    fn control() -> doubles::Control {
        NcclDouble::control()
    }
}

#[test]
fn without_kernels_on_one_rank_all_refuse() {
    watchdog(SECONDS_MAX, "refused", || {
        DeviceRank::<KernelsMissing>::run(3, HostMemory::Staged, |rank| {
            let fixed = CallOptions::new().determinism(Determinism::Fixed);
            for options in [named("ring"), fixed] {
                let refused = rank.comm.with(options).all_reduce(&mut [1u32], ReduceOp::Sum);
                let Err(Error::Unsupported { what, .. }) = refused else { panic!("{refused:?}") };
                assert!(what.ends_with("arithmetic on the device, on every rank"), "{what}");
            }
            let mut sum = [1u32];
            rank.comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
            assert_eq!(sum, [3]);
        })
    });
}
