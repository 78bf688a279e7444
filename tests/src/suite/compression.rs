//! Compressed calls, on every backend: what they give, and how they fail.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use unisono_collectives::Collectives;
use unisono_communicator::{CallOptions, Collective, Communicator, DType, Element, Error, ReduceOp, Result};
use unisono_compression::{
    CODECS, Codec, CompressedCollectives, CompressionState, Route, SignRms, codec_by_name,
};

use crate::backend::Backend;
use crate::case::Case;
use crate::compressed::{CodecStep, WatchedCodec, bits, gradients, state};
use crate::suite::mismatch::first_cause;
use crate::world::{options, run, run_each};

fn all_codecs() -> Vec<Arc<dyn Codec>> {
    let named = CODECS.iter().map(|name| codec_by_name(name).unwrap());
    named.chain([Arc::new(SignRms::deepspeed()) as Arc<dyn Codec>]).collect()
}

/// One call of these gradients; the result.
fn call(comm: &dyn Communicator, state: &mut CompressionState, number: u64) -> Result<Vec<f32>> {
    let given = gradients(comm.group().own_job_rank().get(), number, state.elements());
    let mut vector = given.clone();
    let result = comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, state);
    assert!(result.is_ok() || bits(&vector) == bits(&given), "a failed call leaves the vector");
    result.map(|()| vector)
}

/// Everywhere the same bits; results and what is owed add up to the inputs, or results are near.
///
/// Rows: G10
pub fn every_codec_on_every_number_of_ranks(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        for codec in all_codecs() {
            for elements in [0, 1, 5, 1025, 40_001] {
                let mut state = state(comm, &codec, elements);
                let (mut left, mut size) = (vec![0.0f64; elements], 0.0f64);
                for number in 0..2 {
                    let given = gradients(comm.group().rank(), number, elements);
                    let result = call(comm, &mut state, number).unwrap();
                    let replicas = gathered(comm, &bits(&result));
                    assert!(
                        replicas.iter().all(|replica| *replica == replicas[0]),
                        "{codec:?}: replicas differ"
                    );
                    let is_first = f64::from(comm.group().rank() == 0);
                    for (index, left) in left.iter_mut().enumerate() {
                        *left += f64::from(given[index]) - is_first * f64::from(result[index]);
                        size += f64::from(result[index]).abs();
                    }
                }
                for (left, owed) in left.iter_mut().zip(&*state.residual()) {
                    *left -= f64::from(*owed);
                }
                for (index, owed) in state.owned().zip(&*state.owner_residual()) {
                    if let Some(left) = left.get_mut(index) {
                        *left -= f64::from(*owed);
                    }
                }
                let lefts = gathered(comm, &left);
                let sum = |index: usize| lefts.iter().map(|left| left[index]).sum::<f64>();
                let most = if codec.has_feedback() { 1e-4 } else { 0.4 * f64::from(comm.group().size()) };
                assert!((0..elements).all(|index| sum(index).abs() < most), "{codec:?}, {elements} elements");
                assert!(size > 0.0 || elements < 5, "{codec:?}, {elements} elements: all zero");
            }
        }
    });
}

/// What each rank has, without a reduction, which a backend may lack for these elements.
fn gathered<T: Element + Default>(comm: &dyn Communicator, own: &[T]) -> Vec<Vec<T>> {
    let mut all = vec![T::default(); own.len() * comm.group().size() as usize];
    comm.with(CallOptions::new().host_by_companion()).all_gather(own, &mut all).unwrap();
    (0..comm.group().size() as usize).map(|rank| all[rank * own.len()..][..own.len()].to_vec()).collect()
}

/// The exact sum of all ranks' [`gradients`] number 0.
fn exact(comm: &dyn Communicator, elements: usize) -> Vec<f32> {
    let mut sum = gradients(comm.group().rank(), 0, elements);
    comm.with(CallOptions::new().host_by_companion()).all_reduce(&mut sum, ReduceOp::Sum).unwrap();
    sum
}

fn is_near(codec: &Arc<dyn Codec>, what: &str, comm: &dyn Communicator, found: &[f32], exact: &[f32]) {
    let most = match codec.name() {
        "sign" | "sign-rms" => 2.0,
        "int4" => 0.2,
        _ => 0.02,
    };
    let most = most * comm.group().size() as f32;
    let is_near = found.len() == exact.len() && found.iter().zip(exact).all(|(a, b)| (a - b).abs() < most);
    assert!(is_near, "{codec:?}, {what}: {found:?} for {exact:?}");
}

/// Whether the backend refuses the sum of the integers that are the codes of some codec.
fn sums_no_codes(comm: &dyn Communicator) -> bool {
    let is_refused = |dtype| {
        let case = Case { op: Some(ReduceOp::Sum), ..Case::new(Collective::AllReduce, dtype, 3) };
        case.refusal(comm).is_some()
    };
    [DType::I8, DType::I16, DType::I32].into_iter().any(is_refused)
}

/// A reduce-scatter of two vectors and an all-gather, and all-reduces by every route.
pub fn halves_and_routes(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.group().rank() as usize, comm.group().size() as usize);
        for codec in all_codecs().into_iter().filter(|codec| codec.padded(1, 3) == 1) {
            for elements in [1, 70, 3000] {
                let given = gradients(comm.group().rank(), 0, elements);
                let exact = exact(comm, elements);
                for route in [Route::Direct, Route::TwoLevels, Route::SummedCodes] {
                    let Ok(mut state) = state(comm, &codec, elements).by(route, comm) else {
                        assert!(route == Route::SummedCodes);
                        assert!(codec.summable().is_none() || sums_no_codes(comm), "{codec:?}");
                        continue;
                    };
                    let result = call(comm, &mut state, 0).unwrap();
                    is_near(&codec, &route.to_string(), comm, &result, &exact);
                }
                let mut state =
                    CompressionState::reduce_scatter::<f32>(comm, codec.clone(), &[elements, 1]).unwrap();
                let chunk = elements.div_ceil(ranks);
                let own = (chunk * rank).min(elements)..(chunk * (rank + 1)).min(elements);
                let (mut share, mut one) = (vec![0.0; own.len()], vec![0.0; usize::from(rank == 0)]);
                let outputs: &mut [&mut [f32]] = &mut [&mut share, &mut one];
                comm.compressed_reduce_scatter(&[&given, &[1.0]], outputs, ReduceOp::Sum, &mut state)
                    .unwrap();
                is_near(&codec, "reduce-scatter", comm, &share, &exact[own]);
                is_near(&codec, "reduce-scatter", comm, &one, &vec![ranks as f32; one.len()]);

                let shares: Vec<usize> = (0..ranks).map(|rank| elements * (rank % 2)).collect();
                let mut state = CompressionState::all_gather::<f32>(comm, codec.clone(), &shares).unwrap();
                let mut output = vec![f32::NAN; shares.iter().sum()];
                comm.compressed_all_gather(&given[..shares[rank]], &mut output, &mut state).unwrap();
                let all = (0..ranks).flat_map(|rank| gradients(rank as u32, 0, shares[rank]));
                is_near(&codec, "all-gather", comm, &output, &all.collect::<Vec<f32>>());
            }
        }
    });
}

/// Another codec, another length, a plain call: every rank names both.
pub fn codecs_and_plain_calls_differ(backend: &dyn Backend) {
    type OddCall = fn(&dyn Communicator) -> Result<()>;
    fn with(comm: &dyn Communicator, name: &str, elements: usize) -> Result<()> {
        call(comm, &mut state(comm, &codec_by_name(name).unwrap(), elements), 0).map(drop)
    }
    let cases: [(OddCall, &str); 4] = [
        (|comm| with(comm, "int8", 800), "compressed_all_reduce/int8(800 x f32"),
        (|comm| with(comm, "sign-rms", 800), "compressed_all_reduce/rms(800 x f32"),
        (|comm| with(comm, "sign", 801), "compressed_all_reduce/sign(801 x f32"),
        (|comm| comm.all_reduce(&mut [0.0f32; 800], ReduceOp::Sum), "a plain call"),
    ];
    for ranks in backend.among(&[2, 3]) {
        for (odd, named) in cases {
            let errors = run(backend, ranks, &options(), |comm| {
                let is_odd = comm.group().rank() == 1;
                first_cause(comm, |comm| if is_odd { odd(comm) } else { with(comm, "sign", 800) })
            });
            for error in errors {
                let Error::Mismatch { difference, .. } = error.root_cause() else { panic!("{error}") };
                let is_both =
                    difference.contains("compressed_all_reduce/sign(800 x f32") && difference.contains(named);
                assert!(is_both, "{named}: {error}");
            }
        }
    }
}

/// The same error on all ranks; then calls go on as if it had not been.
pub fn what_is_not_finite_harms_nobody(backend: &dyn Backend) {
    run_each(backend, &[1, 2, 3, 5], |comm| {
        let ranks = comm.group().size();
        for codec in all_codecs() {
            let elements = 20_000;
            let (mut state, mut clean) = (state(comm, &codec, elements), state(comm, &codec, elements));
            for number in 0..3 {
                let culprit = number as u32 % ranks;
                let mut bad = gradients(comm.group().rank(), 9, elements);
                if comm.group().rank() == culprit {
                    bad[elements - 1] = f32::NAN;
                }
                let before = bits(&bad);
                let error = comm.compressed_all_reduce(&mut bad, ReduceOp::Sum, &mut state).unwrap_err();
                let Error::NonFinite { rank, block, block_elements, .. } = error else { panic!("{error}") };
                assert_eq!((rank.get(), block), (culprit, (elements as u64 - 1) / block_elements));
                assert_eq!(bits(&bad), before);
                let [left, right] = [&mut state, &mut clean].map(|state| call(comm, state, number).unwrap());
                assert_eq!(bits(&left), bits(&right), "{codec:?}");
            }
        }
        comm.barrier().unwrap();
    });
}

/// A rank that does not come: the deadline is that of the whole call, and names it.
pub fn a_rank_that_does_not_come(backend: &dyn Backend) {
    let waited = Barrier::new(3);
    let errors = run(backend, 3, &options(), |comm| {
        let codec = codec_by_name("sign").unwrap();
        let mut state = state(comm, &codec, 100_000);
        call(comm, &mut state, 0).unwrap();
        let before = bits(&state.residual());
        if comm.group().rank() == 1 {
            waited.wait();
        }
        let hurried = comm.with(CallOptions::new().timeout(Duration::from_millis(400)));
        let result = call(if comm.group().rank() == 1 { comm } else { &hurried }, &mut state, 1);
        if comm.group().rank() != 1 {
            waited.wait();
        }
        assert_eq!((bits(&state.residual()), state.calls()), (before, 1));
        result.unwrap_err()
    });
    for error in errors {
        let Error::Timeout { not_arrived, .. } = error.root_cause() else { panic!("{error}") };
        assert!(not_arrived.iter().any(|awaited| awaited.rank.get() == 1), "{error}");
        assert!(error.to_string().contains("compressed_all_reduce/sign(100000 x f32"), "{error}");
    }
}

/// A codec that panics, wherever it is: the others' calls end at once, with the panic's text.
pub fn panics_of_a_codec(backend: &dyn Backend) {
    for step in [CodecStep::Encode, CodecStep::Accept, CodecStep::Reduce] {
        let errors = run(backend, 3, &options(), |comm| {
            let is_fragile = comm.group().rank() == 1;
            let codec = WatchedCodec::shared(codec_by_name("sign").unwrap(), move |asked| {
                assert!(!(is_fragile && asked == step), "no such block");
            });
            let mut state = state(comm, &codec, 5000);
            if is_fragile {
                assert!(catch_unwind(AssertUnwindSafe(|| call(comm, &mut state, 0))).is_err());
                assert_eq!((state.calls(), &*state.residual()), (0, &[0.0; 5000][..]));
                return comm.barrier().unwrap_err();
            }
            call(comm, &mut state, 0).unwrap_err()
        });
        for error in errors {
            let Error::Panicked { rank, text, .. } = error.root_cause() else { panic!("{step:?}: {error}") };
            assert!(rank.get() == 1 && text.contains("no such block"), "{step:?}: {error}");
        }
    }
}

/// Calls with labels take turns, those without and calls past an open scope are refused, and a handle that is dropped
/// lets its call end.
pub fn threads_scopes_and_handles(backend: &dyn Backend) {
    run_each(backend, &[1, 2, 3], |comm| {
        let codec = codec_by_name("sign").unwrap();
        let expected: Vec<Vec<u32>> = {
            let mut state = state(comm, &codec, 3000);
            (0..6).map(|number| bits(&call(comm, &mut state, number).unwrap())).collect()
        };
        // The second waits for its turn, which the first has taken when it was submitted.
        let [left, right] = ["left", "right"].map(|label| comm.with(CallOptions::new().label(label)));
        let (mut ahead, mut behind) = (state(comm, &codec, 3000), state(comm, &codec, 3000));
        for (number, expected) in (0..).zip(&expected) {
            let given = gradients(comm.group().rank(), number, 3000);
            let work = left.compressed_all_reduce_async(given, ReduceOp::Sum, ahead);
            assert_eq!(bits(&call(&right, &mut behind, number).unwrap()), *expected);
            let (result, vector, state) = work.wait();
            result.unwrap();
            assert_eq!(bits(&vector), *expected);
            ahead = state;
        }
        let mut late = state(comm, &codec, 3000);
        let scope = crate::suite::scopes::open(comm, "open");
        for comm in [comm, &scope] {
            let refused = call(comm, &mut late, 0).unwrap_err();
            let is_refusal = matches!(
                refused,
                Error::InvalidArgument { argument: "scope", .. } | Error::Unsupported { .. }
            );
            assert!(is_refusal && late.calls() == 0, "{refused}");
        }
        drop(scope);
        let vector = gradients(comm.group().rank(), 0, 3000);
        drop(comm.compressed_all_reduce_async(vector, ReduceOp::Sum, state(comm, &codec, 3000)));
        // The dropped call has begun, and an unlabelled one of another thread would be refused while it lasts.
        let result = loop {
            match call(comm, &mut late, 0) {
                Err(Error::ConcurrentUse { .. }) => std::thread::yield_now(),
                result => break result.unwrap(),
            }
        };
        assert_eq!(bits(&result), expected[0]);
    });
}

/// Options are those of all parts; what they cannot do is refused before anything is sent.
pub fn options_of_a_call(backend: &dyn Backend) {
    run_each(backend, &[2, 3], |comm| {
        for codec in all_codecs() {
            let mut state = state(comm, &codec, 3000);
            let expected = call(comm, &mut state, 0).unwrap();
            let before = bits(&state.residual());
            let unknown = comm.with(CallOptions::new().algorithm("no such"));
            let error = call(&unknown, &mut state, 1).unwrap_err();
            assert!(error.is_before_start(), "{error}");
            assert_eq!((bits(&state.residual()), state.calls()), (before, 1));
            state.reset().unwrap();
            let options = CallOptions::new().label("gradients").timeout(Duration::from_secs(30));
            // A barrier comes first where a scale is measured, and has no direct algorithm.
            let options = if codec.measures() { options } else { options.or(&backend.forcing("direct")) };
            assert_eq!(
                bits(&call(&comm.with(options), &mut state, 0).unwrap()),
                bits(&expected),
                "{codec:?}"
            );
        }
    });
}
