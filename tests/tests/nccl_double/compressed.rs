//! Compressed all-reduces of vectors in the memory of the double's devices, by our kernels on their streams. The
//! messages, which come to the host, are the library's.

use std::sync::Arc;

use unisono_communicator::{Communicator, ReduceOp};
use unisono_compression::{
    Bf16, Codec, CompressedCollectives, CompressionState, DeviceMemory, HostKernels, Int4, Int8,
    KernelDevice, SignL1, SignRms,
};
use unisono_compression_cuda::{CudaKernels, CudaOptions};
use unisono_engine::in_process;
use unisono_kernels::Kernels;
use unisono_offload::HostMemory;
use unisono_tests::compressed::gradients;
use unisono_tests::cuda::double_kernels;
use unisono_tests::{doubles, watchdog};

use crate::on_device::{Rank, SECONDS_MAX};

const CALLS: u64 = 3;

/// More than one piece of a share for each of three ranks, and no multiple of a block.
const ELEMENTS: usize = 9001;

/// The bits of the results, one call after the other, with what is owed carried along.
fn train<D: KernelDevice>(comm: &dyn Communicator, device: &D, codec: &Arc<dyn Codec>) -> Vec<u32> {
    let mut state = CompressionState::on(comm, device.clone(), codec.clone(), ELEMENTS).unwrap();
    let mut vector = device.allocate(ELEMENTS).unwrap();
    let mut bits = Vec::new();
    for call in 0..CALLS {
        let own = gradients(comm.group().rank(), call, ELEMENTS);
        device.write(bytemuck::cast_slice(&own), &mut vector, 0).unwrap();
        comm.compressed_all_reduce_on(&mut vector, ReduceOp::Avg, &mut state).unwrap();
        let mut result = vec![0; vector.words()];
        device.read(&vector, 0, &mut result).unwrap();
        bits.extend(result);
    }
    bits
}

#[test]
fn vectors_on_devices_have_the_bits_of_the_processor() {
    if !doubles::nccl_has_kernels() {
        return;
    }
    let codecs: [Arc<dyn Codec>; 5] = [
        Arc::new(SignL1::default()),
        Arc::new(SignRms::default()),
        Arc::new(Int8::default()),
        Arc::new(Int4::default()),
        Arc::new(Bf16),
    ];
    watchdog(SECONDS_MAX, "compressed", || {
        for codec in &codecs {
            let expected = in_process::run(3, |comm| train(&*comm, &HostKernels(Kernels::best()), codec));
            let found = Rank::run(3, HostMemory::Staged, |rank| {
                let driver = Some(doubles::nccl());
                let options = CudaOptions { driver, device: rank.rank, code: double_kernels(&[90]) };
                train(&*rank.comm, &CudaKernels::open(&options).unwrap(), codec)
            });
            assert!(found == expected, "{codec:?}");
        }
    });
}
