//! Vectors of cudarc and their views in typed calls: cudarc's own code, over the double of the driver. In a process of
//! its own, whose loader finds the double under the driver's name.

#![expect(unsafe_code, reason = "memory and streams of a device, by their addresses")]

use std::env;
use std::process::Command;

use cudarc::driver::{CudaContext, CudaSlice};
use unisono_collectives::CollectivesOnDevice;
use unisono_communicator::{DeviceSlice, DeviceSliceMut, DeviceStream, ReduceOp};
use unisono_offload::HostMemory;
use unisono_tests::{doubles, watchdog};

use super::on_device::{Rank, SECONDS_MAX};

const IS_CHILD: &str = "TEST_HAS_DRIVER";

/// What is there. The double copies later, as CUDA does to memory that is locked.
fn copied(slice: &CudaSlice<f32>) -> Vec<f32> {
    let values = slice.stream().clone_dtoh(slice).unwrap();
    slice.stream().synchronize().unwrap();
    values
}

fn calls(rank: &Rank) {
    let context = CudaContext::new(rank.rank as usize).unwrap();
    let stream = context.new_stream().unwrap();
    // SAFETY: cudarc's stream is of the device's primary context, and lives as long as the calls.
    let on =
        rank.comm.on(unsafe { DeviceStream::from_raw(stream.cu_stream().expose_provenance(), rank.rank) });
    let mut sums = stream.clone_htod(&[rank.own(); 6]).unwrap();
    // SAFETY: the vector lives until the call is done.
    let mut elements = unsafe { DeviceSliceMut::of(&mut sums) }.unwrap();
    assert_eq!(elements.len(), 6);
    on.wait(on.all_reduce(&mut elements, ReduceOp::Sum).unwrap()).unwrap();
    assert_eq!(copied(&sums), [3.0; 6]);

    // Two elements of each rank, from the third on, become the last four.
    let own = stream.clone_htod(&[0.0, 0.0, rank.own(), 10.0 * rank.own()]).unwrap();
    let (part, mut end) = (own.slice(2..4), sums.slice_mut(2..6));
    // SAFETY: as above.
    let (input, mut output) =
        unsafe { (DeviceSlice::of(&part).unwrap(), DeviceSliceMut::of(&mut end).unwrap()) };
    on.wait(on.all_gather(&input, &mut output).unwrap()).unwrap();
    assert_eq!(copied(&sums), [3.0, 3.0, 1.0, 10.0, 2.0, 20.0]);
}

#[test]
fn vectors_and_views_are_elements() {
    if env::var_os(IS_CHILD).is_some() {
        return watchdog(SECONDS_MAX, "cudarc", || drop(Rank::run(2, HostMemory::Refused, calls)));
    }
    watchdog(SECONDS_MAX, "cudarc in a process", || {
        let folder = tempfile::tempdir().unwrap();
        // The loader takes two names of one file for one library, so that NCCL's double knows this memory.
        std::os::unix::fs::symlink(doubles::nccl(), folder.path().join("libcuda.so")).unwrap();
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", "nccl_double::cudarc_slices::vectors_and_views_are_elements", "--nocapture"]);
        child.env(IS_CHILD, "").env("LD_LIBRARY_PATH", folder.path());
        assert!(child.status().unwrap().success());
    });
}
