//! Compressed all-reduces of vectors in the memory of the double's devices, by our kernels on their streams. Messages
//! go through the host, or stay on the device.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use unisono_collectives::Collectives;
use unisono_communicator::{CallOptions, Communicator, Error, JobRank, ReduceOp, Result};
use unisono_compression::{
    Bf16, BitOrder, Codec, CompressedCollectives, CompressionState, HostKernels, Int8, KernelDevice, LoCo,
    Route, SignL1, SignRms,
};
use unisono_compression_cuda::{CudaKernels, CudaOptions};
use unisono_engine::in_process;
use unisono_kernels::Kernels;
use unisono_offload::HostMemory;
use unisono_tests::compressed::{averages, averages_of_processor, codecs};
use unisono_tests::cuda::double_kernels;
use unisono_tests::{doubles, watchdog};

use super::on_device::{Rank, SECONDS_MAX};

/// More than one piece of a share for each of three ranks, and no multiple of a block.
const ELEMENTS: usize = 9001;

/// The kernels on the device of this rank.
fn kernels(rank: &Rank) -> CudaKernels {
    let driver = Some(doubles::nccl());
    CudaKernels::open(&CudaOptions { driver, device: rank.rank, code: double_kernels(&[90]) }).unwrap()
}

/// A state of this rank, whose messages stay on its device.
fn state_on_device(
    rank: &Rank,
    device: &CudaKernels,
    codec: &Arc<dyn Codec>,
    elements: usize,
) -> CompressionState<CudaKernels> {
    let state = CompressionState::on(&*rank.comm, device.clone(), codec.clone(), elements).unwrap();
    state.with_messages_on_device(&*rank.comm).unwrap()
}

/// Rows: E3
#[test]
fn vectors_on_devices_have_the_bits_of_the_processor() {
    if !doubles::nccl_has_kernels() {
        return;
    }
    watchdog(SECONDS_MAX, "compressed", || {
        for codec in codecs() {
            let found = Rank::run(3, HostMemory::Staged, |rank| {
                let device = kernels(rank);
                let state =
                    CompressionState::on(&*rank.comm, device.clone(), codec.clone(), ELEMENTS).unwrap();
                averages(&*rank.comm, state, &device).unwrap()
            });
            assert!(found == averages_of_processor(3, &codec, ELEMENTS), "{codec:?}");
        }
    });
}

/// Also where some ranks own nothing, and parts are shorter than a status.
#[test]
fn messages_that_stay_on_devices_give_the_same_bits() {
    if !doubles::nccl_has_kernels() {
        return;
    }
    watchdog(SECONDS_MAX, "on_device", || {
        for codec in codecs() {
            for elements in [ELEMENTS, 1, 0] {
                let found = Rank::run(3, HostMemory::Refused, |rank| {
                    let device = kernels(rank);
                    let state = state_on_device(rank, &device, &codec, elements);
                    averages(&*rank.comm, state, &device).unwrap()
                });
                assert!(found == averages_of_processor(3, &codec, elements), "{elements} by {codec:?}");
            }
        }
    });
}

#[test]
fn residuals_of_one_byte_stay_on_devices_too() {
    if !doubles::nccl_has_kernels() {
        return;
    }
    let codec: Arc<dyn Codec> = Arc::new(SignL1::default());
    watchdog(SECONDS_MAX, "loco", || {
        let expected = in_process::run(3, |comm| {
            let device = HostKernels(Kernels::best());
            let state = CompressionState::on(&*comm, device, codec.clone(), ELEMENTS).unwrap();
            averages(&*comm, state.with_loco(LoCo::default()).unwrap(), &device).unwrap()
        });
        let found = Rank::run(3, HostMemory::Refused, |rank| {
            let device = kernels(rank);
            let state = state_on_device(rank, &device, &codec, ELEMENTS).with_loco(LoCo::default());
            averages(&*rank.comm, state.unwrap(), &device).unwrap()
        });
        assert!(found == expected);
    });
}

/// The call of the others ends by its deadline, and their memory is free.
#[test]
fn a_rank_that_does_not_call_is_named() {
    if !doubles::nccl_has_kernels() {
        return;
    }
    let given_up = Barrier::new(3);
    watchdog(SECONDS_MAX, "left", || {
        Rank::run(3, HostMemory::Refused, |rank| {
            if rank.rank == 1 {
                given_up.wait();
                return;
            }
            let (device, codec) = (kernels(rank), Arc::new(Int8::default()));
            let state = CompressionState::on(&*rank.comm, device.clone(), codec, ELEMENTS).unwrap();
            let mut state = state.with_messages_on_device(&*rank.comm).unwrap();
            let mut vector = device.allocate(ELEMENTS).unwrap();
            let comm = rank.comm.with(CallOptions::new().timeout(Duration::from_millis(300)));
            let lost = comm.compressed_all_reduce_on(&mut vector, ReduceOp::Sum, &mut state).unwrap_err();
            let text = lost.to_string();
            assert!(matches!(lost, Error::Timeout { .. }) && text.contains("rank 1"), "{text}");
            let later = rank.comm.compressed_all_reduce_on(&mut vector, ReduceOp::Sum, &mut state);
            assert!(later.is_err(), "{later:?}");
            drop((vector, state));
            given_up.wait();
        })
    });
}

#[test]
fn an_element_that_is_not_finite_is_named_and_the_next_call_is_right() {
    if !doubles::nccl_has_kernels() {
        return;
    }
    watchdog(SECONDS_MAX, "not_finite", || {
        for codec in codecs() {
            let expected = averages_of_processor(3, &codec, ELEMENTS);
            let found = Rank::run(3, HostMemory::Refused, |rank| {
                let device = kernels(rank);
                let mut state = state_on_device(rank, &device, &codec, ELEMENTS);
                let mut vector = device.allocate(ELEMENTS).unwrap();
                let worst = if rank.rank == 1 { f32::NAN } else { 1.0 };
                device.write(&[worst.to_bits()], &mut vector, 5000).unwrap();
                let refused = rank.comm.compressed_all_reduce_on(&mut vector, ReduceOp::Avg, &mut state);
                let Err(Error::NonFinite { rank: culprit, block, block_elements, .. }) = refused else {
                    panic!("{codec:?}: {refused:?}")
                };
                assert_eq!((culprit, block), (JobRank::new(1), 5000 / block_elements), "{codec:?}");
                averages(&*rank.comm, state, &device).unwrap()
            });
            assert!(found == expected, "{codec:?}");
        }
    });
}

#[test]
fn what_cannot_stay_on_a_device_is_refused() {
    if !doubles::nccl_has_kernels() {
        return;
    }
    let refused = |state: Result<CompressionState<_>>, part: &str| {
        let Err(Error::Unsupported { what, instead: Some(_), .. }) = state else { panic!("not refused") };
        assert!(what.contains(part), "{what}");
    };
    watchdog(SECONDS_MAX, "refused", || {
        Rank::run(2, HostMemory::Refused, |rank| {
            let (comm, device) = (&*rank.comm, kernels(rank));
            let state = |codec| CompressionState::on(comm, device.clone(), codec, 9).unwrap();
            let reordered = Arc::new(SignRms::default().with_bits(BitOrder::MsbFirst));
            refused(state(reordered).with_messages_on_device(comm), "SignRms");
            let on_device = || state(Arc::new(Int8::default())).with_messages_on_device(comm).unwrap();
            refused(on_device().by(Route::SummedCodes, comm), "summed codes with messages on a device");
            refused(on_device().by(Route::TwoLevels, comm), "two levels with messages on a device");
            let host = CompressionState::on(comm, HostKernels(Kernels::best()), Arc::new(Bf16), 9).unwrap();
            let Err(Error::Unsupported { what, .. }) = host.with_messages_on_device(comm) else {
                panic!("not refused")
            };
            assert!(what.contains("HostKernels"), "{what}");
            // The transport between hosts reaches no device.
            let companion = rank.comm.companion().unwrap();
            let over_tcp = CompressionState::on(&*companion, device.clone(), Arc::new(Bf16), 9).unwrap();
            assert!(matches!(over_tcp.with_messages_on_device(&*companion), Err(Error::Unsupported { .. })));
        })
    });
}
