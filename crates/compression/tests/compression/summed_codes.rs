//! Codes that are added on their way.

use std::sync::Arc;

use crate::common::{bits, clean, input, input_at, noise, state};
use unisono_collectives::Solo;
use unisono_communicator::{Communicator, DType, Error, JobRank, ReduceOp};
use unisono_compression::{
    Bf16, Codec, CompressedCollectives, CompressionState, Int4, Int8, IntOptions, LoCo, Route, SignL1,
};
use unisono_engine::in_process;

fn codecs() -> Vec<Arc<dyn Codec>> {
    let options = |feedback, stochastic| IntOptions { feedback, stochastic, ..IntOptions::default() };
    vec![
        Arc::new(Int8::default()),
        Arc::new(Int4::default()),
        Arc::new(Int8::new(options(true, None)).unwrap()),
        Arc::new(Int4::new(options(true, Some(5))).unwrap()),
        Arc::new(Int4::new(IntOptions { block: 64, ..options(true, None) }).unwrap()),
    ]
}

fn summed(comm: &dyn Communicator, codec: &Arc<dyn Codec>, elements: usize) -> CompressionState {
    state(comm, codec, elements).by(Route::SummedCodes, comm).unwrap()
}

/// Sum of outputs + residuals = sum of inputs, for codecs with error feedback; for others one call is near.
#[test]
fn sums_are_right_for_every_length_and_number_of_ranks() {
    for ranks in 1..=5u32 {
        for (elements, calls) in [(0, 1), (1, 3), (63, 3), (700, 8), (2050, 8), (150_001, 2)] {
            for codec in &codecs() {
                let ended = in_process::run(ranks, |comm| {
                    let rank = comm.group().rank();
                    let mut state = summed(&*comm, codec, elements);
                    let (mut sums, mut last) = (vec![0.0f64; elements], Vec::new());
                    for call in 0..calls {
                        last = input(rank, call, elements);
                        comm.compressed_all_reduce(&mut last, ReduceOp::Sum, &mut state).unwrap();
                        sums.iter_mut().zip(&last).for_each(|(sum, value)| *sum += f64::from(*value));
                    }
                    (sums, bits(&last), crate::common::owed(&state))
                });
                assert!(ended.iter().all(|rank| rank.1 == ended[0].1), "{codec:?}: replicas differ");
                let owed: Vec<crate::common::Owed> = ended.iter().map(|rank| rank.2.clone()).collect();
                let owed = crate::common::total_owed(&owed, elements);
                for (index, owed) in owed.into_iter().enumerate() {
                    let inputs = (0..ranks).flat_map(|rank| (0..calls).map(move |call| (rank, call)));
                    let exact: f64 = inputs.map(|(rank, call)| f64::from(input_at(rank, call, index))).sum();
                    let steps = if codec.name() == "int8" { 127.0 } else { 7.0 };
                    let most =
                        if codec.has_feedback() { 1e-3 } else { f64::from(ranks) * calls as f64 / steps };
                    let error = (ended[0].0[index] + owed - exact).abs();
                    assert!(error < most, "{codec:?}, {ranks} ranks, element {index} of {elements}: {error}");
                }
            }
        }
    }
}

/// The relative error of a mean over `ranks`: by summed codes, and by a ring that encodes the sum again at each hop.
fn errors(codec: &Arc<dyn Codec>, ranks: u32, elements: usize) -> [f64; 2] {
    let ended = in_process::run(ranks, |comm| {
        let mut state = summed(&*comm, codec, elements);
        let mut vector = input(comm.group().rank(), 0, elements);
        comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state).unwrap();
        vector
    });
    let solo = Solo::new();
    let again = |values: &[f32]| {
        let mut values = values.to_vec();
        let mut state = state(&solo, codec, elements);
        // One rank: the encoders of the vector and of the sum round alike, and the second time loses nothing more.
        solo.compressed_all_reduce(&mut values, ReduceOp::Sum, &mut state).unwrap();
        values
    };
    let mut hop = input(0, 0, elements);
    for rank in 1..ranks {
        let own = input(rank, 0, elements);
        hop = again(&hop).iter().zip(&own).map(|(sum, own)| sum + own).collect();
    }
    let hop = again(&hop);
    let exact = |index| (0..ranks).map(|rank| f64::from(input_at(rank, 0, index))).sum::<f64>();
    let size = (0..elements).map(|index| exact(index).powi(2)).sum::<f64>();
    [&ended[0], &hop].map(|values| {
        let error = |(index, value): (usize, &f32)| (f64::from(*value) - exact(index)).powi(2);
        (values.iter().enumerate().map(error).sum::<f64>() / size).sqrt()
    })
}

/// The figures of benches/lab/measurements.md: `cargo test -p unisono-compression summed_codes -- --nocapture`.
#[test]
fn the_error_does_not_grow_with_the_number_of_ranks() {
    for codec in &codecs()[..2] {
        let all: Vec<[f64; 2]> = [2, 4, 8, 16, 32].map(|ranks| errors(codec, ranks, 8192)).to_vec();
        eprintln!(
            "{}: relative error of 2, 4, 8, 16, 32 ranks, summed codes and a ring that rounds each hop:",
            codec.name()
        );
        all.iter().for_each(|[summed, hop]| eprintln!("  {summed:.5} {hop:.5}"));
        let (first, last) = (all[0], all[4]);
        assert!(last[0] < 1.2 * first[0], "{codec:?}: {all:?}");
        assert!(last[1] > 2.0 * first[1], "the ring's error grows: {all:?}");
        assert!(all.iter().skip(2).all(|[summed, hop]| summed < hop), "{all:?}");
    }
}

/// Sums of int4 fit a byte up to 18 ranks; 19 ranks of the largest codes need two.
#[test]
fn sums_of_the_largest_codes_do_not_wrap() {
    for ranks in [18, 19] {
        for codec in &codecs()[..2] {
            in_process::run(ranks, |comm| {
                let mut state = summed(&*comm, codec, 300);
                let mut vector: Vec<f32> =
                    (0..300).map(|index| if index % 3 == 0 { -8.0 } else { 8.0 }).collect();
                let exact = vector.clone();
                comm.compressed_all_reduce(&mut vector, ReduceOp::Avg, &mut state).unwrap();
                for (mean, exact) in vector.iter().zip(&exact) {
                    assert!((mean - exact).abs() < 0.01, "{codec:?}, {ranks} ranks: {mean} for {exact}");
                }
            });
        }
    }
}

#[test]
fn the_rank_with_an_element_that_is_not_finite_is_named() {
    for codec in &codecs() {
        in_process::run(3, |comm| {
            let rank = comm.group().rank();
            let mut state = summed(&*comm, codec, 5000);
            let mut vector = input(rank, 0, 5000);
            comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state).unwrap();
            let before = state.export().unwrap();
            let mut vector = input(rank, 1, 5000);
            vector[4800] = if rank == 2 { f32::NEG_INFINITY } else { 1.0 };
            let untouched = bits(&vector);
            let refused = comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state);
            let Err(Error::NonFinite { rank: culprit, block, .. }) = refused else { panic!("{refused:?}") };
            assert_eq!((culprit, block), (JobRank::new(2), 4800 / codec.block() as u64), "{codec:?}");
            assert_eq!(
                (bits(&vector), state.export().unwrap()),
                (untouched, before),
                "{codec:?}: all is as before"
            );
            vector[4800] = 0.5;
            comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state).unwrap();
        });
    }
}

/// A finite number that no scale of the codec reaches is refused as by the direct way: one rank's whole block would
/// become zeros. The largest that a scale reaches comes through.
#[test]
fn a_number_that_is_too_large_for_the_codec_is_refused() {
    for codec in &codecs() {
        let steps = if codec.name() == "int8" { 127.0 } else { 7.0 };
        let largest = steps * if codec.name() == "int8" { 2f32.powi(120) } else { 2f32.powi(124) };
        let (elements, at) = (5000, 4800);
        let given = |rank: u32, value: f32| {
            let mut vector = input(rank, 1, elements);
            vector[at] = if rank == 1 { value } else { 0.0 };
            vector
        };
        for route in [Route::Direct, Route::SummedCodes] {
            in_process::run(3, |comm| {
                let rank = comm.group().rank();
                let mut state = state(&*comm, codec, elements).by(route, &*comm).unwrap();
                comm.compressed_all_reduce(&mut input(rank, 0, elements), ReduceOp::Avg, &mut state).unwrap();
                for value in [1.01 * largest, -f32::MAX] {
                    let (mut vector, before) = (given(rank, value), state.export().unwrap());
                    let refused = comm.compressed_all_reduce(&mut vector, ReduceOp::Avg, &mut state);
                    let what = format!("{codec:?}, {route}, {value}");
                    let Err(Error::NonFinite { rank: culprit, block, .. }) = &refused else {
                        panic!("{what}: {refused:?}, {} for it", vector[at])
                    };
                    let expected = (JobRank::new(1), (at / codec.block()) as u64);
                    assert_eq!((*culprit, *block), expected, "{what}");
                    let text = refused.as_ref().unwrap_err().to_string();
                    assert!(text.contains("too large a number on rank 1"), "{text}");
                    assert_eq!(bits(&vector), bits(&given(rank, value)), "{what}");
                    assert_eq!(state.export().unwrap(), before, "{what}");
                }
                let mut vector = given(rank, 0.9 * largest);
                comm.compressed_all_reduce(&mut vector, ReduceOp::Avg, &mut state).unwrap();
                assert!(
                    (vector[at] / (0.3 * largest) - 1.0).abs() < 0.5,
                    "{codec:?}, {route}: {}",
                    vector[at]
                );
            });
        }
    }
}

#[test]
fn a_checkpoint_goes_on_with_the_same_bits() {
    let codec = &codecs()[2];
    in_process::run(3, |comm| {
        let rank = comm.group().rank();
        let mut before = summed(&*comm, codec, 3000);
        comm.compressed_all_reduce(&mut input(rank, 0, 3000), ReduceOp::Avg, &mut before).unwrap();
        let bytes = before.export().unwrap();
        let mut after = CompressionState::import_with_codec::<f32>(&*comm, codec.clone(), &bytes).unwrap();
        assert_eq!(after.route(), Route::SummedCodes);
        let mut results = [input(rank, 1, 3000), input(rank, 1, 3000)];
        comm.compressed_all_reduce(&mut results[0], ReduceOp::Avg, &mut before).unwrap();
        comm.compressed_all_reduce(&mut results[1], ReduceOp::Avg, &mut after).unwrap();
        assert_eq!(bits(&results[0]), bits(&results[1]));
    });
    // The direct way is another one.
    assert_eq!(clean(2, codec, 10, 1).len(), 2);
}

#[test]
fn codecs_whose_codes_cannot_be_added_are_refused() {
    let comm = Solo::new();
    let asymmetric = Int8::new(IntOptions { symmetric: false, ..IntOptions::default() }).unwrap();
    let codecs: [Arc<dyn Codec>; 3] = [Arc::new(SignL1::default()), Arc::new(Bf16), Arc::new(asymmetric)];
    for codec in codecs {
        let refused = state(&comm, &codec, 10).by(Route::SummedCodes, &comm);
        let Err(Error::Unsupported { instead: Some(instead), .. }) = refused else { panic!("{refused:?}") };
        assert!(instead.contains("symmetric"), "{instead}");
    }
    let int4: Arc<dyn Codec> = codecs_with_feedback();
    let refused = CompressionState::reduce_scatter::<f32>(&comm, int4.clone(), &[4])
        .unwrap()
        .by(Route::SummedCodes, &comm);
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    let loco = state(&comm, &int4, 10).with_loco(LoCo::default()).unwrap().by(Route::SummedCodes, &comm);
    assert!(matches!(loco, Err(Error::Unsupported { .. })), "{loco:?}");
    let loco = summed(&comm, &int4, 10).with_loco(LoCo::default());
    assert!(matches!(loco, Err(Error::Unsupported { .. })), "{loco:?}");
}

fn codecs_with_feedback() -> Arc<dyn Codec> {
    Arc::new(Int4::new(IntOptions { feedback: true, ..IntOptions::default() }).unwrap())
}

/// Noise whose sign all ranks share: sums grow as the number of ranks.
#[test]
fn ranks_that_agree_keep_their_accuracy() {
    for codec in &codecs()[..2] {
        for ranks in [2, 16] {
            in_process::run(ranks, |comm| {
                let mut state = CompressionState::with_codec(&*comm, codec.clone(), DType::F32, 1000)
                    .unwrap()
                    .by(Route::SummedCodes, &*comm)
                    .unwrap();
                let mut vector: Vec<f32> = (0..1000).map(|index| noise(1, index)).collect();
                comm.compressed_all_reduce(&mut vector, ReduceOp::Avg, &mut state).unwrap();
                let steps = if codec.name() == "int8" { 127.0 } else { 7.0 };
                for (index, mean) in vector.iter().enumerate() {
                    assert!(
                        (mean - noise(1, index)).abs() < 1.1 / steps,
                        "{codec:?}, {ranks} ranks, {index}"
                    );
                }
            });
        }
    }
}
