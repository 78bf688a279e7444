//! Residuals of one byte for each element.

use std::sync::Arc;

use crate::common::{bits, input, noises};
use unisono_collectives::{Collectives, Solo};
use unisono_communicator::{Communicator, DType, Error, ReduceOp};
use unisono_compression::{
    Bf16, Codec, CompressedCollectives, CompressionState, Int4, IntOptions, LoCo, Route, SignL1, SignRms,
};
use unisono_engine::in_process::{self, EngineOptions};
use unisono_kernels::{IntFormat, IntPart, IntPartMut, IntWidth, Kernels, Rounding, Target};

fn codecs() -> Vec<Arc<dyn Codec>> {
    let options = IntOptions { feedback: true, ..IntOptions::default() };
    vec![Arc::new(SignL1::default()), Arc::new(Int4::new(options).unwrap())]
}

fn state(comm: &dyn Communicator, codec: &Arc<dyn Codec>, elements: usize, loco: LoCo) -> CompressionState {
    let state = CompressionState::with_codec(comm, codec.clone(), DType::F32, elements).unwrap();
    state.with_loco(loco).unwrap()
}

/// The values of numbers in int8.
fn in_int8(values: &[f32]) -> Vec<f32> {
    let format = IntFormat { width: IntWidth::Eight, block: 256, symmetric: true };
    let kernels = Kernels::of(Target::Reference).unwrap();
    let (mut scales, mut codes) = (vec![0.0; format.scales(values.len())], vec![0; values.len()]);
    let part = IntPartMut { scales: &mut scales, codes: &mut codes };
    assert_eq!(kernels.int_encode(values, None, format, Rounding::Nearest, part), None);
    let mut decoded = vec![0.0; values.len()];
    kernels.int_expand(IntPart { scales: &scales, codes: &codes }, format, 1.0, &mut decoded);
    decoded
}

/// By its definition, one element after the other: value = input + owed, owed <- owed + (rest - owed) / 2^shift.
///
/// Rows: H4
#[test]
fn it_is_the_moving_average_of_what_is_left_out() {
    let comm = Solo::new();
    for average_shift in [0, 2, 3, 8] {
        let codec: Arc<dyn Codec> = Arc::new(SignL1::default());
        let mut state = state(&comm, &codec, 1000, LoCo { average_shift, reset_calls: 5 });
        // One piece, one owner: the encoder of the sum has a share that is all.
        let mut owed = [vec![0.0f32; 1000], vec![0.0f32; 1000]];
        for call in 0..9 {
            let mut vector = noises(call, 1000);
            let mut values = vector.clone();
            comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state).unwrap();
            for owed in &mut owed {
                let sums: Vec<f32> = values.iter().zip(&*owed).map(|(value, owed)| value + owed).collect();
                let (mut scale, mut bits) = ([0.0f32], vec![0u32; 1000usize.div_ceil(32)]);
                let out = unisono_kernels::SignPartMut { scales: &mut scale, bits: &mut bits };
                Kernels::best().sign_encode(&sums, None, 1024, out);
                let sent = |value: &f32| if *value >= 0.0 { scale[0] } else { -scale[0] };
                let weight = 0.5f32.powi(average_shift as i32);
                let average =
                    sums.iter().zip(&*owed).map(|(sum, owed)| owed + (sum - sent(sum) - owed) * weight);
                values = sums.iter().map(sent).collect();
                *owed = in_int8(&average.collect::<Vec<f32>>());
                if (call + 1) % 5 == 0 {
                    owed.fill(0.0);
                }
            }
            assert_eq!(vector, values, "shift {average_shift}, call {call}");
            assert_eq!([state.residual().to_vec(), state.owner_residual().to_vec()], owed);
        }
    }
}

/// The mean of many calls with the same input: the error of one comes with later ones.
///
/// Rows: H4
#[test]
fn the_mean_of_many_calls_is_right() {
    for codec in &codecs() {
        for route in [Route::Direct, Route::TwoLevels] {
            let hosts = [0, 0, 1, 1];
            let errors = in_process::run_on_hosts(
                &hosts,
                &EngineOptions::default(),
                |_, links| links,
                |comm| {
                    let state = state(&*comm, codec, 3000, LoCo { reset_calls: 0, ..LoCo::default() });
                    let mut state = state.by(route, &*comm).unwrap();
                    let own = input(comm.group().rank(), 0, 3000);
                    let (mut sums, mut first) = (vec![0.0f64; 3000], Vec::new());
                    for call in 0..200 {
                        let mut vector = own.clone();
                        comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state).unwrap();
                        sums.iter_mut()
                            .zip(&vector)
                            .for_each(|(sum, value)| *sum += f64::from(*value) / 200.0);
                        if call == 0 {
                            first = vector;
                        }
                    }
                    let exact = |index| {
                        (0..4).map(|rank| f64::from(crate::common::input_at(rank, 0, index))).sum::<f64>()
                    };
                    let error = |values: &mut dyn Iterator<Item = f64>| -> f64 {
                        values
                            .enumerate()
                            .map(|(index, value)| (value - exact(index)).powi(2))
                            .sum::<f64>()
                            .sqrt()
                    };
                    (error(&mut first.into_iter().map(f64::from)), error(&mut sums.into_iter()))
                },
            );
            let (first, mean) = errors[0];
            assert!(mean < 0.2 * first, "{codec:?}, {route}: error {first} in a call, {mean} in the mean");
        }
    }
}

#[test]
fn a_checkpoint_goes_on_with_the_same_bits() {
    for codec in &codecs() {
        in_process::run(3, |comm| {
            let rank = comm.group().rank();
            let mut before = state(&*comm, codec, 40_000, LoCo { average_shift: 3, reset_calls: 4 });
            for call in 0..6 {
                comm.compressed_all_reduce(&mut input(rank, call, 40_000), ReduceOp::Avg, &mut before)
                    .unwrap();
            }
            let bytes = before.export().unwrap();
            let mut after =
                CompressionState::import_with_codec::<f32>(&*comm, codec.clone(), &bytes).unwrap();
            assert_eq!(after.export().unwrap(), bytes);
            for call in 6..10 {
                let mut results = [input(rank, call, 40_000), input(rank, call, 40_000)];
                comm.compressed_all_reduce(&mut results[0], ReduceOp::Avg, &mut before).unwrap();
                comm.compressed_all_reduce(&mut results[1], ReduceOp::Avg, &mut after).unwrap();
                assert_eq!(bits(&results[0]), bits(&results[1]), "{codec:?}, call {call}");
            }
            assert!(before.bytes() < 40_000 * 11, "a byte for each element, twice: {}", before.bytes());
        });
    }
}

/// A refused step leaves the residuals as they were.
#[test]
fn a_refused_call_changes_nothing() {
    for codec in &codecs() {
        in_process::run(2, |comm| {
            let rank = comm.group().rank();
            let mut state = state(&*comm, codec, 500, LoCo::default());
            comm.compressed_all_reduce(&mut input(rank, 0, 500), ReduceOp::Sum, &mut state).unwrap();
            let before = state.export().unwrap();
            let mut vector = input(rank, 1, 500);
            vector[499] = if rank == 1 { f32::NAN } else { 0.0 };
            let refused = comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state);
            assert!(matches!(refused, Err(Error::NonFinite { .. })), "{refused:?}");
            assert_eq!(state.export().unwrap(), before, "{codec:?}");
        });
    }
}

/// The survivors go on with their residuals, to a step of int8.
#[test]
fn it_survives_a_shrink() {
    for codec in &codecs() {
        in_process::run(3, |comm| {
            let rank = comm.group().rank();
            let mut state = state(&*comm, codec, 9000, LoCo::default());
            for call in 0..3 {
                comm.compressed_all_reduce(&mut input(rank, call, 9000), ReduceOp::Sum, &mut state).unwrap();
            }
            if rank == 1 {
                return;
            }
            let _ = comm.barrier();
            let before = state.residual().to_vec();
            let shrunk = comm.shrink().unwrap();
            state.rebind(&shrunk).unwrap();
            for (before, after) in before.iter().zip(&*state.residual()) {
                assert!((before - after).abs() < 0.05, "{before} {after}");
            }
            let mut vector = input(rank, 3, 9000);
            shrunk.communicator.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state).unwrap();
        });
    }
}

#[test]
fn what_it_cannot_be_for_is_refused() {
    let comm = Solo::new();
    let with = |codec: Arc<dyn Codec>, average_shift| {
        let state = CompressionState::with_codec(&comm, codec, DType::F32, 10).unwrap();
        state.with_loco(LoCo { average_shift, ..LoCo::default() }).map(drop)
    };
    let refused = [with(Arc::new(Bf16), 2), with(Arc::new(SignRms::default()), 2)];
    for refused in refused {
        assert!(matches!(&refused, Err(Error::Unsupported { instead: Some(_), .. })), "{refused:?}");
    }
    let refused = with(Arc::new(SignL1::default()), 9).unwrap_err();
    assert!(refused.to_string().contains("average_shift"), "{refused}");
    let mut used = CompressionState::new::<f32>(&comm, SignL1::default(), 2).unwrap();
    comm.compressed_all_reduce(&mut [1.0f32, 2.0], ReduceOp::Sum, &mut used).unwrap();
    assert!(used.with_loco(LoCo::default()).unwrap_err().to_string().contains("has been called with"));
}
