//! Compressed all-reduces of vectors in the memory of the double's devices, by aclnn's operators on their streams. The
//! messages, which come to the host, are the library's.

use std::sync::Arc;

use unisono_communicator::{Buffer, BufferMut, Communicator, Error, ReduceOp, Result, SegmentsMut};
use unisono_compression::{
    Codec, CodecKernels, CompressedCollectives, CompressionState, DeviceMemory, EncodeContext, Feedback,
    HostKernels, KernelDevice, SignRms,
};
use unisono_compression_npu::{HcclOptions, NpuKernels};
use unisono_engine::in_process;
use unisono_kernels::Kernels;
use unisono_offload::HostMemory;
use unisono_tests::compressed::gradients;
use unisono_tests::doubles::{self, HcclDouble};
use unisono_tests::on_device::{DeviceRank, SECONDS_MAX};
use unisono_tests::watchdog;

type HcclRank = DeviceRank<HcclDouble>;

const CALLS: u64 = 4;

/// Around bytes, and more than one piece of a share for each of three ranks.
const LENGTHS: [usize; 7] = [0, 1, 7, 8, 9, 1025, 60_017];

fn npu(device: u32) -> NpuKernels {
    NpuKernels::open(&HcclOptions { directory: Some(doubles::hccl_folder()), device }).unwrap()
}

fn host() -> HostKernels {
    HostKernels(Kernels::best())
}

/// `SignRms` with scales of 12 bits: devices whose norms differ in the last of 24 have the same ones.
#[derive(Debug)]
struct CoarseScale(SignRms);

fn coarse(scale: f32) -> f32 {
    f32::from_bits((scale.to_bits() + (1 << 11)) & !((1 << 12) - 1))
}

/// The same memory, for a shorter time.
fn reborrow<'b>(buffer: &'b mut BufferMut<'_>) -> BufferMut<'b> {
    match buffer {
        BufferMut::Host(SegmentsMut::One(bytes)) => BufferMut::Host(SegmentsMut::One(bytes)),
        BufferMut::Host(_) => panic!("codecs are given no lists"),
        BufferMut::Device(memory) => BufferMut::Device(memory),
    }
}

impl Codec for CoarseScale {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn tag(&self) -> String {
        "coarse".to_owned()
    }

    fn block(&self) -> usize {
        self.0.block()
    }

    fn encoded_words(&self, elements: usize) -> usize {
        self.0.encoded_words(elements)
    }

    fn has_feedback(&self) -> bool {
        true
    }

    fn measures(&self) -> bool {
        true
    }

    fn measure(&self, kernels: &dyn CodecKernels, input: Buffer<'_>, feedback: Feedback<'_>) -> Result<f64> {
        self.0.measure(kernels, input, feedback)
    }

    fn scale(&self, squares: f64, elements: usize) -> f32 {
        coarse(self.0.scale(squares, elements))
    }

    fn encode(
        &self,
        kernels: &dyn CodecKernels,
        input: Buffer<'_>,
        feedback: Option<Feedback<'_>>,
        context: EncodeContext,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        self.0.encode(kernels, input, feedback, context, out)
    }

    fn reduce_encode(
        &self,
        kernels: &dyn CodecKernels,
        parts: &[Buffer<'_>],
        elements: usize,
        feedback: Option<Feedback<'_>>,
        context: EncodeContext,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        let Feedback { old, mut new } = feedback.unwrap();
        let squares = kernels.sign_reduce_global(parts, Feedback { old, new: reborrow(&mut new) })?;
        let context = EncodeContext { scale: self.scale(squares, elements), ..context };
        let sums = Feedback { old: Buffer::empty(), new };
        self.0.encode(kernels, Buffer::empty(), Some(sums), context, out)
    }

    fn decode_sum(
        &self,
        kernels: &dyn CodecKernels,
        parts: &[Buffer<'_>],
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        self.0.decode_sum(kernels, parts, weight, out)
    }

    fn decode(
        &self,
        kernels: &dyn CodecKernels,
        part: Buffer<'_>,
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        self.0.decode(kernels, part, weight, out)
    }

    fn seal(&self, part: &mut [u32]) {
        self.0.seal(part);
    }

    fn is_reordered(&self) -> bool {
        self.0.is_reordered()
    }

    fn head_words(&self, elements: usize) -> usize {
        self.0.head_words(elements)
    }

    fn accept(&self, part: &mut [u32], elements: usize) -> std::result::Result<(), &'static str> {
        self.0.accept(part, elements)
    }
}

/// What this rank puts into a call.
fn input(rank: u32, call: u64, elements: usize) -> Vec<u32> {
    gradients(rank, call, elements).into_iter().map(f32::to_bits).collect()
}

/// The bits of the results, one call after the other, with what is owed carried along.
fn train<D: KernelDevice>(
    comm: &dyn Communicator,
    device: &D,
    codec: &Arc<dyn Codec>,
    elements: usize,
) -> Vec<u32> {
    let mut state = CompressionState::on(comm, device.clone(), codec.clone(), elements).unwrap();
    let mut vector = device.allocate(elements).unwrap();
    let mut bits = Vec::new();
    for call in 0..CALLS {
        device.write(&input(comm.group().rank(), call, elements), &mut vector, 0).unwrap();
        let op = if call == 1 { ReduceOp::Sum } else { ReduceOp::Avg };
        comm.compressed_all_reduce_on(&mut vector, op, &mut state).unwrap();
        let mut result = vec![0; vector.words()];
        device.read(&vector, 0, &mut result).unwrap();
        bits.extend(result);
    }
    bits
}

/// Rows: F3
#[test]
fn given_the_scale_results_have_the_bits_of_the_processor() {
    let codec: Arc<dyn Codec> = Arc::new(CoarseScale(SignRms::default()));
    watchdog(SECONDS_MAX, "compressed", || {
        for ranks in [2, 3] {
            let expected = in_process::run(ranks, |comm| LENGTHS.map(|n| train(&*comm, &host(), &codec, n)));
            let found = HcclRank::run(ranks, HostMemory::Staged, |rank| {
                let device = npu(rank.rank);
                LENGTHS.map(|elements| train(&*rank.comm, &device, &codec, elements))
            });
            for (rank, (found, expected)) in found.iter().zip(&expected).enumerate() {
                for (elements, (found, expected)) in LENGTHS.iter().zip(found.iter().zip(expected)) {
                    assert!(found == expected, "{elements} elements on rank {rank} of {ranks}");
                }
            }
        }
    });
}

/// The scales of `sign-rms` itself differ in their last bits, but not from rank to rank, with devices and without.
#[test]
fn replicas_are_equal_and_near_those_of_the_processor() {
    const ELEMENTS: usize = 9001;
    let codec: Arc<dyn Codec> = Arc::new(SignRms::default());
    watchdog(SECONDS_MAX, "replicas", || {
        let expected = in_process::run(3, |comm| train(&*comm, &host(), &codec, ELEMENTS)).swap_remove(0);
        for has_device in [|_: u32| true, |rank: u32| rank != 1] {
            let found = HcclRank::run(3, HostMemory::Staged, |rank| match has_device(rank.rank) {
                true => train(&*rank.comm, &npu(rank.rank), &codec, ELEMENTS),
                false => train(&*rank.comm, &host(), &codec, ELEMENTS),
            });
            assert!(found.iter().all(|bits| *bits == found[0]), "replicas differ");
            // Later calls carry the difference on.
            let first_call = found[0].iter().zip(&expected).take(ELEMENTS);
            let [mut far, mut equal] = [0; 2];
            for pair in first_call {
                let (found, expected) = (f32::from_bits(*pair.0), f32::from_bits(*pair.1));
                far += usize::from((found - expected).abs() > 1e-5 * expected.abs());
                equal += usize::from(found == expected);
            }
            assert!(far == 0 && equal < ELEMENTS, "{far} of {ELEMENTS} are far, {equal} equal");
        }
    });
}

#[test]
fn an_element_that_is_not_finite_is_named_and_nothing_changes() {
    const ELEMENTS: usize = 5000;
    const AT: usize = 3333;
    let codec: Arc<dyn Codec> = Arc::new(SignRms::default());
    watchdog(SECONDS_MAX, "finite", || {
        HcclRank::run(3, HostMemory::Staged, |rank| {
            let device = npu(rank.rank);
            let mut state =
                CompressionState::on(&*rank.comm, device.clone(), codec.clone(), ELEMENTS).unwrap();
            let mut vector = device.allocate(ELEMENTS).unwrap();
            for bad in [f32::NAN, f32::INFINITY] {
                let mut given = input(rank.rank, 0, ELEMENTS);
                if rank.rank == 2 {
                    given[AT] = bad.to_bits();
                }
                device.write(&given, &mut vector, 0).unwrap();
                let error =
                    rank.comm.compressed_all_reduce_on(&mut vector, ReduceOp::Sum, &mut state).unwrap_err();
                let Error::NonFinite { rank: named, block, block_elements, .. } = &error else {
                    panic!("{error}")
                };
                assert_eq!((named.get(), *block, *block_elements), (2, AT as u64 / 1024, 1024), "{error}");
                let mut left = vec![0; ELEMENTS];
                device.read(&vector, 0, &mut left).unwrap();
                assert!(left == given && state.calls() == 0, "the vector is as it was");
            }
            // The same state goes on.
            device.write(&input(rank.rank, 0, ELEMENTS), &mut vector, 0).unwrap();
            rank.comm.compressed_all_reduce_on(&mut vector, ReduceOp::Sum, &mut state).unwrap();
            assert_eq!(state.calls(), 1);
        });
    });
}

/// HCCL cannot end work on a stream: a lost rank would keep the memory of messages for ever.
#[test]
fn messages_go_through_the_host() {
    watchdog(SECONDS_MAX, "messages", || {
        HcclRank::run(2, HostMemory::Staged, |rank| {
            let codec = Arc::new(SignRms::default());
            let state = CompressionState::on(&*rank.comm, npu(rank.rank), codec, 9).unwrap();
            let Err(Error::Unsupported { what, instead: Some(instead), .. }) =
                state.with_messages_on_device(&*rank.comm)
            else {
                panic!("not refused")
            };
            assert!(what.contains("NpuKernels") && instead == "messages that go through the host", "{what}");
        });
    });
}
