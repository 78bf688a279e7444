//! Reduce-scatters and all-gathers: the halves of an all-reduce.

use std::sync::Arc;

use crate::common::{bits, codecs, feedback_codecs, noises};
use unisono_communicator::{Communicator, DType, Error, JobRank, ReduceOp, bf16};
use unisono_compression::one_bit_adam::{OneBitAdam, OneBitAdamOptions};
use unisono_compression::{
    Codec, CompressedCollectives, CompressionState, Int4, Int8, IntOptions, Route, SignRms,
};
use unisono_engine::in_process::{self, EngineOptions};

/// The codecs that do not fill vectors up.
fn plain_codecs() -> Vec<Arc<dyn Codec>> {
    codecs().into_iter().filter(|codec| codec.padded(1, 3) == 1).collect()
}

fn on<R: Send>(hosts: &[u32], body: impl Fn(Arc<dyn Communicator>) -> R + Sync) -> Vec<R> {
    in_process::run_on_hosts(hosts, &EngineOptions::default(), |_, links| links, body)
}

fn vectors(rank: u32, call: u64, lengths: &[usize]) -> Vec<Vec<f32>> {
    let of =
        |(index, length): (usize, &usize)| noises(u64::from(rank) * 1000 + call * 50 + index as u64, *length);
    lengths.iter().enumerate().map(of).collect()
}

fn chunk(length: usize, rank: usize, ranks: usize) -> std::ops::Range<usize> {
    let chunk = length.div_ceil(ranks);
    (chunk * rank).min(length)..(chunk * (rank + 1)).min(length)
}

fn slices(vectors: &[Vec<f32>]) -> Vec<&[f32]> {
    vectors.iter().map(|vector| &vector[..]).collect()
}

/// The relative error of the sum of `calls` reduce-scatters of these lengths against the exact one.
fn error_of_scatters(
    hosts: &[u32],
    route: Route,
    codec: &Arc<dyn Codec>,
    lengths: &[usize],
    calls: u64,
    op: ReduceOp,
) -> f64 {
    let ranks = hosts.len();
    let outputs = on(hosts, |comm| {
        let rank = comm.group().rank() as usize;
        let state = CompressionState::reduce_scatter::<f32>(&*comm, codec.clone(), lengths).unwrap();
        let mut state = state.by(route, &*comm).unwrap();
        let shares = || lengths.iter().map(|length| chunk(*length, rank, ranks).len());
        let mut sums: Vec<Vec<f64>> = shares().map(|share| vec![0.0; share]).collect();
        for call in 0..calls {
            let inputs = vectors(rank as u32, call, lengths);
            let mut outputs: Vec<Vec<f32>> = shares().map(|share| vec![f32::NAN; share]).collect();
            let mut list: Vec<&mut [f32]> = outputs.iter_mut().map(|output| &mut output[..]).collect();
            comm.compressed_reduce_scatter(&slices(&inputs), &mut list, op, &mut state).unwrap();
            assert_eq!(inputs, vectors(rank as u32, call, lengths), "inputs stay as they are");
            for (sum, output) in sums.iter_mut().flatten().zip(outputs.iter().flatten()) {
                *sum += f64::from(*output);
            }
        }
        sums
    });
    let weight = if op == ReduceOp::Avg { 1.0 / ranks as f64 } else { 1.0 };
    let (mut difference, mut square) = (0.0, 0.0);
    for (index, length) in lengths.iter().enumerate() {
        let mut exact = vec![0.0f64; *length];
        for (rank, call) in (0..ranks as u32).flat_map(|rank| (0..calls).map(move |call| (rank, call))) {
            let vector = &vectors(rank, call, lengths)[index];
            exact.iter_mut().zip(vector).for_each(|(sum, value)| *sum += weight * f64::from(*value));
        }
        for (rank, outputs) in outputs.iter().enumerate() {
            for (at, element) in chunk(*length, rank, ranks).enumerate() {
                difference += (outputs[index][at] - exact[element]).powi(2);
                square += exact[element].powi(2);
            }
        }
    }
    (difference / square.max(f64::MIN_POSITIVE)).sqrt()
}

const LENGTHS: [&[usize]; 5] = [&[6], &[6, 3], &[1000, 0, 1, 4097, 64], &[], &[70_001, 12]];

/// Rows: H1
#[test]
fn reduce_scatters_of_lists_are_sums_and_means() {
    for (number, lengths) in LENGTHS.into_iter().enumerate() {
        for codec in &plain_codecs() {
            let hosts: &[u32] = [&[0, 1][..], &[0, 1, 2], &[0, 0, 1, 1]][number % 3];
            let op = [ReduceOp::Sum, ReduceOp::Avg][number % 2];
            for route in [Route::Direct, Route::TwoLevels] {
                let error = error_of_scatters(hosts, route, codec, lengths, 1, op);
                // One bit of noise leaves about a half of it out in a call.
                let most = match codec.name() {
                    "sign" | "sign-rms" => 0.9,
                    "int4" => 0.15,
                    _ => 0.01,
                };
                assert!(error < most, "{codec:?}, {lengths:?} on {hosts:?}, {route}: {error}");
            }
        }
    }
}

/// With error feedback, the error of a call comes with the next.
#[test]
fn errors_of_many_reduce_scatters_do_not_add_up() {
    for codec in feedback_codecs().iter().filter(|codec| codec.padded(1, 3) == 1) {
        for route in [Route::Direct, Route::TwoLevels] {
            let of = |calls| error_of_scatters(&[0, 0, 1, 1], route, codec, &[900, 33], calls, ReduceOp::Avg);
            let (one, many) = (of(1), of(40));
            // Exact sums grow as the square root of the calls, residuals do not grow.
            assert!(many < 0.5 * one, "{codec:?}, {route}: {one} after a call, {many} after 40");
        }
    }
}

/// A hierarchical reduce-scatter of int4 (qgZ) has the mean of all ranks, not of hosts, and no more error than two
/// encoders: half a step of each block's scale, which is a seventh of the largest sum of a host.
///
/// Rows: H3
#[test]
fn two_levels_have_the_mean_of_all_ranks() {
    for codec in [Arc::new(Int8::default()) as Arc<dyn Codec>, Arc::new(Int4::default())] {
        let steps = if codec.name() == "int8" { 127.0 } else { 7.0 };
        for hosts in [&[0, 0, 1, 1][..], &[0, 0, 0, 1], &[0, 1, 0, 1, 0, 1, 0, 1]] {
            let ranks = hosts.len();
            let length = 4096 * ranks;
            let means = on(hosts, |comm| {
                let rank = comm.group().rank();
                let state =
                    CompressionState::reduce_scatter::<f32>(&*comm, codec.clone(), &[length]).unwrap();
                let mut state = state.by(Route::TwoLevels, &*comm).unwrap();
                let mut output = vec![0.0f32; length / ranks];
                let input = noises(u64::from(rank), length);
                comm.compressed_reduce_scatter(&[&input], &mut [&mut output], ReduceOp::Avg, &mut state)
                    .unwrap();
                output
            });
            let team = hosts.iter().filter(|host| **host == 0).count().max(hosts.len() - 1) as f64;
            let count = hosts.iter().collect::<std::collections::BTreeSet<_>>().len() as f64;
            let most = 0.5 * team / steps * count / ranks as f64 * 1.01;
            for (element, mean) in means.concat().into_iter().enumerate() {
                let exact: f64 =
                    (0..ranks as u64).map(|rank| f64::from(crate::common::noise(rank, element))).sum::<f64>()
                        / ranks as f64;
                let error = (f64::from(mean) - exact).abs();
                assert!(error <= most, "{codec:?} on {hosts:?}: {error} is more than {most}");
            }
        }
    }
}

/// Rows: H5
#[test]
fn all_gathers_give_the_same_bits_to_all() {
    for (number, shares) in
        [&[5, 5, 5][..], &[0, 700, 3], &[33, 0, 0], &[0, 0, 0], &[40_000, 40_001, 1]].into_iter().enumerate()
    {
        for codec in &plain_codecs() {
            let outputs = in_process::run(3, |comm| {
                let rank = comm.group().rank() as usize;
                let mut state = CompressionState::all_gather::<f32>(&*comm, codec.clone(), shares).unwrap();
                let input = noises(rank as u64 + number as u64 * 9, shares[rank]);
                let mut output = vec![f32::NAN; shares.iter().sum()];
                let mut sums = vec![0.0f64; output.len()];
                for _ in 0..if codec.has_feedback() { 30 } else { 1 } {
                    comm.compressed_all_gather(&input, &mut output, &mut state).unwrap();
                    sums.iter_mut().zip(&output).for_each(|(sum, value)| *sum += f64::from(*value));
                }
                (bits(&output), sums)
            });
            assert!(outputs.iter().all(|output| output.0 == outputs[0].0), "{codec:?}: replicas differ");
            let exact = (0..3).flat_map(|rank| noises(rank as u64 + number as u64 * 9, shares[rank]));
            for (sum, exact) in outputs[0].1.iter().zip(exact) {
                let (calls, most) = match (codec.has_feedback(), codec.name()) {
                    (true, _) => (30.0, 0.25),
                    (false, "sign") => (1.0, 1.0),
                    (false, "int4") => (1.0, 0.1),
                    _ => (1.0, 0.01),
                };
                assert!((sum / calls - f64::from(exact)).abs() < most, "{codec:?}: {sum} / {calls}, {exact}");
            }
        }
    }
}

#[test]
fn an_element_that_is_not_finite_is_named_on_every_rank() {
    for codec in &plain_codecs() {
        for route in [Route::Direct, Route::TwoLevels] {
            on(&[0, 0, 1, 1], |comm| {
                let rank = comm.group().rank();
                let state = CompressionState::reduce_scatter::<f32>(&*comm, codec.clone(), &[4000]).unwrap();
                let mut state = state.by(route, &*comm).unwrap();
                let mut input = noises(u64::from(rank), 4000);
                if rank == 2 {
                    // In the share of rank 1.
                    input[1500] = f32::INFINITY;
                }
                let mut output = [0.0f32; 1000];
                let refused =
                    comm.compressed_reduce_scatter(&[&input], &mut [&mut output], ReduceOp::Sum, &mut state);
                let Err(Error::NonFinite { rank: culprit, .. }) = refused else { panic!("{refused:?}") };
                assert_eq!(culprit, JobRank::new(2), "{codec:?} by {route}");
                assert!(state.residual().iter().all(|owed| *owed == 0.0), "nothing is owed");
                input[1500] = 1.0;
                comm.compressed_reduce_scatter(&[&input], &mut [&mut output], ReduceOp::Sum, &mut state)
                    .unwrap();
            });
        }
        in_process::run(3, |comm| {
            let rank = comm.group().rank();
            let mut state = CompressionState::all_gather::<f32>(&*comm, codec.clone(), &[500; 3]).unwrap();
            let mut input = noises(u64::from(rank), 500);
            if rank == 1 {
                input[499] = f32::NAN;
            }
            let mut output = [7.0f32; 1500];
            let refused = comm.compressed_all_gather(&input, &mut output, &mut state);
            let Err(Error::NonFinite { rank: culprit, .. }) = refused else { panic!("{refused:?}") };
            assert_eq!((culprit, output), (JobRank::new(1), [7.0f32; 1500]), "{codec:?}");
        });
    }
}

#[test]
fn states_and_buffers_of_other_calls_are_refused() {
    in_process::run(2, |comm| {
        let int8: Arc<dyn Codec> = Arc::new(Int8::default());
        let mut scatter = CompressionState::reduce_scatter::<f32>(&*comm, int8.clone(), &[4, 3]).unwrap();
        let mut gather = CompressionState::all_gather::<f32>(&*comm, int8.clone(), &[4, 3]).unwrap();
        let mut whole = CompressionState::with_codec(&*comm, int8.clone(), DType::F32, 7).unwrap();
        let invalid = |result: unisono_communicator::Result<()>, what: &str, texts: &[&str]| {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { .. }), "{what}: {error}");
            let text = error.to_string();
            assert!(texts.iter().all(|part| text.contains(part)), "{what}: {text}");
            assert!(error.is_before_start());
        };
        let (mut a, mut b, mut seven) = ([0.0f32; 2], [0.0f32; 2], [0.0f32; 7]);
        let own = if comm.group().rank() == 0 { 2 } else { 1 };
        invalid(
            comm.compressed_all_reduce(&mut seven, ReduceOp::Sum, &mut scatter),
            "all-reduce",
            &["reduce_scatter"],
        );
        invalid(
            comm.compressed_all_gather(&a, &mut seven, &mut whole),
            "all-gather",
            &["all_reduce", "all_gather"],
        );
        let inputs: [&[f32]; 2] = [&[1.0; 4], &[1.0; 3]];
        let result =
            comm.compressed_reduce_scatter(&inputs, &mut [&mut a, &mut b[..own]], ReduceOp::Sum, &mut gather);
        invalid(result, "reduce-scatter", &["all_gather", "reduce_scatter"]);
        let result = comm.compressed_reduce_scatter(&inputs, &mut [&mut a], ReduceOp::Sum, &mut scatter);
        invalid(result, "a missing output", &["outputs", "1", "2 inputs"]);
        let result = comm.compressed_reduce_scatter(
            &inputs,
            &mut [&mut a[..1], &mut b[..own]],
            ReduceOp::Sum,
            &mut scatter,
        );
        invalid(result, "a short output", &["0 has 1 elements", "2"]);
        let shorter: [&[f32]; 2] = [&[1.0; 4], &[1.0; 2]];
        let result =
            comm.compressed_reduce_scatter(&shorter, &mut [&mut a, &mut b[..1]], ReduceOp::Sum, &mut scatter);
        invalid(result, "other lengths", &["[4, 3]", "[4, 2]"]);
        invalid(comm.compressed_all_gather(&[1.0f32; 9], &mut seven, &mut gather), "input", &["input", "9"]);
        let share = [4, 3][comm.group().rank() as usize];
        let result = comm.compressed_all_gather(&[1.0f32; 4][..share], &mut seven[..5], &mut gather);
        invalid(result, "output", &["output", "5", "7"]);
        let narrow = [bf16::from_f32(1.0); 4];
        let result = comm.compressed_all_gather(&narrow[..share], &mut [bf16::ZERO; 7], &mut gather);
        invalid(result, "dtype", &["f32", "bf16"]);
        let padded: Arc<dyn Codec> = Arc::new(SignRms::deepspeed());
        let refused = CompressionState::reduce_scatter::<f32>(&*comm, padded, &[4]);
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
        let refused = CompressionState::all_gather::<f32>(&*comm, int8.clone(), &[4]);
        assert!(refused.unwrap_err().to_string().contains("1 of 2 ranks"));
        let refused = CompressionState::reduce_scatter::<f32>(&*comm, int8.clone(), &[usize::MAX, 2]);
        assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
        comm.compressed_all_reduce(&mut seven, ReduceOp::Sum, &mut whole).unwrap();
        let used = whole.by(Route::TwoLevels, &*comm);
        assert!(used.unwrap_err().to_string().contains("has been called with"));
    });
}

/// Ranks whose calls differ find out which.
#[test]
fn different_codecs_and_routes_are_a_mismatch() {
    for differs in ["codec", "route"] {
        on(&[0, 0, 1, 1], |comm| {
            let is_odd = comm.group().rank() == 3;
            let options = IntOptions {
                block: if is_odd && differs == "codec" { 64 } else { 128 },
                ..Default::default()
            };
            let codec: Arc<dyn Codec> = Arc::new(Int4::new(options).unwrap());
            let route = if is_odd && differs == "route" { Route::TwoLevels } else { Route::Direct };
            let state = CompressionState::reduce_scatter::<f32>(&*comm, codec, &[100]).unwrap();
            let mut state = state.by(route, &*comm).unwrap();
            let mut output = [0.0f32; 25];
            let result =
                comm.compressed_reduce_scatter(&[&[1.0; 100]], &mut [&mut output], ReduceOp::Sum, &mut state);
            assert!(matches!(result, Err(Error::Mismatch { .. })), "{differs}: {result:?}");
        });
    }
}

/// Nothing reads them yet: an import would take them for states of an all-reduce.
#[test]
fn their_states_are_not_exported() {
    in_process::run(2, |comm| {
        let int8: Arc<dyn Codec> = Arc::new(Int8::default());
        for state in [
            CompressionState::reduce_scatter::<f32>(&*comm, int8.clone(), &[4, 3]).unwrap(),
            CompressionState::all_gather::<f32>(&*comm, int8.clone(), &[4, 3]).unwrap(),
        ] {
            let refused = state.export();
            let Err(Error::Unsupported { what, instead: Some(_), .. }) = &refused else {
                panic!("{refused:?}")
            };
            assert!(what.contains("reduce_scatter") || what.contains("all_gather"), "{what}");
            let optimizer = OneBitAdam::new(state, OneBitAdamOptions::new(1));
            assert!(matches!(optimizer, Err(Error::InvalidArgument { .. })), "it has all-reduces only");
        }
    });
}

/// The root cause of the error of `call` on each of two ranks.
fn first_causes(
    call: impl Fn(&dyn Communicator, usize) -> unisono_communicator::Result<()> + Sync,
) -> Vec<String> {
    on(&[0, 1], |comm| {
        let error = call(&*comm, comm.group().rank() as usize).unwrap_err();
        assert!(matches!(error.root_cause(), Error::Mismatch { .. }), "{error}");
        error.root_cause().to_string()
    })
}

#[test]
fn vectors_of_other_lengths_are_a_mismatch_also_where_all_messages_are_alike() {
    let beyond = |odd: usize| (0..100).map(|index| 4 + 4 * usize::from(index == odd)).collect::<Vec<_>>();
    let beyond = [beyond(98), beyond(99)];
    let cases: [([&[usize]; 2], &str); 4] = [
        ([&[100, 200], &[200, 100]], "segment lengths"),
        ([&[300], &[100, 200]], "segment lengths"),
        ([&[4, 0, 4], &[4, 4, 0]], "segment lengths"),
        ([&beyond[0], &beyond[1]], "differ beyond the first 64 of 100 / 100"),
    ];
    for codec in &plain_codecs() {
        for (lengths, text) in cases {
            let causes = first_causes(|comm, rank| {
                let lengths = lengths[rank];
                let mut state = CompressionState::reduce_scatter::<f32>(comm, codec.clone(), lengths)?;
                let inputs = vectors(0, 0, lengths);
                let mut outputs: Vec<Vec<f32>> =
                    lengths.iter().map(|length| vec![0.0; chunk(*length, rank, 2).len()]).collect();
                let mut list: Vec<&mut [f32]> = outputs.iter_mut().map(|output| &mut output[..]).collect();
                comm.compressed_reduce_scatter(&slices(&inputs), &mut list, ReduceOp::Sum, &mut state)
            });
            let both = [
                format!("{:?} / {:?}", lengths[0], lengths[1]),
                format!("{:?} / {:?}", lengths[1], lengths[0]),
            ];
            let is_named =
                |cause: &String| lengths[0].len() > 12 || both.iter().any(|both| cause.contains(both));
            assert!(
                causes.iter().all(|cause| cause.contains(text) && is_named(cause)),
                "{codec:?}: {causes:?}"
            );
        }
    }
    let shares: [[&[usize]; 2]; 2] = [[&[5, 7], &[6, 6]], [&[100, 200], &[200, 100]]];
    for lengths in shares {
        let causes = first_causes(|comm, rank| {
            let shares = lengths[rank];
            let codec: Arc<dyn Codec> = Arc::new(Int8::default());
            let mut state = CompressionState::all_gather::<f32>(comm, codec, shares)?;
            let mut output = vec![0.0f32; shares.iter().sum()];
            comm.compressed_all_gather(&vec![1.0f32; shares[rank]], &mut output, &mut state)
        });
        assert!(causes.iter().all(|cause| cause.contains("counts")), "{causes:?}");
    }
}
