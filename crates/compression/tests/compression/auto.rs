//! Compression where it pays: all ranks decide alike, once, also when they measure different times.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{bits, input, state};
use unisono_collectives::Collectives;
use unisono_communicator::{
    Buffer, BufferMut, CallOptions, Communicator, Element, Error, Executor, ReduceOp, Result,
};
use unisono_compression::{
    Codec, CodecKernels, CompressedCollectives, CompressionState, EncodeContext, Feedback, Int8, IntOptions,
    SignL1,
};
use unisono_engine::in_process;

const ELEMENTS: usize = 3000;

/// Int8 whose encoder takes longer on one rank, and that counts its encoded elements.
#[derive(Debug)]
pub(crate) struct Slow {
    codec: Int8,
    delay: Duration,
    encoded: AtomicU64,
}

impl Slow {
    pub(crate) fn new(delay: Duration) -> Arc<Slow> {
        let options = IntOptions { feedback: true, ..IntOptions::default() };
        Arc::new(Slow { codec: Int8::new(options).unwrap(), delay, encoded: AtomicU64::new(0) })
    }
}

impl Codec for Slow {
    fn name(&self) -> &'static str {
        self.codec.name()
    }
    fn tag(&self) -> String {
        self.codec.tag()
    }
    fn block(&self) -> usize {
        self.codec.block()
    }
    fn encoded_words(&self, elements: usize) -> usize {
        self.codec.encoded_words(elements)
    }
    fn has_feedback(&self) -> bool {
        self.codec.has_feedback()
    }
    fn encode(
        &self,
        kernels: &dyn CodecKernels,
        input: Buffer<'_>,
        feedback: Option<Feedback<'_>>,
        context: EncodeContext,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        self.encoded.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(self.delay);
        self.codec.encode(kernels, input, feedback, context, out)
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
        self.codec.reduce_encode(kernels, parts, elements, feedback, context, out)
    }
    fn decode_sum(
        &self,
        kernels: &dyn CodecKernels,
        parts: &[Buffer<'_>],
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        self.codec.decode_sum(kernels, parts, weight, out)
    }
    fn decode(
        &self,
        kernels: &dyn CodecKernels,
        part: Buffer<'_>,
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        self.codec.decode(kernels, part, weight, out)
    }
    fn head_words(&self, elements: usize) -> usize {
        self.codec.head_words(elements)
    }
    fn accept(&self, part: &mut [u32], elements: usize) -> std::result::Result<(), &'static str> {
        self.codec.accept(part, elements)
    }
}

/// On one rank of three encoding is slow, which no other would notice by itself: all decline, and from then on give the
/// results of exact calls, encode nothing, and owe nothing.
#[test]
fn the_slowest_rank_decides_for_all() {
    for slow in 0..3 {
        let log_lines = in_process::run(3, |comm| {
            let rank = comm.group().rank();
            let delay = if rank == slow { Duration::from_millis(30) } else { Duration::ZERO };
            let codec = Slow::new(delay);
            let mut state = state(&*comm, &(codec.clone() as Arc<dyn Codec>), ELEMENTS).or_exact();
            assert_eq!(state.declined(), None);
            for call in 0..4 {
                let before = codec.encoded.load(Ordering::SeqCst);
                let mut vector = input(rank, call, ELEMENTS);
                let mut exact = vector.clone();
                comm.compressed_all_reduce(&mut vector, ReduceOp::Avg, &mut state).unwrap();
                comm.all_reduce(&mut exact, ReduceOp::Avg).unwrap();
                assert_eq!(bits(&vector), bits(&exact));
                assert_eq!(state.declined(), Some(true));
                assert_eq!(state.calls(), call + 1);
                assert!(state.residual().iter().chain(&*state.owner_residual()).all(|value| *value == 0.0));
                let encoded = codec.encoded.load(Ordering::SeqCst) - before;
                assert_eq!(encoded == 0, call > 0, "only the first call measures");
            }
        });
        assert_eq!(log_lines.len(), 3);
    }
}

/// If exact calls are slower, as over a thin link, calls are the same as with a state without the policy.
#[test]
fn where_it_pays_calls_are_compressed() {
    use crate::common::links::Thin;
    use unisono_engine::Tapped;
    use unisono_engine::in_process::EngineOptions;
    let wrap = |_, links| Tapped::with_tap(links, Thin::default());
    let elements = 300_000;
    in_process::run_of(2, &EngineOptions::default(), wrap, |comm| {
        let codec = Arc::new(SignL1::default()) as Arc<dyn Codec>;
        let (mut auto, mut plain) =
            (state(&*comm, &codec, elements).or_exact(), state(&*comm, &codec, elements));
        for call in 0..2 {
            let mut vector = input(comm.group().rank(), call, elements);
            let mut expected = vector.clone();
            comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut auto).unwrap();
            comm.compressed_all_reduce(&mut expected, ReduceOp::Sum, &mut plain).unwrap();
            assert_eq!(auto.declined(), Some(false));
            assert_eq!(bits(&vector), bits(&expected));
            assert_eq!(auto.residual(), plain.residual());
        }
        assert_eq!(plain.declined(), None);
    });
}

#[test]
fn a_policy_that_not_all_have_is_a_mismatch() {
    in_process::run(3, |comm| {
        let codec = Arc::new(SignL1::default()) as Arc<dyn Codec>;
        let mut state = state(&*comm, &codec, ELEMENTS);
        if comm.group().rank() == 1 {
            state = state.or_exact();
        }
        let given = input(0, 0, ELEMENTS);
        let mut vector = given.clone();
        let error = comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state).unwrap_err();
        let Error::Mismatch { difference, .. } = error.root_cause() else { panic!("{error}") };
        for name in ["auto_all_reduce/sign", "compressed_all_reduce/sign"] {
            assert!(difference.contains(name), "{error}");
        }
        assert_eq!(bits(&vector), bits(&given));
    });
}

/// A call of a state that has declined refuses the same elements as a compressed call: the error names the rank of the
/// element, the same on all ranks, and no rank has residuals. The buffer has the sum.
#[test]
fn what_is_not_finite_is_refused_by_exact_calls_too() {
    fn refused<T: Element>(of: fn(f32) -> T, culprit: u32, at: usize, bad: [f32; 3]) {
        in_process::run(3, |comm| {
            let rank = comm.group().rank();
            let codec = Slow::new(Duration::from_millis(if rank == 0 { 30 } else { 0 })) as Arc<dyn Codec>;
            let state = CompressionState::with_codec(&*comm, codec.clone(), T::DTYPE, ELEMENTS).unwrap();
            let mut state = state.or_exact();
            let clean: Vec<T> = input(rank, 0, ELEMENTS).into_iter().map(of).collect();
            comm.compressed_all_reduce(&mut clean.clone(), ReduceOp::Sum, &mut state).unwrap();
            assert_eq!(state.declined(), Some(true));
            let mut vector = clean.clone();
            vector[at] = of(bad[rank as usize]);
            let error = comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state).unwrap_err();
            assert!(error.is_before_start(), "{error}");
            let Error::NonFinite { rank: named, block, block_elements, .. } = error else {
                panic!("{error}")
            };
            let expected = (culprit, (at / codec.block()) as u64, codec.block() as u64);
            assert_eq!((named.get(), block, block_elements), expected);
            assert_eq!(state.calls(), 1);
            assert!(state.residual().iter().chain(&*state.owner_residual()).all(|value| *value == 0.0));
            let (mut vector, mut exact) = (clean.clone(), clean);
            comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state).unwrap();
            comm.all_reduce(&mut exact, ReduceOp::Sum).unwrap();
            assert!(vector == exact && state.calls() == 2, "the communicator goes on");
        });
    }
    let of_one = |culprit: usize, value| {
        let mut bad = [0.5; 3];
        bad[culprit] = value;
        bad
    };
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        refused(|value| value, 1, 0, of_one(1, value));
        refused(half::f16::from_f32, 2, ELEMENTS - 1, of_one(2, value));
        refused(half::bf16::from_f32, 0, 700, of_one(0, value));
    }
    // All are finite, and the sum is not: some rank must be named.
    refused(|value| value, 0, 1300, [2e38, 2e38, 0.0]);
    refused(half::f16::from_f32, 0, 5, [40_000.0; 3]);
}

/// A checkpoint keeps the policy and its finding, so that a run goes on with the same calls.
#[test]
fn a_checkpoint_keeps_the_choice() {
    use crate::common::links::Thin;
    use unisono_engine::Tapped;
    use unisono_engine::in_process::EngineOptions;
    // Over links whose bytes cost, compression pays.
    let wrap = |_, links| Tapped::with_tap(links, Thin::default());
    for (delay_ms, elements, found) in [(30, ELEMENTS, Some(true)), (0, 300_000, Some(false)), (0, 10, None)]
    {
        in_process::run_of(2, &EngineOptions::default(), wrap, |comm| {
            let rank = comm.group().rank();
            let codec = Slow::new(Duration::from_millis(delay_ms)) as Arc<dyn Codec>;
            let mut before = state(&*comm, &codec, elements).or_exact();
            let call = |comm: &dyn Communicator, state: &mut _| {
                let mut vector = input(rank, 0, elements);
                comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, state).unwrap();
                bits(&vector)
            };
            if found.is_some() {
                call(&*comm, &mut before);
            }
            assert_eq!(before.declined(), found);
            let bytes = before.export().unwrap();
            let mut after =
                CompressionState::import_with_codec::<f32>(&*comm, codec.clone(), &bytes).unwrap();
            assert_eq!(after.declined(), found);
            assert_eq!(after.export().unwrap(), bytes);
            if found.is_some() {
                assert_eq!(call(&*comm, &mut after), call(&*comm, &mut before));
            } else {
                call(&*comm, &mut after);
                assert!(after.declined().is_some(), "it still has to find out");
            }
        });
    }
}

/// A state that declined goes back a call like any other, keeps its residuals from before, and chooses anew.
#[test]
fn a_rebind_chooses_again() {
    let survivors = std::thread::scope(|threads| {
        let start = |comm: Arc<in_process::InProcessCommunicator>| {
            threads.spawn(move || {
                let rank = comm.group().rank();
                let delay = Duration::from_millis(if rank == 0 { 30 } else { 0 });
                let codec = Slow::new(delay) as Arc<dyn Codec>;
                let mut state = state(&*comm, &codec, ELEMENTS);
                let call = |comm: &dyn Communicator, state: &mut _| {
                    comm.compressed_all_reduce(&mut input(rank, 0, ELEMENTS), ReduceOp::Sum, state)
                };
                call(&*comm, &mut state).unwrap();
                let owed = state.residual().to_vec();
                let mut state = state.or_exact();
                call(&*comm, &mut state).unwrap();
                comm.barrier().unwrap();
                if rank == 2 {
                    return false;
                }
                let hurried = comm.with(CallOptions::new().timeout(Duration::from_secs(60)));
                assert!(call(&hurried, &mut state).is_err());
                let shrunk = comm.shrink().unwrap();
                assert!(!state.rebind(&shrunk).unwrap().went_back);
                assert_eq!((state.declined(), state.calls()), (None, 2));
                assert_eq!(state.residual(), owed);
                call(&*shrunk.communicator, &mut state).unwrap();
                state.declined() == Some(true)
            })
        };
        let all: Vec<_> = in_process::world(3).into_iter().map(start).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(survivors, [true, true, false]);
}
