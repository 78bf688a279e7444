//! What ends a call early: deadlines, revocation, panics in the caller's own function.

use std::sync::Barrier;
use std::time::Duration;

use unisono_communicator::{
    CallOptions, Collectives, CollectivesAsync, Error, Peer, ReduceOp, UserOp,
};

use crate::backend::Backend;
use crate::world::{options, run};

const SHORT: Duration = Duration::from_millis(500);

/// The deadline's error lists who has not come, and every rank gets it as the first cause.
pub fn timeouts_name_who_is_missing(backend: &dyn Backend) {
    for (ranks, missing) in [(2, 1), (3, 0), (4, 2)] {
        let waited = Barrier::new(ranks as usize);
        let errors = run(backend, ranks, &options(), |comm| {
            if comm.group().rank() == missing {
                waited.wait();
                return comm.barrier().unwrap_err();
            }
            // Directly, so that nobody waits for one who waits himself.
            let hurried = comm.with(CallOptions::new().timeout(SHORT).algorithm("direct"));
            let error = hurried.all_reduce(&mut vec![1u32; ranks as usize], ReduceOp::Sum).unwrap_err();
            waited.wait();
            error
        });
        for (rank, error) in errors.iter().enumerate() {
            let Error::Timeout { not_arrived, waited, .. } = error.root_cause() else {
                panic!("rank {rank} of {ranks}: {error}")
            };
            let awaited: Vec<u32> = not_arrived.iter().map(|awaited| awaited.rank).collect();
            assert_eq!(awaited, [missing], "rank {rank} of {ranks}: {error}");
            assert!(not_arrived[0].status.contains("has not called"), "{error}");
            assert!(*waited >= SHORT, "{error}");
        }
    }
    receives_have_deadlines(backend);
}

fn receives_have_deadlines(backend: &dyn Backend) {
    run(backend, 2, &options(), |comm| {
        if comm.group().rank() == 0 {
            let hurried = comm.with(CallOptions::new().timeout(SHORT));
            let error = hurried.recv(&mut [0u8; 4], Peer::Rank(1), 5).unwrap_err();
            assert!(matches!(error.root_cause(), Error::Timeout { .. }), "{error}");
        } else {
            let error = comm.barrier().unwrap_err();
            assert!(matches!(error.root_cause(), Error::Timeout { .. }), "{error}");
        }
    });
}

/// A revocation ends blocked calls, asynchronous ones and receives, on every rank.
pub fn revocation_reaches_everybody(backend: &dyn Backend) {
    for &ranks in backend.rank_counts().iter().filter(|&&ranks| ranks > 1) {
        run(backend, ranks, &options(), |comm| {
            let rank = comm.group().rank();
            let error = match rank % 4 {
                0 if rank == 0 => {
                    comm.revoke(Error::invalid("data", "the loss is not finite")).unwrap();
                    comm.barrier().unwrap_err()
                }
                1 => comm.all_reduce_async(vec![1u8], ReduceOp::Sum).wait().unwrap_err(),
                2 => comm.recv(&mut [0u8; 1], Peer::Any, 1).unwrap_err(),
                _ => comm.barrier().unwrap_err(),
            };
            let is_cause = matches!(error.root_cause(), Error::InvalidArgument { argument: "data", .. });
            assert!(is_cause, "rank {rank} of {ranks}: {error}");
            assert!(!error.is_before_start(), "rank {rank} of {ranks}: {error}");
        });
    }
}

/// A later cause changes nothing, and later calls repeat the first one.
pub fn first_cause_stays(backend: &dyn Backend) {
    run(backend, 3, &options(), |comm| {
        if comm.group().rank() == 1 {
            comm.revoke(Error::invalid("data", "first")).unwrap();
            comm.revoke(Error::invalid("data", "second")).unwrap();
        }
        for _ in 0..3 {
            let error = comm.barrier().unwrap_err();
            assert!(matches!(&error, Error::Revoked { by: 1, .. }), "{error}");
            let is_first =
                matches!(error.root_cause(), Error::InvalidArgument { problem, .. } if problem == "first");
            assert!(is_first, "{error}");
        }
        assert!(comm.close().is_err());
    });
}

/// A panic in the caller's function fails the call everywhere, with the rank and the text; the process lives.
pub fn panics_in_user_functions(backend: &dyn Backend) {
    for ranks in [2, 3] {
        run(backend, ranks, &options(), |comm| {
            let rank = comm.group().rank();
            let op = UserOp { name: "fragile", commutative: true };
            let error =
                comm.all_reduce_user(&mut [1u32; 4], op, |_, _, _| panic!("no such sum")).unwrap_err();
            let is_panic =
                matches!(error.root_cause(), Error::Panicked { text, .. } if text.contains("no such sum"));
            assert!(is_panic, "rank {rank} of {ranks}: {error}");
        });
    }
}
