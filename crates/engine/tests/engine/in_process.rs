//! Ranks that are threads notice each other's end: a panic, a dropped communicator, a closed communicator.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{Certainty, Communicator, Error, GroupOptions, JobRank, Peer, ReduceOp, Result};
use unisono_engine::in_process::{self, EngineOptions};

/// Longer than any test takes on a busy machine, and far less than the deadline of a call.
const TEST_TIME_MAX: Duration = Duration::from_secs(60);

type Comm = Arc<dyn Communicator>;

/// Runs `body`, and fails when it does not return.
fn watched<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, finished) = mpsc::channel();
    let thread = std::thread::spawn(move || done.send(catch_unwind(AssertUnwindSafe(body))));
    let ended = finished.recv_timeout(TEST_TIME_MAX).expect("hangs");
    thread.join().unwrap().unwrap();
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Runs a world of `ranks` and returns the result of every rank; `None` for a rank that panicked. In contrast to `run`,
/// the threads own their communicators, as a user's threads do.
fn owned<R: Send>(
    ranks: u32,
    body: impl Fn(Arc<in_process::InProcessCommunicator>) -> R + Sync,
) -> Vec<Option<R>> {
    let body = &body;
    std::thread::scope(|scope| {
        let start = |comm| scope.spawn(move || body(comm));
        let threads: Vec<_> = in_process::world(ranks).into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().ok()).collect()
    })
}

/// The text of the panic of `run`, and the errors that the surviving ranks have seen.
fn panicking_run(ranks: u32, body: impl Fn(Comm) -> Result<()> + Sync) -> (String, Vec<Error>) {
    let (seen, errors) = mpsc::channel();
    let run = || {
        in_process::run(ranks, |comm| seen.send(body(comm).unwrap_err()).unwrap());
    };
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("the panic reaches the caller");
    drop(seen);
    let text = panic.downcast_ref::<String>().cloned();
    (
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap(),
        errors.iter().collect(),
    )
}

/// The ranks that a loss names, and its evidence.
fn loss(error: &Error) -> (Vec<u32>, String) {
    let Error::PeerLost { certainty: Certainty::Confirmed, evidence, .. } = error.root_cause() else {
        panic!("not a confirmed loss: {error}")
    };
    (error.lost_ranks().into_iter().map(JobRank::get).collect(), evidence.clone())
}

fn rank(comm: &(impl Communicator + ?Sized)) -> u32 {
    comm.group().rank()
}

fn sum(comm: &(impl Communicator + ?Sized)) -> Result<u32> {
    let mut value = [1 << rank(comm)];
    comm.all_reduce(&mut value, ReduceOp::Sum)?;
    Ok(value[0])
}

#[test]
fn results_come_in_rank_order() {
    watched(|| {
        for ranks in [1, 2, 5] {
            let sums = in_process::run(ranks, |comm| (rank(&*comm), sum(&*comm).unwrap()));
            assert_eq!(sums, (0..ranks).map(|rank| (rank, (1 << ranks) - 1)).collect::<Vec<_>>());
        }
        assert_eq!(in_process::run(0, |comm| rank(&*comm)), []);
    });
}

#[test]
fn a_panic_ends_every_kind_of_call_of_the_others() {
    type Waiting = fn(&Comm) -> Result<()>;
    let calls: [(&str, Waiting); 6] = [
        ("all_reduce", |comm| sum(&**comm).map(drop)),
        ("long all_reduce", |comm| comm.all_reduce(&mut vec![1.0f32; 1 << 20], ReduceOp::Sum)),
        ("recv", |comm| comm.recv(&mut [0u8], Peer::Rank(1), 7).map(drop)),
        ("recv from any", |comm| comm.recv(&mut [0u8], Peer::Any, 7).map(drop)),
        ("barrier", |comm| comm.barrier()),
        ("asynchronous", |comm| comm.all_reduce_async(vec![1u32], ReduceOp::Sum).wait().map(drop)),
    ];
    for (name, call) in calls {
        let (text, errors) = watched(move || {
            panicking_run(4, |comm| {
                if rank(&*comm) == 1 {
                    std::thread::sleep(Duration::from_millis(20));
                    panic!("boom of {}", rank(&*comm));
                }
                call(&comm)
            })
        });
        assert_eq!(text, "boom of 1");
        assert_eq!(errors.len(), 3, "{name}");
        for error in errors {
            assert_eq!(loss(&error), (vec![1], "panicked: boom of 1".to_owned()), "{name}: {error}");
        }
    }
}

#[test]
fn survivors_shrink_and_go_on() {
    watched(|| {
        let summed = Barrier::new(4);
        let sums = owned(4, |comm| {
            sum(&*comm).unwrap();
            summed.wait();
            if rank(&*comm) == 2 {
                panic!("on purpose");
            }
            let error = sum(&*comm).unwrap_err();
            assert_eq!(loss(&error), (vec![2], "its thread panicked".to_owned()));
            let shrunk = comm.shrink().unwrap();
            assert_eq!(shrunk.last_common_call, 1);
            assert_eq!(shrunk.new_ranks, [Some(0), Some(1), None, Some(2)]);
            drop(comm);
            let sum = sum(&*shrunk.communicator).unwrap();
            shrunk.communicator.close().unwrap();
            sum
        });
        assert_eq!(sums, [Some(7), Some(7), None, Some(7)]);
    });
}

#[test]
fn ranks_that_fail_during_an_agreement_are_left_out() {
    watched(|| {
        let (waiting, all) = (AtomicU32::new(0), Barrier::new(5));
        let members = owned(5, |comm| {
            let own = rank(&*comm);
            all.wait();
            match own {
                1 | 3 => {
                    while waiting.load(Ordering::SeqCst) < 3 {
                        std::thread::yield_now();
                    }
                    std::thread::sleep(Duration::from_millis(20));
                    if own == 1 {
                        panic!("on purpose");
                    }
                    return Vec::new();
                }
                _ => {}
            }
            waiting.fetch_add(1, Ordering::SeqCst);
            let next = comm.shrink().unwrap().communicator;
            assert!(next.agree(true).unwrap());
            assert!(!next.agree(own != 4).unwrap());
            assert_eq!(sum(&*next).unwrap(), 7);
            next.group().job_ranks().to_vec()
        });
        let survivors = Some([0, 2, 4].map(JobRank::new).to_vec());
        assert_eq!(members, [survivors.clone(), None, survivors.clone(), Some(Vec::new()), survivors]);
    });
}

#[test]
fn who_dies_before_it_comes_to_a_new_communicator_is_lost_there() {
    watched(|| {
        let have_copies = Barrier::new(3);
        let errors = owned(3, |comm| {
            let copy = comm.duplicate().unwrap();
            have_copies.wait();
            if rank(&*comm) == 0 {
                // The others have made, or will make, a communicator that this rank does not enter.
                drop(copy);
                panic!("on purpose");
            }
            // The communicator may or may not be revoked already.
            match comm.subgroup(&[1, 0, 2]) {
                Ok(derived) => sum(&*derived.unwrap()).unwrap_err(),
                Err(error) => error,
            }
        });
        for error in errors.iter().flatten() {
            assert_eq!(error.lost_ranks(), [JobRank::new(0)], "{error}");
        }
        assert_eq!(errors.iter().flatten().count(), 2);
    });
}

/// A goodbye is no failure: only calls that need the rank fail, and its messages are received.
#[test]
fn a_rank_that_drops_or_closes_early_is_missed_only_by_who_needs_it() {
    for closes in [false, true] {
        watched(move || {
            let done = Barrier::new(4);
            let sums = owned(4, |comm| {
                let own = rank(&*comm);
                let others = comm.subgroup(&[0, 1, 2]).unwrap();
                sum(&*comm).unwrap();
                if own == 3 {
                    comm.send(&[5u8], 0, 7).unwrap();
                    let kept = closes.then(|| {
                        comm.close().unwrap();
                        comm.clone()
                    });
                    drop(comm);
                    done.wait();
                    drop(kept);
                    return 0;
                }
                std::thread::sleep(Duration::from_millis(20));
                // None of these needs rank 3.
                let others = others.unwrap();
                assert_eq!(sum(&*others).unwrap(), 7);
                match own {
                    0 => comm.send(&[1u8], 1, 1).unwrap(),
                    1 => drop(comm.recv(&mut [0u8], Peer::Rank(0), 1).unwrap()),
                    _ => {}
                }
                if own == 0 {
                    let mut message = [0u8];
                    comm.recv(&mut message, Peer::Rank(3), 7).unwrap();
                    assert_eq!(message, [5]);
                }
                sum(&*others).unwrap();
                let error = sum(&*comm).unwrap_err();
                assert_eq!(loss(&error), (vec![3], "left with 1 calls finished".to_owned()), "{error}");
                done.wait();
                let next = comm.shrink().unwrap().communicator;
                sum(&*next).unwrap()
            });
            assert_eq!(sums, [Some(7), Some(7), Some(7), Some(0)]);
        });
    }
}

#[test]
fn a_receive_from_a_rank_that_has_left_without_a_word_ends() {
    watched(|| {
        let errors = owned(2, |comm| {
            (rank(&*comm) == 0).then(|| comm.recv(&mut [0u8], Peer::Rank(1), 7).unwrap_err())
        });
        let error = errors[0].as_ref().unwrap().as_ref().unwrap();
        assert_eq!(loss(error), (vec![1], "left with 0 calls finished".to_owned()));
    });
}

/// All ranks name the rank that panicked first.
#[test]
fn of_ranks_that_fail_at_once_all_name_the_same() {
    for _ in 0..50 {
        watched(|| {
            let start = Barrier::new(6);
            let errors = owned(6, |comm| {
                start.wait();
                if rank(&*comm).is_multiple_of(2) {
                    resume_unwind(Box::new(()));
                }
                let error = sum(&*comm).unwrap_err();
                let next = comm.shrink().unwrap().communicator;
                assert_eq!(next.group().job_ranks(), [1, 3, 5].map(JobRank::new));
                assert_eq!(sum(&*next).unwrap(), 7);
                loss(&error)
            });
            let seen: Vec<_> = errors.into_iter().flatten().collect();
            assert_eq!(seen.len(), 3);
            assert!(seen.iter().all(|one| *one == seen[0]), "{seen:?}");
        });
    }
}

#[test]
fn three_of_four_panic_at_once() {
    watched(|| {
        let start = Barrier::new(4);
        let (text, errors) = panicking_run(4, |comm| {
            start.wait();
            assert_eq!(rank(&*comm), 0, "not rank 0");
            let error = sum(&*comm).unwrap_err();
            let next = comm.shrink().unwrap().communicator;
            assert_eq!((next.group().size(), sum(&*next).unwrap()), (1, 1));
            Err(error)
        });
        // The caller gets the panic of the rank that the others name.
        let (lost, evidence) = loss(&errors[0]);
        assert!(text.contains(&format!("left: {}", lost[0])), "{text}");
        assert!(evidence.contains(&format!("left: {}", lost[0])), "{evidence}");
    });
}

#[test]
fn a_panic_with_two_communicators_is_seen_in_both() {
    watched(|| {
        let have_copies = Barrier::new(3);
        let (text, errors) = panicking_run(3, |comm| {
            let copy = comm.duplicate().unwrap();
            have_copies.wait();
            if rank(&*comm) == 2 {
                let _work = copy.all_reduce_async(vec![1u32], ReduceOp::Sum);
                panic!("boom");
            }
            // The asynchronous call may still have completed. The next call has not.
            let _ = sum(&*copy);
            let of_copy = sum(&*copy).unwrap_err();
            assert_eq!(of_copy.lost_ranks(), [JobRank::new(2)], "{of_copy}");
            sum(&*comm)?;
            Ok(())
        });
        assert_eq!(text, "boom");
        for error in &errors {
            assert_eq!(loss(error), (vec![2], "panicked: boom".to_owned()));
        }
        assert_eq!(errors.len(), 2);
    });
}

/// The queued calls of the panicking rank keep its streams open. The others learn of its death all the same.
#[test]
fn queued_work_does_not_hide_a_death() {
    watched(|| {
        let errors = owned(2, |comm| {
            let work = comm.recv_async(vec![0u8; 4], Peer::Rank(1 - rank(&*comm)), 7).into_work();
            if rank(&*comm) == 1 {
                panic!("on purpose");
            }
            work.wait().unwrap_err()
        });
        assert_eq!(loss(errors[0].as_ref().unwrap()).0, [1]);
    });
}

#[test]
fn who_lives_and_does_not_come_is_named_at_the_deadline_of_the_options() {
    watched(|| {
        let options = EngineOptions { timeout: Duration::from_millis(50), ..EngineOptions::default() };
        let come = Barrier::new(3);
        in_process::run_with(3, &options, |comm| {
            if rank(&*comm) == 1 {
                come.wait();
            } else {
                let error = comm.shrink().map(drop).unwrap_err();
                let Error::Timeout { not_arrived, .. } = &error else { panic!("{error}") };
                assert!(not_arrived.iter().any(|awaited| awaited.rank.get() == 1), "{error}");
                come.wait();
            }
            // The survivor goes on.
            while comm.shrink().is_err() {}
        });
    });
}

/// A rank that has dropped a communicator while it panicked is dead for the others. If it goes on, it gets an error
/// that says so, and makes no further communicators.
#[test]
fn a_rank_that_goes_on_after_a_panic_is_told_that_it_was_given_up() {
    watched(|| {
        let mut world = in_process::world_with_groups(2).into_iter();
        let ((first, groups), (second, _)) = (world.next().unwrap(), world.next().unwrap());
        let copy = first.duplicate().unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(move || {
            let _copy = copy;
            // This panic prints no message, because it is no failure.
            resume_unwind(Box::new(()));
        }));
        assert!(panicked.is_err());
        let made = [
            first.subgroup(&[0]).map(drop),
            first.subgroup(&[1, 0]).map(drop),
            first.duplicate().map(drop),
            groups.make_group("alone", &[0]).map(drop),
            groups.make_group("pair", &[0, 1]).map(drop),
        ];
        for made in made {
            let Err(Error::Evicted { reported_by, evidence }) = &made else { panic!("{made:?}") };
            assert_eq!((reported_by.get(), evidence.as_str()), (0, "its thread panicked"));
        }
        // The other rank has made the same calls, and finds out which rank is lost.
        second.duplicate().unwrap();
        assert!(second.subgroup(&[0]).unwrap().is_none());
        let pair = second.subgroup(&[1, 0]).unwrap().unwrap();
        assert_eq!(pair.barrier().unwrap_err().lost_ranks(), [JobRank::new(0)]);
        // The communicator that both ranks have still works.
        std::thread::scope(|threads| {
            threads.spawn(|| first.barrier().unwrap());
            second.barrier().unwrap();
        });
    });
}

/// The call that makes the group refuses, and not a call for which the other ranks wait.
#[test]
fn a_group_by_an_algorithm_that_is_none_is_refused() {
    watched(|| {
        let unknown = GroupOptions::new().algorithm("nonsense");
        let ranks = in_process::world_with_groups(2).into_iter().map(|(comm, groups)| {
            std::thread::spawn(move || {
                for made in [
                    groups.make_group_companion("pair", &[0, 1], &unknown).map(drop),
                    comm.subgroup_with(&[0, 1], &unknown).map(drop),
                ] {
                    let Err(Error::InvalidArgument { argument: "algorithm", problem, .. }) = &made else {
                        panic!("{made:?}")
                    };
                    assert!(problem.contains("nonsense"), "{problem}");
                }
                // A refused group counts for neither.
                let ring = GroupOptions::new().algorithm("ring");
                groups
                    .make_group_companion("pair", &[0, 1], &ring)
                    .unwrap()
                    .communicator()
                    .barrier()
                    .unwrap();
                comm.subgroup_with(&[0, 1], &ring).unwrap().unwrap().barrier().unwrap();
            })
        });
        ranks.collect::<Vec<_>>().into_iter().for_each(|rank| rank.join().unwrap());
    });
}
