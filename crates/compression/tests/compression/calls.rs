//! Compressed calls between ranks that are threads: their results, their errors, and the values that they leave as
//! before.

use crate::common::{codecs, noise};
use unisono_collectives::Collectives;
use unisono_communicator::{Communicator, DType, Error, Group, ReduceOp};
use unisono_compression::{
    CompressedCollectives, CompressionState, Int4, Int8, Route, SignL1, codec_by_name, wire_bytes,
};
use unisono_engine::in_process;

/// Rows: G7
#[test]
fn a_nan_changes_nothing_and_is_named() {
    for codec in codecs() {
        for (elements, bad) in [(1usize, 0usize), (5000, 4999), (300_000, 150_001)] {
            for poison in [f32::NAN, f32::INFINITY] {
                in_process::run(3, |comm| {
                    let rank = comm.group().rank();
                    let input: Vec<f32> = (0..elements).map(|index| noise(rank.into(), index)).collect();
                    let state =
                        || CompressionState::with_codec(&*comm, codec.clone(), DType::F32, elements).unwrap();
                    let (mut state, mut clean) = (state(), state());
                    for step in 0..3 {
                        let mut vector = input.clone();
                        if step == 1 {
                            if rank == 1 {
                                vector[bad] = poison;
                            }
                            let before =
                                (vector.clone(), state.residual().to_vec(), state.owner_residual().to_vec());
                            let error = comm
                                .compressed_all_reduce(&mut vector, ReduceOp::Avg, &mut state)
                                .unwrap_err();
                            let Error::NonFinite { rank, block, block_elements, .. } = &error else {
                                panic!("{error}")
                            };
                            assert_eq!(
                                (rank.get(), *block),
                                (1, bad as u64 / block_elements),
                                "{codec:?}: {error}"
                            );
                            assert!(error.is_before_start());
                            let bits = |values: &[f32]| {
                                values.iter().map(|value| value.to_bits()).collect::<Vec<_>>()
                            };
                            assert_eq!(bits(&before.0), bits(&vector));
                            assert_eq!(state.residual(), before.1);
                            assert_eq!(state.owner_residual(), before.2);
                            continue;
                        }
                        let mut expected = vector.clone();
                        comm.compressed_all_reduce(&mut vector, ReduceOp::Avg, &mut state).unwrap();
                        comm.compressed_all_reduce(&mut expected, ReduceOp::Avg, &mut clean).unwrap();
                        assert_eq!(vector, expected, "{codec:?}");
                    }
                });
            }
        }
    }
}

#[test]
fn wrong_arguments_are_refused_before_anything_is_sent() {
    in_process::run(2, |comm| {
        let mut state = CompressionState::new::<f32>(&*comm, Int8::default(), 8).unwrap();
        let mut vector = [1.0f32; 8];
        let text = |result: unisono_communicator::Result<()>| result.unwrap_err().to_string();
        let longer = text(comm.compressed_all_reduce(&mut [0.0f32; 9], ReduceOp::Sum, &mut state));
        let call = concat!("compressed_all_reduce/int8(9 x f32, sum, in place) at ", file!(), ":");
        let expected = format!("invalid state: is for 8 elements, the call has 9, in {call}");
        assert!(longer.starts_with(&expected), "{longer}");
        let max = text(comm.compressed_all_reduce(&mut vector, ReduceOp::Max, &mut state));
        assert!(max.contains("the operator max"), "{max}");
        let ints = text(comm.compressed_all_reduce(&mut [0i32; 8], ReduceOp::Sum, &mut state));
        assert!(ints.contains("elements of i32"), "{ints}");
        let halves = [unisono_communicator::f16::ONE; 8];
        let half = text(comm.compressed_all_reduce(&mut halves.clone(), ReduceOp::Sum, &mut state));
        assert!(half.starts_with("invalid state: is for elements of f32, the call has f16, in "), "{half}");
        let other = comm.subgroup(&[1, 0]).unwrap().unwrap();
        let group = text(other.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state));
        assert!(group.contains("invalid state"), "{group}");
        comm.compressed_all_reduce(&mut vector, ReduceOp::Avg, &mut state).unwrap();
    });
}

#[test]
fn other_codecs_and_plain_calls_are_a_mismatch() {
    let calls: [fn(&dyn Communicator) -> unisono_communicator::Result<()>; 4] = [
        |comm| {
            let mut state = CompressionState::new::<f32>(comm, Int8::default(), 8)?;
            comm.compressed_all_reduce(&mut [0.0f32; 8], ReduceOp::Sum, &mut state)
        },
        |comm| {
            let mut state = CompressionState::new::<f32>(comm, Int4::default(), 8)?;
            comm.compressed_all_reduce(&mut [0.0f32; 8], ReduceOp::Sum, &mut state)
        },
        |comm| {
            let mut state = CompressionState::new::<f32>(comm, Int8::default(), 9)?;
            comm.compressed_all_reduce(&mut [0.0f32; 9], ReduceOp::Sum, &mut state)
        },
        |comm| comm.all_reduce(&mut [0.0f32; 8], ReduceOp::Sum),
    ];
    for left in 0..4 {
        for right in 0..left {
            in_process::run(2, |comm| {
                let error = calls[if comm.group().rank() == 0 { left } else { right }](&*comm).unwrap_err();
                assert!(matches!(error, Error::Mismatch { .. }), "{left} and {right}: {error}");
                assert!(error.to_string().contains("compressed_all_reduce/int"), "{error}");
            });
        }
    }
}

/// Rows: G11
#[test]
fn narrow_floats_and_lists_are_as_one_vector_of_f32() {
    use unisono_communicator::{bf16, f16};
    in_process::run(2, |comm| {
        let seed = u64::from(comm.group().rank());
        let exact: Vec<f32> = (0..3000).map(|index| bf16::from_f32(noise(seed, index)).to_f32()).collect();
        let state = |dtype| {
            CompressionState::with_codec(&*comm, codec_by_name("sign").unwrap(), dtype, 3000).unwrap()
        };
        let (mut wide, mut wide_state) = (exact.clone(), state(DType::F32));
        comm.compressed_all_reduce(&mut wide, ReduceOp::Avg, &mut wide_state).unwrap();

        let (mut narrow, mut narrow_state): (Vec<bf16>, _) =
            (exact.iter().map(|value| bf16::from_f32(*value)).collect(), state(DType::BF16));
        comm.compressed_all_reduce(&mut narrow, ReduceOp::Avg, &mut narrow_state).unwrap();
        assert!(narrow.iter().zip(&wide).all(|(narrow, wide)| *narrow == bf16::from_f32(*wide)));
        assert_eq!(narrow_state.residual(), wide_state.residual());

        let (mut half, mut half_state): (Vec<f16>, _) =
            (exact.iter().map(|value| f16::from_f32(*value)).collect(), state(DType::F16));
        comm.compressed_all_reduce(&mut half, ReduceOp::Avg, &mut half_state).unwrap();
        assert!(half.iter().zip(&wide).all(|(half, wide)| (half.to_f32() - wide).abs() < 0.01));

        let (mut parts, mut parts_state) = (exact, state(DType::F32));
        let (first, rest) = parts.split_at_mut(1500);
        let (second, third) = rest.split_at_mut(1);
        comm.compressed_all_reduce_coalesced(
            &mut [first, second, &mut [], third],
            ReduceOp::Avg,
            &mut parts_state,
        )
        .unwrap();
        assert_eq!(parts, wide);
        assert_eq!(parts_state.residual(), wide_state.residual());
    });
}

/// Rows: G9
#[test]
fn wire_and_state_are_as_small_as_promised() {
    for (name, most) in [("sign", 1.0 / 30.0), ("int8", 0.26), ("int4", 0.135), ("bf16", 0.51)] {
        let codec = codec_by_name(name).unwrap();
        for ranks in [2usize, 3, 4, 8] {
            for elements in [1usize << 20, 16 << 20] {
                let exact = (2 * (ranks - 1) * elements * 4) as f64;
                let part = wire_bytes(&*codec, elements, ranks) as f64 / exact;
                assert!(part <= most, "{name}, {elements} elements, {ranks} ranks: {part}");
            }
        }
    }
    let elements = 1 << 20;
    for rank in 0..4 {
        let comm = Described(Group::world(rank, 4));
        let state = CompressionState::new::<f32>(&comm, SignL1::default(), elements).unwrap();
        let most = elements * 8 + elements * 8 / 4;
        assert!(state.bytes() <= most, "{}", state.bytes());
        let computed = unisono_compression::residual_bytes(&SignL1::default(), elements, rank as usize, 4);
        assert_eq!(computed, state.bytes() as u64);
    }
}

/// A group of several ranks that cannot communicate.
struct Described(Group);

impl unisono_communicator::Executor for Described {
    fn group(&self) -> &Group {
        &self.0
    }

    fn execute(
        &self,
        _: &mut unisono_communicator::Call<'_>,
    ) -> unisono_communicator::Result<unisono_communicator::Outcome> {
        Err(Error::closed())
    }

    fn submit(&self, call: unisono_communicator::OwnedCall) -> unisono_communicator::Work {
        let buffers = Some(call.buffers);
        unisono_communicator::Work::finished(unisono_communicator::Finished {
            result: Err(Error::closed()),
            buffers,
        })
    }

    fn life(&self) -> &dyn unisono_communicator::Life {
        self
    }
}

impl unisono_communicator::Life for Described {
    fn backend(&self) -> &'static str {
        "described"
    }
}

#[test]
fn asynchronous_calls_give_the_same_and_the_state_back() {
    in_process::run(2, |comm| {
        let seed = u64::from(comm.group().rank());
        let input: Vec<f32> = (0..100_000).map(|index| noise(seed, index)).collect();
        let state = || CompressionState::new::<f32>(&*comm, SignL1::default(), input.len()).unwrap();
        let (mut blocking, mut blocking_state) = (input.clone(), state());
        comm.compressed_all_reduce(&mut blocking, ReduceOp::Avg, &mut blocking_state).unwrap();
        let work = comm.compressed_all_reduce_async(input.clone(), ReduceOp::Avg, state());
        let (result, vector, after) = work.wait();
        result.unwrap();
        assert_eq!((vector, after.residual()), (blocking, blocking_state.residual()));
        let (result, vector, _) =
            comm.compressed_all_reduce_async(input.clone(), ReduceOp::Min, after).wait();
        assert!(matches!(result, Err(Error::Unsupported { .. })));
        assert_eq!(vector, input);
    });
}

/// Rows: G12
#[test]
fn a_checkpoint_is_the_state() {
    for (codec, route) in codecs()
        .into_iter()
        .flat_map(|codec| [Route::Direct, Route::TwoLevels].map(|route| (codec.clone(), route)))
    {
        in_process::run(3, |comm| {
            let seed = u64::from(comm.group().rank());
            let input: Vec<f32> = (0..10_000).map(|index| noise(seed, index)).collect();
            let state = CompressionState::with_codec(&*comm, codec.clone(), DType::F32, input.len()).unwrap();
            let mut state = state.by(route, &*comm).unwrap();
            comm.compressed_all_reduce(&mut input.clone(), ReduceOp::Sum, &mut state).unwrap();
            let bytes = state.export().unwrap();
            let mut later =
                CompressionState::import_with_codec::<f32>(&*comm, codec.clone(), &bytes).unwrap();
            let (mut straight, mut resumed) = (input.clone(), input);
            comm.compressed_all_reduce(&mut straight, ReduceOp::Sum, &mut state).unwrap();
            comm.compressed_all_reduce(&mut resumed, ReduceOp::Sum, &mut later).unwrap();
            assert_eq!(straight, resumed, "{codec:?} by {route}");
            assert_eq!(state.export().unwrap(), later.export().unwrap(), "{codec:?} by {route}");
        });
    }
}

#[test]
fn a_checkpoint_that_is_cut_or_of_something_else_is_refused() {
    in_process::run(3, |comm| {
        let state = CompressionState::new::<f32>(&*comm, SignL1::default(), 10_000).unwrap();
        let bytes = state.export().unwrap();
        let import =
            |bytes: &[u8]| CompressionState::import::<f32>(&*comm, SignL1::default(), bytes).map(drop);
        for length in [0, 5, 20, bytes.len() - 1] {
            assert!(matches!(import(&bytes[..length]), Err(Error::InvalidArgument { .. })), "{length}");
        }
        assert!(CompressionState::import::<f32>(&*comm, Int8::default(), &bytes).is_err());
        let mut poisoned = bytes;
        let end = poisoned.len();
        poisoned[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
        assert!(import(&poisoned).is_err());
    });
}
