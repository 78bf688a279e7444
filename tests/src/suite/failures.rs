//! What ends a call early: deadlines, revocation, panics in the caller's own function.

use std::sync::Barrier;
use std::time::Duration;

use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{CallOptions, Error, Peer, ReduceOp, UserOp};

use crate::backend::Backend;
use crate::suite::reductions::has_user_operators;
use crate::world::{options, run};

const SHORT: Duration = Duration::from_millis(500);

/// The deadline's error lists who has not come, and every rank gets it as the first cause. In a ring most ranks wait
/// for one who waits himself.
pub fn timeouts_name_who_is_missing(backend: &dyn Backend) {
    let worlds = [(2, 1, "direct"), (3, 0, "direct"), (4, 2, "direct"), (7, 3, "ring")];
    for (ranks, missing, algorithm) in worlds.into_iter().filter(|world| world.0 <= backend.ranks_max()) {
        let waited = Barrier::new(ranks as usize);
        let errors = run(backend, ranks, &options(), |comm| {
            let is_missing = comm.group().rank() == missing;
            if is_missing {
                waited.wait();
            }
            let options = backend.forcing(algorithm);
            let comm = comm.with(if is_missing { options } else { options.timeout(SHORT) });
            let error = comm.all_reduce(&mut vec![1i32; ranks as usize], ReduceOp::Sum).unwrap_err();
            if !is_missing {
                waited.wait();
            }
            error
        });
        for (rank, error) in errors.iter().enumerate() {
            let Error::Timeout { not_arrived, waited, .. } = error.root_cause() else {
                panic!("rank {rank} of {ranks}: {error}")
            };
            // Others may be awaited too, who themselves wait for the missing one.
            let awaited = not_arrived.iter().find(|awaited| awaited.rank.get() == missing);
            let awaited = awaited.unwrap_or_else(|| panic!("rank {rank} of {ranks}: {error}"));
            assert!(awaited.status.contains("has not called"), "rank {rank} of {ranks}: {error}");
            assert!(*waited >= SHORT, "{error}");
        }
    }
    timeouts_follow_waits_in_earlier_calls(backend);
}

/// In a ring rank 0 waits for rank 2 only, which has not called because it waits for a message of rank 1.
fn timeouts_follow_waits_in_earlier_calls(backend: &dyn Backend) {
    let waited = Barrier::new(2);
    let errors = run(backend, 3, &options(), |comm| match comm.group().rank() {
        0 => {
            let hurried = comm.with(backend.forcing("ring").timeout(SHORT));
            let error = hurried.all_reduce(&mut [1i32; 3], ReduceOp::Sum).unwrap_err();
            waited.wait();
            error
        }
        2 => comm.recv(&mut [0u8], Peer::Rank(1), 5).unwrap_err(),
        _ => {
            waited.wait();
            comm.barrier().unwrap_err()
        }
    });
    for (rank, error) in errors.iter().enumerate() {
        let Error::Timeout { not_arrived, .. } = error.root_cause() else { panic!("rank {rank}: {error}") };
        let status = |rank| not_arrived.iter().find(|one| one.rank.get() == rank).map(|one| &*one.status);
        // Another algorithm than a ring may wait for rank 1 itself.
        if backend.algorithms().are_ours() {
            let told = status(2).unwrap_or_default();
            assert!(told.starts_with("is in recv(1 x u8, peer 1, tag 5) at "), "rank {rank}: {error}");
            assert!(
                told.ends_with(", has called no collective yet and waits for rank 1"),
                "rank {rank}: {error}"
            );
        }
        assert_eq!(status(1), Some("has not called anything yet"), "rank {rank}: {error}");
    }
}

/// A late receive fails every later call too, whether its thread blocks in it or waits for its handle.
pub fn receives_have_deadlines(backend: &dyn Backend) {
    let ranks = backend.ranks_max().min(2);
    for is_blocking in [true, false] {
        run(backend, ranks, &options(), |comm| {
            let is_late = |error: Error| {
                assert!(matches!(error.root_cause(), Error::Timeout { .. }), "{error}");
            };
            if comm.group().rank() == 0 {
                let hurried = comm.with(CallOptions::new().timeout(SHORT));
                let from = Peer::Rank(ranks - 1);
                is_late(match is_blocking {
                    true => hurried.recv(&mut [0u8; 4], from, 5).unwrap_err(),
                    false => hurried.recv_async(vec![0u8; 4], from, 5).into_work().wait().unwrap_err(),
                });
            }
            is_late(comm.barrier().unwrap_err());
        });
    }
}

fn cause(text: &str) -> Error {
    Error::System { what: "the data".to_owned(), text: text.to_owned() }
}

fn is_cause(error: &Error, cause: &str) -> bool {
    matches!(error.root_cause(), Error::System { text, .. } if text == cause)
}

/// A revocation ends blocked calls, asynchronous ones and receives, on every rank. All collectives are the same one, so
/// that no mismatch can be the first cause; some ranks never come, so that it cannot end.
pub fn revocation_reaches_everybody(backend: &dyn Backend) {
    for &ranks in backend.rank_counts().iter().filter(|&&ranks| ranks > 1) {
        run(backend, ranks, &options(), |comm| {
            let rank = comm.group().rank();
            let error = match rank % 4 {
                0 if rank == 0 => {
                    comm.revoke(cause("the loss is not finite")).unwrap();
                    comm.all_reduce(&mut [1i8], ReduceOp::Sum).unwrap_err()
                }
                1 => comm.all_reduce_async(vec![1i8], ReduceOp::Sum).wait().unwrap_err(),
                2 => comm.recv(&mut [0u8; 1], Peer::Any, 1).unwrap_err(),
                _ => comm.all_reduce(&mut [1i8], ReduceOp::Sum).unwrap_err(),
            };
            assert!(is_cause(&error, "the loss is not finite"), "rank {rank} of {ranks}: {error}");
        });
    }
}

/// A later cause changes nothing, and later calls repeat the first one.
pub fn first_cause_stays(backend: &dyn Backend) {
    let ranks = backend.ranks_max().min(3);
    run(backend, ranks, &options(), |comm| {
        let revokes = ranks / 2;
        if comm.group().rank() == revokes {
            comm.revoke(cause("first")).unwrap();
            comm.revoke(cause("second")).unwrap();
        }
        for _ in 0..3 {
            let error = comm.barrier().unwrap_err();
            assert!(is_cause(&error, "first"), "{error}");
            assert!(matches!(&error, Error::Revoked { by, .. } if by.get() == revokes), "{error}");
        }
        assert!(comm.close().is_err());
    });
}

/// A panic in the caller's function fails the call everywhere, with the rank and the text; the process lives.
pub fn panics_in_user_functions(backend: &dyn Backend) {
    for ranks in backend.among(&[2, 3]) {
        run(backend, ranks, &options(), |comm| {
            let rank = comm.group().rank();
            if !has_user_operators(comm) {
                return;
            }
            let op = UserOp::commutative("fragile");
            let error =
                comm.all_reduce_user(&mut [1i32; 4], op, |_, _, _| panic!("no such sum")).unwrap_err();
            let is_panic =
                matches!(error.root_cause(), Error::Panicked { text, .. } if text.contains("no such sum"));
            assert!(is_panic, "rank {rank} of {ranks}: {error}");
            assert!(error.to_string().contains("user(fragile)"), "rank {rank} of {ranks}: {error}");
        });
    }
}

/// Who has ended its part may leave without a word, while the others still finish the last call.
pub fn leaving_without_closing_harms_nobody(backend: &dyn Backend) {
    let ranks = backend.ranks_max().min(8);
    for round in 0..10 {
        run(backend, ranks, &options(), |comm| {
            comm.barrier().unwrap();
            comm.all_reduce(&mut [1i32], ReduceOp::Sum).unwrap_or_else(|error| {
                panic!("round {round}, rank {}: {error}", comm.group().rank());
            });
        });
    }
}
