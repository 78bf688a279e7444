//! The errors of a subgroup name ranks of the job, whatever these are in the group.

use std::sync::Barrier;
use std::time::Duration;

use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{CallOptions, Communicator, Error, JobRank, Peer, ReduceOp, UserOp};
use unisono_engine::EngineOptions;

use crate::backend::Backend;
use crate::suite::reductions::has_user_operators;
use crate::world::{options, run};

/// The ranks of the job that are the ranks 0, 1 and 2 of the group: none is the same in both.
const MEMBERS: [JobRank; 3] = [JobRank::new(2), JobRank::new(0), JobRank::new(3)];

const SHORT: Duration = Duration::from_millis(500);

/// What `body` gives on the members, by their rank in the group.
fn in_subgroup<R: Send>(
    backend: &dyn Backend,
    options: &EngineOptions,
    body: impl Fn(&dyn Communicator) -> R + Sync,
) -> Vec<R> {
    let of_job = run(backend, 4, options, |comm| {
        let group = comm.subgroup(&MEMBERS.map(JobRank::get)).unwrap()?;
        Some((group.group().rank(), body(&*group)))
    });
    let mut results: Vec<_> = of_job.into_iter().flatten().collect();
    results.sort_by_key(|(rank, _)| *rank);
    assert_eq!(results.len(), MEMBERS.len());
    results.into_iter().map(|(_, result)| result).collect()
}

fn sum(comm: &dyn Communicator, direct: CallOptions, elements: usize) -> Error {
    let direct = comm.with(direct);
    direct.all_reduce(&mut vec![1i32; elements], ReduceOp::Sum).unwrap_err()
}

/// Of a call, and of an agreement.
pub fn timeouts(backend: &dyn Backend) {
    let (others_know, direct) = (Barrier::new(MEMBERS.len()), backend.forcing("direct"));
    let errors = in_subgroup(backend, &options(), |comm| {
        if comm.group().rank() == 2 {
            others_know.wait();
            return comm.barrier().unwrap_err();
        }
        let hurried = CallOptions::new().timeout(SHORT);
        let error =
            if comm.group().rank() == 0 { sum(&comm.with(hurried), direct, 4) } else { sum(comm, direct, 4) };
        others_know.wait();
        error
    });
    for error in errors {
        let Error::Timeout { reported_by, not_arrived, .. } = &error else { panic!("{error}") };
        let missing = not_arrived.iter().find(|one| one.status.contains("has not called"));
        assert_eq!((*reported_by, missing.map(|one| one.rank)), (MEMBERS[0], Some(MEMBERS[2])), "{error}");
        assert!(not_arrived.iter().all(|one| MEMBERS.contains(&one.rank)), "{error}");
        assert!(!error.to_string().contains("rank 1"), "{error}");
    }
    let impatient = EngineOptions { timeout: SHORT, ..options() };
    let errors = in_subgroup(backend, &impatient, |comm| {
        let error = (comm.group().rank() < 2).then(|| comm.agree(true).unwrap_err());
        others_know.wait();
        error
    });
    for (own, error) in MEMBERS.into_iter().zip(errors.into_iter().flatten()) {
        let Error::Timeout { reported_by, not_arrived, .. } = &error else { panic!("{error}") };
        let awaited: Vec<JobRank> = not_arrived.iter().map(|one| one.rank).collect();
        assert_eq!((*reported_by, awaited), (own, vec![MEMBERS[2]]), "{error}");
    }
}

/// The odd call is that of the rank that has made it.
pub fn mismatches(backend: &dyn Backend) {
    let errors = in_subgroup(backend, &options(), |comm| {
        let elements = if comm.group().rank() == 2 { 5 } else { 4 };
        sum(comm, backend.forcing("direct"), elements)
    });
    for error in errors {
        let Error::Mismatch { calls, .. } = &error else { panic!("{error}") };
        assert!(calls.iter().all(|(rank, _)| MEMBERS.contains(rank)), "{error}");
        assert!(
            calls.iter().all(|(rank, call)| (*rank == MEMBERS[2]) == (call.descriptor.count == 5)),
            "{error}"
        );
    }
}

/// A user's function panics on one rank.
pub fn user_panics(backend: &dyn Backend) {
    let errors = in_subgroup(backend, &options(), |comm| {
        if !has_user_operators(comm) {
            return None;
        }
        let op = UserOp::commutative("fragile");
        let is_fragile = comm.group().rank() == 1;
        let direct = comm.with(backend.forcing("direct"));
        let called = direct.all_reduce_user(&mut [1i32; 6], op, move |_, _, _| assert!(!is_fragile));
        // Who has all its bytes before the news hears of it in the next call.
        Some(called.and_then(|()| comm.barrier()).unwrap_err())
    });
    for error in errors.into_iter().flatten() {
        assert!(matches!(&error, Error::Panicked { rank, .. } if *rank == MEMBERS[1]), "{error}");
    }
}

/// By a call of its own, and by a handle that is cancelled.
pub fn revocations(backend: &dyn Backend) {
    let errors = in_subgroup(backend, &options(), |comm| {
        if comm.group().rank() == 2 {
            comm.revoke(Error::closed()).unwrap();
        }
        comm.barrier().unwrap_err()
    });
    for error in errors {
        assert!(matches!(&error, Error::Revoked { by, .. } if *by == MEMBERS[2]), "{error}");
    }
    let errors = in_subgroup(backend, &options(), |comm| {
        if comm.group().rank() == 1 {
            comm.recv_async(vec![0u8; 4], Peer::Rank(0), 77).cancel();
        }
        comm.barrier().unwrap_err()
    });
    for error in errors {
        let Error::Revoked { by, cause } = &error else { panic!("{error}") };
        assert!(matches!(&**cause, Error::Cancelled { by, .. } if *by == MEMBERS[1]), "{error}");
        assert_eq!(*by, MEMBERS[1], "{error}");
    }
}

/// Of a rank that leaves without the call that the others make.
pub fn losses(backend: &dyn Backend) {
    let errors = in_subgroup(backend, &options(), |comm| {
        (comm.group().rank() != 2).then(|| sum(comm, backend.forcing("direct"), 4))
    });
    let all: Vec<Error> = errors.into_iter().flatten().collect();
    for error in &all {
        let Error::PeerLost { reported_by, .. } = error else { panic!("{error}") };
        assert_eq!(error.lost_ranks(), [MEMBERS[2]], "{error}");
        assert!(MEMBERS[..2].contains(reported_by), "{error}");
    }
    assert_eq!(all.len(), 2);
}

/// The source is that which a receive names: a rank of the group.
pub fn truncated_messages(backend: &dyn Backend) {
    in_subgroup(backend, &options(), |comm| {
        match comm.group().rank() {
            2 => comm.send(&[1u8; 9], 0, 1).unwrap(),
            0 => {
                let error = comm.recv(&mut [0u8; 4], Peer::Rank(2), 1).unwrap_err();
                assert!(
                    matches!(error, Error::Truncated { source_rank, .. } if source_rank.get() == 2),
                    "{error}"
                );
            }
            _ => {}
        }
        comm.close().unwrap();
    });
}
