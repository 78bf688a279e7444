//! Compressed calls of ranks with cards (test doubles) and ranks without: the bits of ranks that have none.

use std::sync::Arc;

use unisono_communicator::{Communicator, ReduceOp};
use unisono_compression::{
    Bf16, BitOrder, Codec, CompressedCollectives, CompressionState, DeviceMemory, HostKernels, Int4, Int8,
    IntOptions, KernelDevice, Route, SignL1, SignRms,
};
use unisono_engine::in_process::{self, EngineOptions};
use unisono_kernels::Kernels;
use unisono_tests::compressed::gradients;
use unisono_tests::cuda::kernels_for_host;
use unisono_tests::doubles;

const CALLS: u64 = 3;

fn codecs() -> Vec<Arc<dyn Codec>> {
    let options = IntOptions { feedback: true, ..IntOptions::default() };
    vec![
        Arc::new(SignL1::default()),
        Arc::new(SignL1::with_block(64).unwrap()),
        Arc::new(SignRms::default()),
        Arc::new(SignRms::default().with_bits(BitOrder::MsbFirst)),
        Arc::new(Int8::default()),
        Arc::new(Int8::new(IntOptions { stochastic: Some(3), symmetric: false, ..options }).unwrap()),
        Arc::new(Int4::new(IntOptions { stochastic: Some(7), block: 512, ..options }).unwrap()),
        Arc::new(Bf16),
    ]
}

/// The bits of all calls' results and of the residuals in the end.
fn train<D: KernelDevice>(
    comm: &dyn Communicator,
    device: &D,
    codec: &Arc<dyn Codec>,
    elements: usize,
    route: Route,
) -> Vec<u32> {
    let state = CompressionState::on(comm, device.clone(), codec.clone(), elements).unwrap();
    let mut state = state.by(route, comm).unwrap();
    let mut bits = Vec::new();
    let mut vector = device.allocate(elements).unwrap();
    for call in 0..CALLS {
        let gradients: Vec<u32> =
            gradients(comm.group().rank(), call, elements).into_iter().map(f32::to_bits).collect();
        device.write(&gradients, &mut vector, 0).unwrap();
        let op = if call == 1 { ReduceOp::Avg } else { ReduceOp::Sum };
        comm.compressed_all_reduce_on(&mut vector, op, &mut state).unwrap();
        let mut result = vec![0; vector.words()];
        device.read(&vector, 0, &mut result).unwrap();
        bits.extend(result);
    }
    bits
}

/// On hosts like these, once with the processor everywhere and once with cards on every other rank.
fn check(hosts: &[u32], codec: &Arc<dyn Codec>, elements: usize, route: Route) {
    let run = |has_card: &(dyn Fn(u32) -> bool + Sync)| {
        in_process::run_on_hosts(
            hosts,
            &EngineOptions::default(),
            |_, links| links,
            |comm| {
                let is_on_card = has_card(comm.group().rank());
                match if is_on_card { crate::common::open() } else { None } {
                    Some(card) => train(&*comm, &card, codec, elements, route),
                    None => train(&*comm, &HostKernels(Kernels::best()), codec, elements, route),
                }
            },
        )
    };
    let expected = run(&|_| false);
    assert!(expected.iter().all(|bits| *bits == expected[0]), "replicas differ");
    for first in 0..2 {
        let found = run(&|rank| rank % 2 == first);
        assert!(found == expected, "{codec:?}, {elements} elements on {hosts:?}, {route:?}");
    }
}

#[test]
fn cards_and_processors_take_part_in_the_same_calls() {
    if crate::common::open().is_none() {
        return;
    }
    for codec in codecs() {
        for (hosts, elements) in [(&[0][..], 1), (&[0, 0], 700), (&[0, 0, 0], 4100), (&[0, 1, 2, 3, 4], 9001)]
        {
            check(hosts, &codec, elements, Route::Direct);
        }
    }
}

#[test]
fn hosts_with_cards_sum_before_they_encode() {
    if crate::common::open().is_none() {
        return;
    }
    for codec in codecs() {
        check(&[0, 0, 1, 1], &codec, 4100, Route::TwoLevels);
        check(&[0, 1, 1, 2, 1], &codec, 700, Route::TwoLevels);
    }
}

#[test]
fn codes_are_added_on_their_way() {
    if crate::common::open().is_none() {
        return;
    }
    let options = IntOptions { feedback: true, ..IntOptions::default() };
    let codecs: [Arc<dyn Codec>; 3] = [
        Arc::new(Int8::default()),
        Arc::new(Int8::new(IntOptions { stochastic: Some(5), ..options }).unwrap()),
        Arc::new(Int4::new(options).unwrap()),
    ];
    for codec in codecs {
        check(&[0, 0, 0], &codec, 4100, Route::SummedCodes);
        check(&[0, 1, 2, 3, 4], &codec, 700, Route::SummedCodes);
    }
}

#[test]
fn streams_that_go_on_by_themselves_give_the_same_bits() {
    let Some(kernels) = kernels_for_host() else { return };
    let folder = tempfile::tempdir().unwrap();
    let driver = doubles::nccl_with(folder.path(), "calls", None);
    let control = doubles::Control::open(&driver).unwrap();
    assert!(control.load_kernels(kernels));
    for codec in codecs() {
        let run = |has_card: bool| {
            in_process::run_on_hosts(
                &[0, 0, 0],
                &EngineOptions::default(),
                |_, links| links,
                |comm| {
                    let rank = comm.group().rank();
                    let route = Route::Direct;
                    match has_card {
                        true => {
                            train(&*comm, &crate::common::open_device(&driver, rank), &codec, 4100, route)
                        }
                        false => train(&*comm, &HostKernels(Kernels::best()), &codec, 4100, route),
                    }
                },
            )
        };
        assert!(run(true) == run(false), "{codec:?}");
    }
    assert_eq!((control.live_handles(), control.misuses()), (0, 0));
}
