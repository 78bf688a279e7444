//! The refusals of `rebind`, the state that it takes along, and failures that follow each other.

use std::sync::{Arc, Barrier};

use crate::common::{bits, input, owed, state};
use unisono_collectives::{Collectives, Solo};
use unisono_communicator::{Communicator, Error, JobRank, ReduceOp, Result};
use unisono_compression::{
    Bf16, Codec, CompressedCollectives, CompressionState, Int8, Rebound, SignL1, SignRms,
};
use unisono_engine::in_process;

const ELEMENTS: usize = 500;

fn sign() -> Arc<dyn Codec> {
    Arc::new(SignL1::with_block(64).unwrap())
}

fn call(comm: &dyn Communicator, state: &mut CompressionState, number: u64) -> Result<Vec<f32>> {
    let mut vector = input(comm.group().own_job_rank().get(), number, ELEMENTS);
    comm.compressed_all_reduce(&mut vector, ReduceOp::Avg, state).map(|()| vector)
}

/// Runs every rank on a thread that owns its communicator, so that a rank that returns has left.
fn owned<R: Send>(ranks: u32, body: impl Fn(Arc<dyn Communicator>) -> R + Sync) -> Vec<R> {
    let body = &body;
    std::thread::scope(|threads| {
        let start = |comm| threads.spawn(move || body(comm));
        let all: Vec<_> = in_process::world(ranks).into_iter().map(|comm| start(comm)).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn is_refused(result: &Result<Rebound>, words: &str) -> bool {
    matches!(result, Err(error @ Error::InvalidArgument { .. }) if error.to_string().contains(words))
}

#[test]
fn the_shrink_of_another_communicator_is_refused() {
    owned(4, |comm| {
        let rank = comm.group().rank();
        let mut state = state(&*comm, &sign(), ELEMENTS);
        call(&*comm, &mut state, 0).unwrap();
        let pair = comm.subgroup(if rank < 2 { &[0, 1] } else { &[2, 3] }).unwrap();
        let twin = comm.subgroup(&[3, 2, 1, 0]).unwrap().unwrap();
        let before = owed(&state);
        let other = "is of another communicator";
        if rank < 2 {
            assert!(is_refused(&state.rebind(&pair.unwrap().shrink().unwrap()), other));
        }
        assert!(is_refused(&state.rebind(&twin.shrink().unwrap()), other));
        assert_eq!(owed(&state), before);
        call(&*comm, &mut state, 1).unwrap();
        if rank == 3 {
            return;
        }
        assert!(call(&*comm, &mut state, 2).is_err());
        let shrunk = comm.shrink().unwrap();
        let error = call(&*shrunk.communicator, &mut state, 2).unwrap_err().to_string();
        assert!(error.contains("rebind() takes it along"), "{error}");
        state.rebind(&shrunk).unwrap();
        let once = owed(&state);
        assert!(is_refused(&state.rebind(&shrunk), other), "once is enough");
        assert_eq!(owed(&state), once);
        call(&*shrunk.communicator, &mut state, 2).unwrap();
    });
}

/// A survivor goes before it has rebound: the others stay where they were, and follow the next shrink from there.
#[test]
fn ranks_that_fail_during_a_rebind() {
    for codec in [sign(), Arc::new(SignRms::deepspeed()), Arc::new(Int8::default())] {
        let called = Barrier::new(5);
        let survivors = owned(5, |comm| {
            let rank = comm.group().rank();
            let mut state = state(&*comm, &codec, ELEMENTS);
            for number in 0..2 {
                call(&*comm, &mut state, number).unwrap();
            }
            called.wait();
            if rank == 4 {
                return None;
            }
            assert!(call(&*comm, &mut state, 2).is_err());
            let before = owed(&state);
            let first = comm.shrink().unwrap();
            if rank == 1 {
                return None;
            }
            let error = state.rebind(&first).unwrap_err();
            assert!(!error.is_before_start(), "{error}");
            assert_eq!((owed(&state), state.calls()), (before.clone(), 2));
            let second = first.communicator.shrink().unwrap();
            let rebound = state.rebind(&second).unwrap();
            assert_eq!(rebound.lost, [1, 4].map(JobRank::new));
            let kept = ELEMENTS.min(before.worker.len());
            assert_eq!(state.residual()[..kept], before.worker[..kept]);
            Some((call(&*second.communicator, &mut state, 2).unwrap(), owed(&state)))
        });
        let outputs: Vec<_> = survivors.into_iter().flatten().map(|(output, _)| bits(&output)).collect();
        assert!(outputs.len() == 3 && outputs.iter().all(|output| *output == outputs[0]), "{codec:?}");
    }
}

/// All ranks get the same error when their states cannot belong to one training.
#[test]
fn states_that_do_not_belong_together_are_refused_on_all_ranks() {
    type Spoil = fn(&dyn Communicator, CompressionState) -> CompressionState;
    let cases: [(Spoil, &str); 3] = [
        (|comm, _| state(comm, &(Arc::new(Int8::default()) as Arc<dyn Codec>), ELEMENTS), "another vector"),
        (|comm, _| state(comm, &sign(), ELEMENTS + 1), "another vector"),
        (
            |comm, state| {
                CompressionState::import::<f32>(
                    comm,
                    SignL1::with_block(64).unwrap(),
                    &state.export().unwrap(),
                )
                .unwrap()
            },
            "0 to 2 calls",
        ),
    ];
    for (spoil, words) in cases {
        owned(3, |comm| {
            let rank = comm.group().rank();
            let mut trained = state(&*comm, &sign(), ELEMENTS);
            for number in 0..2 {
                call(&*comm, &mut trained, number).unwrap();
            }
            if words.starts_with('0') {
                // Rank 0 begins anew, which another cannot go back to.
                if rank == 0 {
                    trained = state(&*comm, &sign(), ELEMENTS);
                } else {
                    trained = spoil(&*comm, trained);
                }
            } else if rank == 0 {
                trained = spoil(&*comm, trained);
            }
            let before = owed(&trained);
            let shrunk = comm.shrink().unwrap();
            let refused = trained.rebind(&shrunk);
            assert!(is_refused(&refused, words), "{refused:?}");
            assert_eq!(owed(&trained), before);
        });
    }
}

/// A reduce-scatter of vectors of these lengths.
fn scatter(comm: &dyn Communicator, state: &mut CompressionState, lengths: &[usize]) -> Result<()> {
    let (rank, ranks) = (comm.group().rank() as usize, comm.group().size() as usize);
    let share = |length: &usize| {
        let chunk = length.div_ceil(ranks);
        (chunk * (rank + 1)).min(*length) - (chunk * rank).min(*length)
    };
    let given: Vec<Vec<f32>> = lengths.iter().map(|length| input(rank as u32, 0, *length)).collect();
    let inputs: Vec<&[f32]> = given.iter().map(|vector| &vector[..]).collect();
    let mut outputs: Vec<Vec<f32>> = lengths.iter().map(|length| vec![0.0; share(length)]).collect();
    let mut outputs: Vec<&mut [f32]> = outputs.iter_mut().map(|output| &mut output[..]).collect();
    comm.compressed_reduce_scatter(&inputs, &mut outputs, ReduceOp::Sum, state)
}

/// Makes a state, and calls with it.
struct Use {
    make: fn(&dyn Communicator) -> CompressionState,
    call: fn(&dyn Communicator, &mut CompressionState) -> Result<()>,
}

/// Among fewer ranks the elements of several vectors, and the elements of an all-gather, have other places in the
/// residuals. Their states are refused on all ranks, and stay as they are; a reduce-scatter of one vector goes on with
/// its residuals.
#[test]
fn states_whose_elements_change_their_places_are_refused() {
    let several = Use {
        make: |comm| CompressionState::reduce_scatter::<f32>(comm, sign(), &[300, 0, 300]).unwrap(),
        call: |comm, state| scatter(comm, state, &[300, 0, 300]),
    };
    let shares = Use {
        make: |comm| CompressionState::all_gather::<f32>(comm, sign(), &[300, 200, 100]).unwrap(),
        call: |comm, state| {
            let share = input(comm.group().rank(), 0, state.owned().len());
            comm.compressed_all_gather(&share, &mut vec![0.0; 600], state)
        },
    };
    let one = Use {
        make: |comm| CompressionState::reduce_scatter::<f32>(comm, sign(), &[600, 0]).unwrap(),
        call: |comm, state| scatter(comm, state, &[600, 0]),
    };
    let cases =
        [(several, Some("reduce_scatter of several vectors")), (shares, Some("all_gather")), (one, None)];
    for (Use { make, call }, refused) in cases {
        let called = Barrier::new(3);
        owned(3, |comm| {
            let mut state = make(&*comm);
            call(&*comm, &mut state).unwrap();
            called.wait();
            if comm.group().rank() == 2 {
                return;
            }
            let before = owed(&state);
            let shrunk = comm.shrink().unwrap();
            match (state.rebind(&shrunk), refused) {
                (Err(error @ Error::Unsupported { instead: Some(_), .. }), Some(what)) => {
                    assert!(error.to_string().contains(what), "{error}");
                    assert_eq!(owed(&state), before);
                }
                (Ok(rebound), None) => {
                    assert!(!rebound.went_back);
                    assert_eq!(owed(&state).worker, before.worker);
                    call(&*shrunk.communicator, &mut state).unwrap();
                }
                (other, _) => panic!("{other:?}, expected a refusal of {refused:?}"),
            }
            shrunk.communicator.barrier().unwrap();
        });
    }
}

/// A NaN before the failure leaves nothing behind that a rebind could find; a checkpoint after it goes on alike.
#[test]
fn a_rebind_after_a_nan_and_a_checkpoint_after_a_rebind() {
    for codec in [sign(), Arc::new(SignRms::default())] {
        let run = |has_nan: bool| {
            let called = Barrier::new(3);
            let survivors = owned(3, |comm| {
                let rank = comm.group().rank();
                let mut state = state(&*comm, &codec, ELEMENTS);
                for number in 0..3 {
                    call(&*comm, &mut state, number).unwrap();
                }
                if has_nan {
                    let mut bad = vec![if rank == 0 { f32::NAN } else { 1.0 }; ELEMENTS];
                    let error = comm.compressed_all_reduce(&mut bad, ReduceOp::Sum, &mut state).unwrap_err();
                    assert!(matches!(error, Error::NonFinite { rank, .. } if rank.get() == 0), "{error}");
                }
                called.wait();
                if rank == 2 {
                    return None;
                }
                assert!(call(&*comm, &mut state, 3).is_err());
                let shrunk = comm.shrink().unwrap();
                assert!(!state.rebind(&shrunk).unwrap().went_back);
                let bytes = state.export().unwrap();
                let comm = &*shrunk.communicator;
                let mut again =
                    CompressionState::import_with_codec::<f32>(comm, codec.clone(), &bytes).unwrap();
                let straight = call(comm, &mut state, 3).unwrap();
                assert_eq!(bits(&call(comm, &mut again, 3).unwrap()), bits(&straight));
                assert_eq!(again.export().unwrap(), state.export().unwrap());
                // A state of three ranks is no state of two.
                Some((bits(&straight), owed(&state)))
            });
            survivors.into_iter().flatten().collect::<Vec<_>>()
        };
        assert_eq!(run(true), run(false), "{codec:?}");
    }
}

/// A state of three ranks is none of two, and one of rank 0 none of rank 1.
#[test]
fn checkpoints_of_other_ranks_and_sizes_are_refused() {
    in_process::run(3, |comm| {
        let mut state = state(&*comm, &sign(), ELEMENTS);
        call(&*comm, &mut state, 0).unwrap();
        let bytes = state.export().unwrap();
        let import = |comm: &dyn Communicator| {
            CompressionState::import::<f32>(comm, SignL1::with_block(64).unwrap(), &bytes).map(drop)
        };
        import(&*comm).unwrap();
        let refused = |result: Result<()>| matches!(result, Err(Error::InvalidArgument { .. }));
        assert!(refused(import(&Solo::new())));
        assert!(refused(
            CompressionState::import::<unisono_communicator::f16>(
                &*comm,
                SignL1::with_block(64).unwrap(),
                &bytes
            )
            .map(drop)
        ));
        let turned = comm.subgroup(&[1, 2, 0]).unwrap().unwrap();
        assert!(refused(import(&*turned)), "another rank");
        let mut longer = bytes.clone();
        longer.extend([0; 4]);
        assert!(refused(
            CompressionState::import::<f32>(&*comm, SignL1::with_block(64).unwrap(), &longer).map(drop)
        ));
    });
}

/// A codec without residuals has no length that could be compared with the file's.
#[test]
fn a_checkpoint_of_more_elements_than_there_can_be_is_refused() {
    in_process::run(3, |comm| {
        let mut bytes = state(&*comm, &(Arc::new(Bf16) as Arc<dyn Codec>), 5).export().unwrap();
        for length in [u64::MAX, u64::MAX - 1023, 1 << 63, 1 << 61] {
            bytes[25..33].copy_from_slice(&length.to_le_bytes());
            let refused = CompressionState::import::<f32>(&*comm, Bf16, &bytes).map(drop);
            assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{length}: {refused:?}");
        }
    });
}

/// A reset forgets also the residuals for a step back.
#[test]
fn a_reset_forgets_both_generations() {
    in_process::run(2, |comm| {
        let (mut used, mut fresh) = (state(&*comm, &sign(), ELEMENTS), state(&*comm, &sign(), ELEMENTS));
        for number in 0..3 {
            call(&*comm, &mut used, number).unwrap();
        }
        used.reset().unwrap();
        assert_eq!(owed(&used), owed(&fresh));
        assert_eq!(bits(&call(&*comm, &mut used, 5).unwrap()), bits(&call(&*comm, &mut fresh, 5).unwrap()));
    });
}

#[test]
fn a_world_of_one_shrinks_and_rebinds() {
    let comm = Solo::new();
    let mut state = state(&comm, &sign(), ELEMENTS);
    call(&comm, &mut state, 0).unwrap();
    let before = owed(&state);
    let shrunk = comm.shrink().unwrap();
    let rebound = state.rebind(&shrunk).unwrap();
    assert_eq!(rebound, Rebound { went_back: false, lost: vec![], lost_elements: vec![] });
    assert_eq!((owed(&state), state.calls()), (before, 1));
    call(&*shrunk.communicator, &mut state, 1).unwrap();
}
