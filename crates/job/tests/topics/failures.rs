//! Failures inside one process: every rank learns the same first cause, and threads that sleep are woken.

use std::time::{Duration, Instant};

use unisono_collectives::Collectives;
use unisono_communicator::{CallOptions, Error, JobRank, ReduceOp};
use unisono_job::Job;
use unisono_job::rendezvous::Membership;

use crate::TRANSPORT;
use crate::support::{config, on_each, worlds};

/// The program fails where it waited for nothing but the news: the deadline of calls is a minute.
const AWAKE_MAX: Duration = Duration::from_secs(30);

#[test]
fn a_revocation_reaches_all_and_wakes_the_sleepers() {
    for ranks in [2, 3, 7] {
        let errors = on_each(worlds(ranks, &config(&[])), move |_world, communicator| {
            let (rank, size) = (communicator.group().rank(), communicator.group().size());
            communicator.barrier().expect("the first barrier");
            let started = Instant::now();
            let error = if rank == size - 1 {
                std::thread::sleep(Duration::from_millis(150));
                let cause = Error::System { what: "disk".into(), text: "full".into() };
                communicator.revoke(cause).expect("revoke");
                communicator.barrier().expect_err("revoked")
            } else {
                communicator.barrier().expect_err("a barrier that one rank never enters")
            };
            assert!(started.elapsed() < AWAKE_MAX, "woken by its deadline only");
            error
        });
        for (rank, error) in (0..ranks).zip(errors) {
            let is_cause = matches!(error.root_cause(), Error::System { what, .. } if what == "disk");
            let by = matches!(error, Error::Revoked { by, .. } if by.get() == ranks - 1);
            assert!(is_cause && by, "rank {rank} of {ranks}: {error:?}");
        }
    }
}

#[test]
fn two_reduces_with_different_roots_are_found_by_asking() {
    for ranks in [2u32, 4] {
        let errors = on_each(worlds(ranks, &config(&[])), |_world, communicator| {
            let rank = communicator.group().rank();
            let input = vec![1f32; 100];
            let mut output = vec![0f32; 100];
            let root = u32::from(rank == 1);
            let target = (rank == root).then_some(&mut output[..]);
            let first = communicator.reduce(&input, target, ReduceOp::Sum, root);
            // A rank that only sent may not have noticed; its next call must not succeed.
            first.and_then(|()| communicator.barrier()).expect_err("the roots differ")
        });
        for (rank, error) in errors.iter().enumerate() {
            let Error::Mismatch { difference, .. } = error.root_cause() else {
                panic!("rank {rank} of {ranks}: {error:?}")
            };
            assert!(difference.contains("root") || difference.contains("collective"), "{difference}");
        }
    }
}

#[test]
fn a_call_that_waits_for_a_rank_that_has_closed_fails() {
    let results = on_each(worlds(3, &config(&[])), |_world, communicator| {
        communicator.barrier().expect("barrier");
        if communicator.group().rank() == 2 {
            let _ = communicator.close();
            // The communicator stays: only its goodbye tells the others.
            std::thread::sleep(Duration::from_millis(1500));
            return None;
        }
        let started = Instant::now();
        let error = communicator.barrier().expect_err("rank 2 will not come");
        assert!(started.elapsed() < AWAKE_MAX);
        Some(error)
    });
    for error in results.into_iter().flatten() {
        let Error::PeerLost { culprits, evidence, .. } = error.root_cause() else { panic!("{error:?}") };
        assert_eq!(culprits.iter().map(|culprit| culprit.rank.get()).collect::<Vec<_>>(), [2]);
        assert!(evidence.contains("it left after call 0"), "{evidence}");
    }
}

#[test]
fn a_timeout_names_who_has_not_come_and_everybody_learns_it() {
    let errors = on_each(worlds(3, &config(&[])), |_world, communicator| {
        let rank = communicator.group().rank();
        communicator.barrier().expect("barrier");
        if rank == 1 {
            std::thread::sleep(Duration::from_millis(700));
            return communicator.barrier().expect_err("the others have given up");
        }
        let hasty = communicator.with(CallOptions::new().timeout(Duration::from_millis(300)));
        hasty.barrier().expect_err("rank 1 sleeps")
    });
    for error in &errors {
        let Error::Timeout { not_arrived, .. } = error.root_cause() else { panic!("{error:?}") };
        assert!(
            !not_arrived.is_empty() && not_arrived.iter().all(|one| one.rank.get() < 3),
            "{not_arrived:?}"
        );
    }
    let told =
        errors.iter().any(|error| error.to_string().contains("rank 1 has not called; its last was call 0"));
    assert!(told, "{errors:?}");
}

#[test]
fn a_failure_of_one_communicator_leaves_the_others_alone() {
    on_each(worlds(3, &config(&[])), |_world, communicator| {
        let copy = communicator.duplicate().expect("duplicate");
        copy.barrier().expect("barrier");
        // Nobody is inside that barrier any more.
        communicator.barrier().expect("barrier");
        if communicator.group().rank() == 1 {
            copy.revoke(Error::closed()).expect("revoke");
        }
        assert!(matches!(copy.barrier().expect_err("revoked").root_cause(), Error::Closed { .. }));
        let mut values = [1u32; 10];
        communicator.all_reduce(&mut values, ReduceOp::Sum).expect("the other communicator");
        assert_eq!(values, [3; 10]);
    });
}

#[test]
fn a_rank_that_is_nowhere_is_named() {
    let config = config(&[]);
    let (mut listeners, members) = crate::support::listeners(3, &config);
    // Rank 2's process has died before it began: nobody listens there.
    drop(listeners.pop());
    let worlds = (0..).zip(listeners).map(|(rank, listener)| {
        let members = Membership { rank, ..members.clone() };
        Job::start(members, listener, &config, &TRANSPORT).expect("start")
    });
    let errors =
        on_each(worlds.collect(), |_world, communicator| communicator.barrier().expect_err("no rank 2"));
    for error in errors {
        assert_eq!(error.lost_ranks(), [JobRank::new(2)], "{error:?}");
    }
}
