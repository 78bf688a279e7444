//! Laws of every codec, for any number of ranks and any length.

use std::sync::Arc;

use crate::common::{Owed, bits, codecs, feedback_codecs, input, noise, noises, owed, state, total_owed};
use proptest::prelude::*;
use unisono_collectives::Solo;
use unisono_communicator::{DType, ReduceOp, bf16, f16};
use unisono_compression::{
    Bf16, Codec, CompressedCollectives, CompressionState, Int4, Int8, IntOptions, SignL1, SignRms,
};
use unisono_engine::in_process;

/// The results of all ranks after `rounds` calls: the sums of outputs and of inputs, and the residuals.
struct Ended {
    outputs: Vec<f64>,
    inputs: Vec<f64>,
    owed: Vec<Owed>,
}

/// Runs calls whose inputs are noise times `scale`. Every rank must get the same bits in every call.
fn run(codec: &Arc<dyn Codec>, ranks: u32, elements: usize, rounds: u64, op: ReduceOp, scale: f32) -> Ended {
    let weight = if op == ReduceOp::Avg { f64::from(ranks) } else { 1.0 };
    let mut ended = in_process::run(ranks, |comm| {
        let rank = comm.group().rank();
        let mut state = state(&*comm, codec, elements);
        let (mut outputs, mut inputs) = (vec![0.0f64; elements], vec![0.0f64; elements]);
        let mut checksum = 0u64;
        for round in 0..rounds {
            let mut vector = input(rank, round, elements);
            vector.iter_mut().for_each(|value| *value *= scale);
            inputs.iter_mut().zip(&vector).for_each(|(sum, value)| *sum += f64::from(*value));
            comm.compressed_all_reduce(&mut vector, op, &mut state).unwrap();
            outputs.iter_mut().zip(&vector).for_each(|(sum, value)| *sum += weight * f64::from(*value));
            for bits in bits(&vector) {
                checksum = checksum.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(bits);
            }
        }
        assert_eq!(state.calls(), rounds);
        (outputs, inputs, checksum, owed(&state))
    });
    let checksums: Vec<u64> = ended.iter().map(|rank| rank.2).collect();
    assert!(checksums.iter().all(|other| *other == checksums[0]), "{codec:?}: replicas differ");
    let inputs = (0..elements).map(|index| ended.iter().map(|rank| rank.1[index]).sum()).collect();
    let owed = ended.iter_mut().map(|rank| rank.3.clone()).collect();
    Ended { outputs: ended.swap_remove(0).0, inputs, owed }
}

/// Sum of outputs + residuals = sum of inputs.
fn telescopes(codec: &Arc<dyn Codec>, ranks: u32, elements: usize, rounds: u64, op: ReduceOp, scale: f32) {
    let ended = run(codec, ranks, elements, rounds, op, scale);
    let owed = total_owed(&ended.owed, elements);
    // A rounding error for each round and rank, of numbers a few times as large as the inputs.
    let most = f64::from(scale) * f64::from(ranks) * (rounds as f64) * 4e-6;
    for (index, owed) in owed.into_iter().enumerate() {
        let (output, input) = (ended.outputs[index], ended.inputs[index]);
        assert!(
            (output + owed - input).abs() <= most,
            "{codec:?}, {op:?}, {ranks} ranks, element {index} of {elements}: {output} + {owed} != {input}"
        );
    }
}

fn any_codec() -> impl Strategy<Value = Arc<dyn Codec>> {
    (0..feedback_codecs().len()).prop_map(|index| feedback_codecs().swap_remove(index))
}

/// No elements, fewer than ranks, and no multiples of anything.
fn any_length() -> impl Strategy<Value = usize> {
    prop_oneof![0..10usize, 10..200usize, 200..2100usize]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Rows: G1, G6
    #[test]
    fn what_is_left_out_comes_later(
        codec in any_codec(),
        ranks in 1..=9u32,
        elements in any_length(),
        is_mean: bool,
        exponent in -30..30i32,
    ) {
        let op = if is_mean { ReduceOp::Avg } else { ReduceOp::Sum };
        telescopes(&codec, ranks, elements, 100, op, 2.0f32.powi(exponent));
    }
}

/// Rows: G2, G6
#[test]
fn what_is_left_out_comes_later_in_several_pieces() {
    for codec in feedback_codecs() {
        telescopes(&codec, 2, 40_003, 100, ReduceOp::Avg, 1.0);
    }
    telescopes(&(Arc::new(SignL1::default()) as Arc<dyn Codec>), 3, 300_001, 100, ReduceOp::Sum, 1.0);
}

/// Rows: G5
#[test]
fn every_short_length_works_on_every_number_of_ranks() {
    for codec in codecs() {
        for ranks in 1..=9 {
            in_process::run(ranks, |comm| {
                for elements in [0, 1, 2, 3, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 129, 1023, 1025, 2049] {
                    let mut state = state(&*comm, &codec, elements);
                    let mut equal = vec![0.75f32; elements];
                    comm.compressed_all_reduce(&mut equal, ReduceOp::Avg, &mut state).unwrap();
                    // Equal elements are within a step of each codec; zeros behind them lower one scale.
                    let is_near = |value: &f32| *value > 0.0 && *value <= 0.8;
                    assert!(equal.iter().all(is_near), "{codec:?}, {elements} on {ranks}: {equal:?}");
                }
            });
        }
    }
}

#[test]
fn replicas_are_the_same_for_ten_thousand_steps() {
    for op in [ReduceOp::Sum, ReduceOp::Avg] {
        for (codec, ranks, elements) in [
            (Arc::new(SignL1::with_block(64).unwrap()) as Arc<dyn Codec>, 3, 130),
            (Arc::new(SignRms::deepspeed()), 2, 37),
            (
                Arc::new(
                    Int4::new(IntOptions {
                        feedback: true,
                        stochastic: Some(1),
                        block: 64,
                        ..IntOptions::default()
                    })
                    .unwrap(),
                ),
                3,
                70,
            ),
        ] {
            telescopes(&codec, ranks, elements, 10_000, op, 1.0);
        }
    }
}

/// |x - C(x)|^2 <= (1 - 1/d) |x|^2 in each block of d elements.
#[test]
fn the_mean_magnitude_contracts() {
    let comm = Solo::new();
    for block in [64usize, 1024] {
        for elements in [1usize, 63, 64, 1000, 4097] {
            for seed in 0..20 {
                // Dense, with few large elements, and with one.
                let shape = |index: usize| match seed % 3 {
                    0 => 1.0,
                    1 => noise(seed + 100, index).powi(15),
                    _ => f32::from(index as u64 % 64 == seed),
                };
                let input: Vec<f32> = (0..elements).map(|index| shape(index) * noise(seed, index)).collect();
                let codec = SignL1::with_block(block).unwrap();
                let mut state = CompressionState::new::<f32>(&comm, codec, elements).unwrap();
                comm.compressed_all_reduce(&mut input.clone(), ReduceOp::Sum, &mut state).unwrap();
                let square =
                    |values: &[f32]| values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>();
                for (left, all) in state.residual().chunks(block).zip(input.chunks(block)) {
                    let most = (1.0 - 1.0 / all.len() as f64) * square(all);
                    assert!(square(left) <= most * (1.0 + 1e-5) + 1e-30, "block {block}, seed {seed}");
                }
            }
        }
    }
}

/// The mean over many calls is the exact mean, for both stages together. The nearest codes are not: an input between
/// two of them stays there.
#[test]
fn random_rounding_is_right_on_average() {
    const CALLS: u64 = 4000;
    let values = |rank: u32| -> Vec<f32> {
        // The largest sets the scale; the others lie anywhere between two codes.
        (0..40).map(|index| if index == 0 { 7.0 } else { noise(u64::from(rank), index) * 6.0 }).collect()
    };
    let options = IntOptions { stochastic: Some(11), ..IntOptions::default() };
    for codec in [
        Arc::new(Int4::new(options).unwrap()) as Arc<dyn Codec>,
        Arc::new(Int4::new(IntOptions { symmetric: false, ..options }).unwrap()),
        Arc::new(Int8::new(options).unwrap()),
    ] {
        let sums = in_process::run(3, |comm| {
            let mut state = state(&*comm, &codec, 40);
            let mut sums = vec![0.0f64; 40];
            for _ in 0..CALLS {
                let mut vector = values(comm.group().rank());
                comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state).unwrap();
                sums.iter_mut().zip(vector).for_each(|(sum, value)| *sum += f64::from(value));
            }
            sums
        });
        for (index, sum) in sums[0].iter().enumerate() {
            let exact: f64 = (0..3).map(|rank| f64::from(values(rank)[index])).sum();
            let mean = sum / CALLS as f64;
            // Each of four roundings has a step of at most 3 for the sum and 1 for a vector, and at most a quarter of
            // its square as variance; five standard deviations of the mean.
            let most = 5.0 * ((3.0f64.powi(2) + 3.0) / 4.0 / CALLS as f64).sqrt();
            assert!((mean - exact).abs() < most, "{codec:?}, element {index}: {mean} is not {exact}");
        }
    }
}

/// Zeros of both signs and subnormals are plus for a sign; all of them come as zeros from integers and bf16. Residuals
/// count them as zeros.
#[test]
fn zeros_and_subnormals_are_defined() {
    let comm = Solo::new();
    let given = [0.0f32, -0.0, f32::from_bits(1), -f32::from_bits(1), -1.0, f32::MIN_POSITIVE, 1.0, -2.0];
    let sign = SignL1::default();
    let mut signs = CompressionState::new::<f32>(&comm, sign, given.len()).unwrap();
    let mut vector = given;
    comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut signs).unwrap();
    let scale = 0.5;
    assert_eq!(bits(&vector), bits(&[scale, scale, scale, scale, -scale, scale, scale, -scale]));
    let owed = [-scale, -scale, -scale, -scale, -0.5, f32::MIN_POSITIVE - scale, 0.5, -1.5];
    assert_eq!(bits(&signs.residual()), bits(&owed));
    assert_eq!(bits(&signs.owner_residual()), bits(&[0.0; 8]), "the second encoder gets the signs of one");

    for codec in [Arc::new(Int8::default()) as Arc<dyn Codec>, Arc::new(Int4::default()), Arc::new(Bf16)] {
        let mut vector = given;
        comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state(&comm, &codec, 8)).unwrap();
        assert_eq!(bits(&vector[..4]), bits(&[0.0; 4]), "{codec:?}");
        assert!((vector[4] + 1.0).abs() < 0.2 && (vector[7] + 2.0).abs() < 0.01, "{codec:?}: {vector:?}");
    }
    for codec in codecs() {
        let mut tiny = [f32::from_bits(77), -f32::from_bits(0x007f_ffff), 0.0, -0.0];
        let mut state = state(&comm, &codec, 4);
        comm.compressed_all_reduce(&mut tiny, ReduceOp::Avg, &mut state).unwrap();
        assert!(tiny.iter().all(|value| *value == 0.0), "{codec:?}: {tiny:?}");
        assert!(
            state.residual().iter().all(|value| value.to_bits() == 0),
            "{codec:?}: {:?}",
            state.residual()
        );
    }
}

/// The largest and the smallest numbers give finite results, or an error on all ranks; nothing else.
#[test]
fn very_large_and_very_small_numbers() {
    for codec in codecs() {
        for magnitude in
            [f32::MAX, f32::MAX / 1.004, 1e38, 2.0f32.powi(120), 1e-30, 2.0f32.powi(-120), 1.2e-38]
        {
            in_process::run(2, |comm| {
                let mut state = state(&*comm, &codec, 70);
                let before = owed(&state);
                let given: Vec<f32> = noises(5, 70).iter().map(|value| value.signum() * magnitude).collect();
                let mut vector = given.clone();
                match comm.compressed_all_reduce(&mut vector, ReduceOp::Avg, &mut state) {
                    Ok(()) => {
                        let owed = [state.residual(), state.owner_residual()].concat();
                        let all = vector.iter().chain(&owed);
                        let are_finite = all.clone().all(|value| value.is_finite());
                        assert!(are_finite, "{codec:?} of {magnitude:e}: {:?}", all.collect::<Vec<_>>());
                    }
                    Err(error) => {
                        let is_large = matches!(error, unisono_communicator::Error::NonFinite { .. });
                        assert!(is_large && magnitude > 1e17, "{codec:?} of {magnitude:e}: {error}");
                        assert_eq!((bits(&vector), before), (bits(&given), owed(&state)), "{codec:?}");
                    }
                }
            });
        }
    }
}

/// A scale over zeros behind the vector is smaller, and the zeros owe something; without them neither is so.
///
/// Rows: G3
#[test]
fn a_padded_and_an_unpadded_global_scale() {
    let elements = 40;
    let of = |codec: SignRms| {
        let ended = in_process::run(3, |comm| {
            let mut state = CompressionState::new::<f32>(&*comm, codec, elements).unwrap();
            let mut vector = vec![1.0f32; elements];
            comm.compressed_all_reduce(&mut vector, ReduceOp::Avg, &mut state).unwrap();
            (state.residual().to_vec(), state.owned(), vector)
        });
        ended.into_iter().next().unwrap()
    };
    let (owed, owned, vector) = of(SignRms::default());
    assert_eq!((owed, vector), (vec![0.0; elements], vec![1.0; elements]), "equal numbers are exact");
    assert_eq!(owned, 0..0, "of 40 elements in one block of 1,024, the last rank sums all");
    // 3 ranks x lcm(3, 8) = 72 elements, 24 of them summed by each rank.
    let (owed, owned, vector) = of(SignRms::deepspeed());
    assert_eq!((owed.len(), owned), (72, 0..24));
    let scale = (40.0f32 / 72.0).sqrt();
    assert!(owed[..40].iter().all(|value| (value - (1.0 - scale)).abs() < 1e-6), "{owed:?}");
    assert!(owed[40..].iter().all(|value| (value + scale).abs() < 1e-6), "{owed:?}");
    assert!(vector[..24].iter().all(|value| (value - scale).abs() < 1e-6), "{vector:?}");
}

/// The same numbers as f16 and bf16, alone and in lists, on every length.
#[test]
fn narrow_vectors_are_rounded_once() {
    for codec in codecs() {
        in_process::run(2, |comm| {
            let exact: Vec<f32> = noises(u64::from(comm.group().rank()), 1030)
                .iter()
                .map(|v| bf16::from_f32(*v).to_f32())
                .collect();
            let mut wide = exact.clone();
            comm.compressed_all_reduce(&mut wide, ReduceOp::Sum, &mut state(&*comm, &codec, 1030)).unwrap();
            let state = |dtype| CompressionState::with_codec(&*comm, codec.clone(), dtype, 1030).unwrap();
            let mut brains: Vec<bf16> = exact.iter().map(|value| bf16::from_f32(*value)).collect();
            comm.compressed_all_reduce(&mut brains, ReduceOp::Sum, &mut state(DType::BF16)).unwrap();
            assert!(
                brains.iter().zip(&wide).all(|(narrow, wide)| *narrow == bf16::from_f32(*wide)),
                "{codec:?}"
            );
            let halves: Vec<f16> = exact.iter().map(|value| f16::from_f32(*value)).collect();
            let mut again: Vec<f32> = halves.iter().map(|value| value.to_f32()).collect();
            let mut halves = halves;
            comm.compressed_all_reduce(&mut halves, ReduceOp::Sum, &mut state(DType::F16)).unwrap();
            comm.compressed_all_reduce(&mut again, ReduceOp::Sum, &mut state(DType::F32)).unwrap();
            assert!(
                halves.iter().zip(&again).all(|(narrow, wide)| *narrow == f16::from_f32(*wide)),
                "{codec:?}"
            );
        });
    }
}
