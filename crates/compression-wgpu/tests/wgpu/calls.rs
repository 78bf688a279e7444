//! Compressed all-reduces of vectors that stay on devices give the same bits as on the host.

use std::sync::Arc;

use unisono_communicator::{Communicator, Error, ReduceOp, Result};
use unisono_compression::{
    Bf16, BitOrder, Codec, CompressedCollectives, CompressionState, HostKernels, Int4, Int8, IntOptions,
    KernelDevice, LoCo, Route, SignL1, SignRms,
};
use unisono_compression_wgpu::{WgpuCode, WgpuKernels};
use unisono_engine::in_process::{self, EngineOptions};
use unisono_kernels::Kernels;
use unisono_tests::compressed::{CodecStep, WatchedCodec, bits, gradients};

fn codecs() -> Vec<Arc<dyn Codec>> {
    let options = IntOptions { feedback: true, ..IntOptions::default() };
    vec![
        Arc::new(SignL1::default()),
        Arc::new(SignL1::with_block(64).unwrap().without_feedback()),
        Arc::new(SignRms::default().with_bits(BitOrder::MsbFirst)),
        Arc::new(Int8::new(IntOptions { symmetric: false, ..options }).unwrap()),
        Arc::new(Int8::default()),
        Arc::new(Int4::new(IntOptions { stochastic: Some(7), block: 512, ..options }).unwrap()),
        Arc::new(Bf16),
    ]
}

/// The hosts of a world, the making of a state, the numbers of elements and of calls.
struct Plan<'a> {
    hosts: &'a [u32],
    codec: &'a Arc<dyn Codec>,
    route: Route,
    loco: Option<LoCo>,
    elements: usize,
    calls: u64,
}

impl Plan<'_> {
    /// The results of every rank after each call.
    fn run<D: KernelDevice + Sync>(&self, device: impl Fn() -> D + Sync) -> Vec<Vec<Vec<u32>>> {
        let rank = |comm: Arc<dyn Communicator>| self.rank(&*comm, device()).unwrap();
        in_process::run_on_hosts(self.hosts, &EngineOptions::default(), |_, links| links, rank)
    }

    fn rank<D: KernelDevice>(&self, comm: &dyn Communicator, device: D) -> Result<Vec<Vec<u32>>> {
        let elements = self.elements;
        let state = CompressionState::on(comm, device.clone(), self.codec.clone(), elements)?;
        let mut state = state.by(self.route, comm)?;
        if let Some(loco) = self.loco {
            state = state.with_loco(loco)?;
        }
        let mut vector = device.allocate(elements)?;
        let call = |call| {
            device.write(&bits(&gradients(comm.group().rank(), call, elements)), &mut vector, 0)?;
            comm.compressed_all_reduce_on(&mut vector, ReduceOp::Avg, &mut state)?;
            let mut sum = vec![0; elements];
            device.read(&vector, 0, &mut sum)?;
            Ok(sum)
        };
        (0..self.calls).map(call).collect()
    }

    fn check(&self, device: &WgpuKernels) {
        let expected = self.run(|| HostKernels(Kernels::best()));
        let found = self.run(|| device.clone());
        let Plan { hosts, codec, route, loco, elements, .. } = self;
        assert!(found == expected, "{elements} elements on {hosts:?} by {codec:?}, {route:?}, {loco:?}");
    }
}

#[test]
fn every_codec_gives_the_bits_of_the_host() {
    let Some(device) = crate::support::device() else { return };
    for codec in &codecs() {
        for (hosts, elements) in [(&[0, 1, 2][..], 5001), (&[0, 1], 130), (&[0], 700), (&[0, 1, 2, 3, 4], 3)]
        {
            Plan { hosts, codec, route: Route::Direct, loco: None, elements, calls: 3 }.check(device);
        }
    }
}

#[test]
fn calls_of_several_pieces_give_the_bits_of_the_host() {
    let Some(device) = crate::support::device() else { return };
    let codecs: [Arc<dyn Codec>; 2] = [Arc::new(SignL1::default()), Arc::new(Int8::default())];
    for codec in &codecs {
        Plan { hosts: &[0, 1], codec, route: Route::Direct, loco: None, elements: 650_000, calls: 2 }
            .check(device);
    }
}

#[test]
fn summed_codes_give_the_bits_of_the_host() {
    let Some(device) = crate::support::device() else { return };
    for width in [4, 8] {
        let options = IntOptions { stochastic: Some(5), feedback: width == 4, ..IntOptions::default() };
        let codec: Arc<dyn Codec> = match width {
            4 => Arc::new(Int4::new(options).unwrap()),
            _ => Arc::new(Int8::new(options).unwrap()),
        };
        for hosts in [&[0][..], &[0, 1], &[0, 1, 2]] {
            let plan = Plan {
                hosts,
                codec: &codec,
                route: Route::SummedCodes,
                loco: None,
                elements: 3001,
                calls: 3,
            };
            plan.check(device);
        }
    }
}

#[test]
fn two_levels_and_averaged_residuals_give_the_bits_of_the_host() {
    let Some(device) = crate::support::device() else { return };
    let int4: Arc<dyn Codec> =
        Arc::new(Int4::new(IntOptions { feedback: true, ..IntOptions::default() }).unwrap());
    let sign: Arc<dyn Codec> = Arc::new(SignL1::default());
    let loco = Some(LoCo { average_shift: 2, reset_calls: 2 });
    for codec in [&int4, &sign] {
        for (route, loco) in [(Route::TwoLevels, None), (Route::Direct, loco), (Route::TwoLevels, loco)] {
            Plan { hosts: &[0, 0, 1, 1], codec, route, loco, elements: 3000, calls: 5 }.check(device);
        }
    }
}

/// Each rank has a device of its own, as ranks in processes do.
#[test]
fn ranks_may_have_devices_of_their_own() {
    let Some(device) = crate::support::device() else { return };
    let codec: Arc<dyn Codec> = Arc::new(SignL1::default());
    let plan =
        Plan { hosts: &[0, 1], codec: &codec, route: Route::Direct, loco: None, elements: 9000, calls: 2 };
    assert_eq!(plan.run(|| crate::support::open(None).unwrap()), plan.run(|| device.clone()));
}

#[test]
fn memory_of_another_device_is_refused_before_anything_is_sent() {
    let (Some(device), Some(other)) = (crate::support::device(), crate::support::open(None)) else { return };
    in_process::run(2, |comm| {
        let mut state = CompressionState::on(&*comm, device.clone(), Arc::new(Bf16), 8).unwrap();
        let mut elsewhere = other.allocate(8).unwrap();
        let result = comm.compressed_all_reduce_on(&mut elsewhere, ReduceOp::Sum, &mut state);
        assert!(matches!(result, Err(Error::Unsupported { .. })), "{result:?}");
        // The communicator, the state and the device are as usable as before.
        let mut vector = device.allocate(8).unwrap();
        comm.compressed_all_reduce_on(&mut vector, ReduceOp::Sum, &mut state).unwrap();
    });
}

/// All ranks get the error of the rank whose device is lost in the middle of the call.
#[test]
fn a_lost_device_ends_the_call_on_all_ranks() {
    let Some(doomed) = crate::support::open(None) else { return };
    let errors = in_process::run(3, |comm| {
        let is_doomed = comm.group().rank() == 1;
        let device = if is_doomed { doomed.clone() } else { crate::support::open(None).unwrap() };
        let victim = device.clone();
        let codec = WatchedCodec::shared(Arc::new(SignL1::default()), move |step| {
            if is_doomed && step == CodecStep::Reduce {
                victim.device().destroy();
            }
        });
        let mut state = CompressionState::on(&*comm, device.clone(), codec, 5000).unwrap();
        let mut vector = device.allocate(5000).unwrap();
        comm.compressed_all_reduce_on(&mut vector, ReduceOp::Sum, &mut state).unwrap_err()
    });
    for (rank, error) in errors.iter().enumerate() {
        let Error::Vendor { code, call, .. } = error.root_cause() else { panic!("rank {rank}: {error}") };
        assert_eq!(*code, WgpuCode::Lost as i32, "rank {rank}: {error}");
        assert!(!call.is_empty());
    }
}
