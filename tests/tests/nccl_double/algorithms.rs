//! Algorithms by name, also a test's own, over the double's sends and receives, with our kernels on its streams.

use std::sync::{Arc, OnceLock};

use unisono_communicator::{
    BufferMut, Buffers, Call, CallOptions, Collective, Collectives, CollectivesOnDevice, Communicator, DType,
    Descriptor, Determinism, Error, Kind, Place, ReduceOp, Result, Trust,
};
use unisono_cuda::KernelCode;
use unisono_engine::in_process;
use unisono_offload::HostMemory;
use unisono_offload_nccl::{Nccl, NcclOptions};
use unisono_schedule::Algorithm;
use unisono_tests::cuda::{double_kernels, kernels_for_host};
use unisono_tests::on_device::{DeviceRank, VendorDouble};
use unisono_tests::{doubles, watchdog};

use crate::on_device::{Rank, SECONDS_MAX};

/// The kernels in the double that all tests of this file share; false, after a line, without g++.
pub(crate) fn has_kernels() -> bool {
    let Some(kernels) = kernels_for_host() else { return false };
    // It stays open: a library that is loaded again has none.
    static CONTROL: OnceLock<doubles::Control> = OnceLock::new();
    CONTROL.get_or_init(|| doubles::Control::open(&doubles::nccl()).unwrap()).load_kernels(kernels)
}

fn named(algorithm: &str) -> CallOptions {
    CallOptions::new().algorithm(algorithm)
}

#[test]
fn an_algorithm_by_name_runs_on_the_stream() {
    if !has_kernels() {
        return;
    }
    watchdog(SECONDS_MAX, "named", || {
        Rank::run(4, HostMemory::Refused, |rank| {
            for name in ["ring", "recursive_doubling", "halving_doubling"] {
                let mut sums = rank.array(&[rank.own(); 1000]);
                let ring = rank.comm.with(named(name));
                let on = ring.on(rank.device_stream());
                let ended = on.wait(on.all_reduce(&mut sums.write(rank), ReduceOp::Sum).unwrap()).unwrap();
                assert_eq!(ended.algorithm, format!("{name} over nccl"));
                assert_eq!(rank.copied(&sums), [10.0; 1000]);
                // Behind it on the stream, without a wait; an input apart stays as it is.
                let input = rank.array(&[rank.own(); 7]);
                let mut halves = rank.array(&[0.0; 7]);
                let halved = ReduceOp::PreMulSum(0.5);
                on.all_reduce_into(&input.read(rank), &mut halves.write(rank), halved).unwrap();
                assert_eq!((rank.copied(&halves), rank.copied(&input)), (vec![5.0; 7], vec![rank.own(); 7]));
            }
        })
    });
}

/// To the left neighbour, as `ring` sends to the right one.
fn leftwards() -> Arc<Algorithm> {
    Arc::new(Algorithm::new("leftwards", Collective::AllGather, |builder| {
        for hop in 1..builder.ranks() {
            builder.send(builder.behind(1), builder.ahead(hop - 1));
            builder.recv(builder.ahead(1), builder.ahead(hop));
        }
        builder.deliver(builder.rank());
    }))
}

#[test]
fn an_algorithm_of_the_users_runs_too() {
    watchdog(SECONDS_MAX, "own", || {
        Rank::run(3, HostMemory::Staged, |rank| {
            rank.comm.register(leftwards(), Trust::Prove).unwrap();
            let ours = rank.comm.with(named("leftwards"));
            let (input, mut all) = (rank.array(&[rank.own(); 2]), rank.array(&[0.0; 6]));
            let on = ours.on(rank.device_stream());
            let ended = on.wait(on.all_gather(&input.read(rank), &mut all.write(rank)).unwrap()).unwrap();
            assert_eq!(ended.algorithm, "leftwards over nccl");
            assert_eq!(rank.copied(&all), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
            let mut on_host = [0u16; 3];
            ours.all_gather(&[rank.rank as u16], &mut on_host).unwrap();
            assert_eq!(on_host, [0, 1, 2]);
        })
    });
}

#[test]
fn two_algorithms_are_a_mismatch() {
    if !has_kernels() {
        return;
    }
    watchdog(SECONDS_MAX, "two", || {
        Rank::run(2, HostMemory::Refused, |rank| {
            let mut array = rank.array(&[1.0; 4]);
            let options = if rank.rank == 0 { CallOptions::new() } else { named("ring") };
            let comm = rank.comm.with(options);
            let on = comm.on(rank.device_stream());
            let ended = on.wait(on.all_reduce(&mut array.write(rank), ReduceOp::Sum).unwrap());
            let Err(error @ Error::Mismatch { .. }) = ended else { panic!("{ended:?}") };
            let text = error.to_string();
            assert!(text.contains("ring over nccl without meeting"), "{text}");
        })
    });
}

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
        doubles::NcclDouble::control()
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
                assert!(what.ends_with("kernels that add on the device, on every rank"), "{what}");
            }
            let mut sum = [1u32];
            rank.comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
            assert_eq!(sum, [3]);
        })
    });
}

/// Bits that are often those of a NaN, an infinity, a zero or a subnormal number.
fn operand(rank: u32, dtype: DType, elements: usize) -> Vec<u8> {
    let width = dtype.bytes();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(rank + 1) << 40;
    let mut bits = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 7 ^ state << 31
    };
    let special = |number: u64| match number % 16 {
        0 => 0,
        1 => 1 << (8 * width - 1),
        2 => !0 >> (65 - 8 * width),
        3 => infinity(dtype),
        4 => number >> 8 & 0xff,
        _ => number.rotate_left(17),
    };
    (0..elements).flat_map(|_| special(bits()).to_le_bytes()[..width].to_vec()).collect()
}

fn infinity(dtype: DType) -> u64 {
    match dtype {
        DType::F16 => 0x7c00,
        DType::BF16 => 0x7f80,
        DType::F32 => 0x7f80_0000,
        DType::F64 => 0x7ff0_0000_0000_0000,
        _ => 7,
    }
}

fn is_nan(dtype: DType, element: &[u8]) -> bool {
    let mut bytes = [0; 8];
    bytes[..element.len()].copy_from_slice(element);
    let magnitude = u64::from_le_bytes(bytes) & !(1 << (8 * element.len() - 1));
    matches!(dtype.kind(), Kind::Float(_)) && magnitude > infinity(dtype)
}

/// What an all-reduce of both ranks' operands leaves.
fn all_reduced(comm: &dyn Communicator, dtype: DType, op: ReduceOp, elements: usize) -> Vec<u8> {
    let mut bytes = operand(comm.group().rank(), dtype, elements);
    let descriptor = Descriptor {
        op: Some(op),
        place: Place::InPlace,
        ..Descriptor::new(Collective::AllReduce, dtype, elements as u64)
    };
    let call = Call::new(descriptor, Buffers::InOut(BufferMut::of(&mut bytes)));
    comm.with(named("recursive_doubling")).issue(call).unwrap();
    bytes
}

#[test]
fn the_kernels_have_the_bits_of_the_engine() {
    if !has_kernels() {
        return;
    }
    // Not a multiple of what a thread takes.
    const ELEMENTS: usize = 3001;
    let integers =
        [DType::I8, DType::U8, DType::I16, DType::U16, DType::I32, DType::U32, DType::I64, DType::U64];
    let floats = [DType::F16, DType::BF16, DType::F32, DType::F64];
    let ops = ReduceOp::PLAIN.iter().copied().chain([ReduceOp::PreMulSum(-1.3)]);
    let cases = || {
        let dtypes = integers.into_iter().chain(floats);
        dtypes
            .flat_map(|dtype| ops.clone().map(move |op| (dtype, op)))
            .filter(|(dtype, op)| op.accepts(*dtype))
    };
    let all = |comm: &dyn Communicator| {
        cases().map(|(dtype, op)| all_reduced(comm, dtype, op, ELEMENTS)).collect::<Vec<_>>()
    };
    watchdog(SECONDS_MAX, "bits", || {
        let expected = in_process::run(2, |comm| all(&*comm));
        let found = Rank::run(2, HostMemory::Staged, |rank| all(&*rank.comm));
        assert!(cases().count() > 80);
        for ((dtype, op), (expected, found)) in cases().zip(expected[0].iter().zip(&found[0])) {
            let width = dtype.bytes();
            for (at, (expected, found)) in expected.chunks(width).zip(found.chunks(width)).enumerate() {
                let are_nans = is_nan(dtype, expected) && is_nan(dtype, found);
                assert!(
                    expected == found || are_nans,
                    "{op} of {dtype}, {at}: {found:x?}, not {expected:x?}"
                );
            }
        }
    });
}

#[test]
fn a_fixed_order_gives_the_bits_of_other_transports() {
    if !has_kernels() {
        return;
    }
    let sum = |comm: &dyn Communicator| {
        let own = comm.group().rank() as f32;
        let mut rough: Vec<f32> = (0..999).map(|at| (own * 7.3 + at as f32).sin() * 1e3).collect();
        comm.with(CallOptions::new().determinism(Determinism::Fixed))
            .all_reduce(&mut rough, ReduceOp::Sum)
            .unwrap();
        rough.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    watchdog(SECONDS_MAX, "fixed", || {
        let expected = in_process::run(3, |comm| sum(&*comm));
        let found = Rank::run(3, HostMemory::Staged, |rank| sum(&*rank.comm));
        assert_eq!(found, expected);
    });
}
