//! Subgroups, duplicates, and threads that share a communicator.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use unisono_collectives::{Collectives, CollectivesAsync, PointToPoint};
use unisono_communicator::{
    CallOptions, Collective, Communicator, DType, Error, Peer, ReduceOp, Tag, UserOp,
};

use crate::backend::Backend;
use crate::case::Case;
use crate::suite::reductions::has_user_operators;
use crate::world::{options, run, run_each};

fn sum_of_ones(comm: &dyn Communicator) -> u32 {
    let mut value = [1i32];
    comm.all_reduce(&mut value, ReduceOp::Sum).unwrap();
    value[0] as u32
}

fn job_ranks(comm: &dyn Communicator) -> Vec<u32> {
    comm.group().job_ranks().iter().map(|rank| rank.get()).collect()
}

/// The even ranks and the odd ones, at the same time, with the whole group in between.
///
/// Rows: A6, D3
pub fn subgroups_of_some(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        let halves: Vec<Vec<u32>> =
            [0, 1].map(|parity| (0..ranks).filter(|rank| rank % 2 == parity).collect()).into();
        let groups: Vec<_> = halves.iter().map(|ranks| comm.subgroup(ranks).unwrap()).collect();
        for (members, group) in halves.iter().zip(&groups) {
            assert_eq!(group.is_some(), members.contains(&rank));
            let Some(group) = group else { continue };
            assert_eq!(job_ranks(&**group), *members);
            assert_eq!(group.group().rank(), rank / 2);
            for _ in 0..5 {
                assert_eq!(sum_of_ones(&**group), members.len() as u32);
            }
        }
        assert_eq!(sum_of_ones(comm), ranks);
        for group in groups.iter().flatten() {
            let mut ranks = vec![0; group.group().size() as usize];
            group.all_gather(&[rank], &mut ranks).unwrap();
            assert_eq!(ranks, job_ranks(&**group));
            group.close().unwrap();
        }
    });
}

/// Rank r of the group is rank r + 1 of its parent. Of three ranks and more this order is not its own inverse, so that
/// ranks of the group cannot stand for ranks of the parent.
pub(super) fn rotated(comm: &dyn Communicator) -> Vec<u32> {
    (1..=comm.size()).map(|next| next % comm.size()).collect()
}

/// The order of the list is the order of the new ranks: in calls of all, at each root, and in messages.
///
/// Rows: A6
pub fn reordered_ranks(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks, rotated) = (comm.group().rank(), comm.group().size(), rotated(comm));
        let group = comm.subgroup(&rotated).unwrap().unwrap();
        let own = group.group().rank();
        assert_eq!((own, job_ranks(&*group)), ((rank + ranks - 1) % ranks, rotated.clone()));
        let mut all = vec![ranks; ranks as usize];
        group.all_gather(&[rank], &mut all).unwrap();
        assert_eq!(all, rotated);
        for collective in Collective::ALL {
            let op = collective.reduces().then_some(ReduceOp::Sum);
            for root in if collective.is_rooted() { 0..ranks } else { 0..1 } {
                let case = Case { op, root, seed: 9, ..Case::new(collective, DType::I32, 7) };
                case.check(&*group).unwrap();
            }
        }
        for (root, of_parent) in (0..).zip(&rotated) {
            let mut value = [rank];
            group.broadcast(&mut value, root).unwrap();
            assert_eq!(value, [*of_parent], "broadcast from {root}");
            let (mut gathered, mut share) = (vec![ranks; ranks as usize], [ranks]);
            group.gather(&[rank], (own == root).then_some(&mut gathered[..]), root).unwrap();
            assert!(own != root || gathered == rotated, "gather to {root}: {gathered:?}");
            group.scatter((own == root).then_some(&rotated[..]), &mut share, root).unwrap();
            assert_eq!(share, [rank], "scatter from {root}");
        }
        let (next, previous) = ((own + 1) % ranks, (own + ranks - 1) % ranks);
        for source in [Peer::Any, Peer::Rank(previous)] {
            let work = group.send_async(vec![rank], next, 0);
            let mut value = [ranks];
            assert_eq!(group.recv(&mut value, source, 0).unwrap().source, Some(previous));
            assert_eq!(value, [rotated[previous as usize]]);
            work.wait().unwrap();
        }
    });
}

/// Messages of a group, of a duplicate and of their parent do not meet, although peers and tags are the same.
///
/// Rows: A6, B15
pub fn messages_stay_in_their_group(backend: &dyn Backend) {
    run_each(backend, &[1, 2, 3], |comm| {
        let (copy, group) = (comm.duplicate().unwrap(), comm.subgroup(&rotated(comm)).unwrap().unwrap());
        let comms = [comm, &*copy, &*group];
        let message = |which: usize, from: u32, length: usize| vec![which as u32 * 1000 + from; length];
        let ring = |comm: &dyn Communicator| {
            let (rank, ranks) = (comm.group().rank(), comm.group().size());
            ((rank + 1) % ranks, (rank + ranks - 1) % ranks)
        };
        for length in [3, 150_000] {
            let send = |which: usize| {
                let of = comms[which];
                of.send_async(message(which, of.group().rank(), length), ring(of).0, 7)
            };
            let first = send(0);
            comm.barrier().unwrap();
            for other in &comms[1..] {
                assert!(other.try_probe(Peer::Any, Tag::Any).unwrap().is_none(), "a message of the parent");
            }
            // No rank sends on the others before all have looked.
            comm.barrier().unwrap();
            let works = [first, send(1), send(2)];
            for (which, of) in comms.into_iter().enumerate().rev() {
                let (mut room, previous) = (vec![0; length], ring(of).1);
                let received = of.recv(&mut room, Peer::Any, Tag::Any).unwrap();
                assert_eq!((received.source, received.tag, received.count), (Some(previous), 7, length));
                assert!(room == message(which, previous, length), "communicator {which}: {}", room[0]);
            }
            works.into_iter().for_each(|work| assert!(work.wait().is_ok()));
        }
    });
}

/// Each duplicate has its own order of calls, so two threads may use two of them in any order.
pub fn duplicates_are_independent(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let rank = comm.group().rank();
        let copies: Vec<_> = (0..3).map(|_| comm.duplicate().unwrap()).collect();
        std::thread::scope(|scope| {
            // Ranks start with different copies.
            for turn in 0..copies.len() {
                let nth = (turn + rank as usize) % copies.len();
                let copy = &copies[nth];
                scope.spawn(move || {
                    for round in 0..30 {
                        // Another number in each call of each copy.
                        let mut value = [nth as i32 * 100 + round];
                        let expected = [value[0] * copy.group().size() as i32];
                        copy.all_reduce(&mut value, ReduceOp::Sum).unwrap();
                        assert_eq!(value, expected, "copy {nth}, round {round}");
                    }
                });
            }
        });
        copies.iter().for_each(|copy| copy.close().unwrap());
        assert_eq!(sum_of_ones(comm), comm.group().size());
    });
}

/// Lists that name no group are refused, and the parent stays usable.
pub fn wrong_lists(backend: &dyn Backend) {
    run_each(backend, &[1, 3], |comm| {
        let ranks = comm.group().size();
        for list in [vec![0, 0], vec![ranks], vec![0, ranks - 1, 0]] {
            let error = comm.subgroup(&list).err().unwrap_or_else(|| panic!("{list:?} was taken"));
            assert!(matches!(error, Error::InvalidArgument { argument: "ranks", .. }), "{list:?}: {error}");
        }
        assert!(comm.subgroup(&[]).unwrap().is_none());
        assert_eq!(sum_of_ones(comm), ranks);
    });
}

/// Subgroups of subgroups: ranks of the job stay what they are.
pub fn nested_subgroups(backend: &dyn Backend) {
    run_each(backend, &[4, 8], |comm| {
        let ranks = comm.group().size();
        let upper: Vec<u32> = (ranks / 2..ranks).collect();
        let Some(half) = comm.subgroup(&upper).unwrap() else { return };
        let last = half.group().size() - 1;
        let Some(pair) = half.subgroup(&[last, 0]).unwrap() else { return };
        assert_eq!(job_ranks(&*pair), [ranks - 1, ranks / 2]);
        assert_eq!(sum_of_ones(&*pair), 2);
        assert_eq!(sum_of_ones(&*pair.duplicate().unwrap()), 2);
    });
}

/// Of two threads that call at once without labels, one is refused before anything is sent.
pub fn concurrent_use_is_refused(backend: &dyn Backend) {
    let is_refused = AtomicBool::new(false);
    run(backend, 2, &options(), |comm| {
        if comm.group().rank() == 1 {
            // The first of the two calls cannot end before this.
            while !is_refused.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            assert_eq!(sum_of_ones(comm), 2);
        } else {
            let call = || {
                let result = comm.all_reduce(&mut [1i32], ReduceOp::Sum);
                if let Err(error) = &result {
                    assert!(matches!(error, Error::ConcurrentUse { .. }), "{error}");
                    is_refused.store(true, Ordering::SeqCst);
                }
                result.is_ok()
            };
            let (first, second) = std::thread::scope(|scope| {
                let other = scope.spawn(call);
                (call(), other.join().unwrap())
            });
            assert!(first != second, "one of the two calls must be refused");
        }
        assert_eq!(sum_of_ones(comm), 2);
        comm.close().unwrap();
    });
}

/// Labelled calls of two threads wait for each other instead.
pub fn labelled_threads_take_turns(backend: &dyn Backend) {
    let (turns, ranks) = (AtomicU32::new(0), backend.ranks_max().min(2));
    run(backend, ranks, &options(), |comm| {
        let call = || {
            for _ in 0..50 {
                let labelled = comm.with(CallOptions::new().label("shared"));
                assert_eq!(sum_of_ones(&labelled), ranks);
                turns.fetch_add(1, Ordering::SeqCst);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(call);
            call();
        });
        comm.close().unwrap();
    });
    assert_eq!(turns.load(Ordering::SeqCst), 100 * ranks);
}

/// Queued calls of four threads wait for each other, without labels, asynchronous ones too.
pub fn queued_threads_take_turns(backend: &dyn Backend) {
    let (turns, ranks) = (AtomicU32::new(0), backend.ranks_max().min(2));
    run(backend, ranks, &options(), |comm| {
        let call = || {
            for turn in 0..50 {
                let queued = comm.with(CallOptions::new().queued());
                if turn % 2 == 0 {
                    assert_eq!(sum_of_ones(&queued), ranks);
                } else {
                    assert_eq!(
                        queued.all_reduce_async(vec![1i32], ReduceOp::Sum).wait().unwrap(),
                        [ranks as i32]
                    );
                }
                turns.fetch_add(1, Ordering::SeqCst);
            }
        };
        std::thread::scope(|scope| {
            (0..3).for_each(|_| drop(scope.spawn(call)));
            call();
        });
        comm.close().unwrap();
    });
    assert_eq!(turns.load(Ordering::SeqCst), 200 * ranks);
}

/// A call whose turn does not come in its time ends with a timeout that says so, on every rank.
pub fn a_turn_that_does_not_come(backend: &dyn Backend) {
    let ranks = backend.ranks_max().min(2);
    run(backend, ranks, &options(), |comm| {
        let is_this = |error: Error| {
            let is_late =
                matches!(error.root_cause(), Error::Timeout { reported_by, .. } if reported_by.get() == 0);
            assert!(is_late && error.to_string().contains(", behind which this "), "{error}");
        };
        let late_turn = || {
            if comm.group().rank() == 0 {
                let soon = CallOptions::new().queued().timeout(Duration::from_millis(20));
                is_this(comm.with(soon).all_reduce(&mut [1i32], ReduceOp::Sum).unwrap_err());
            } else {
                is_this(comm.recv(&mut [0u8], Peer::Rank(0), 3).unwrap_err());
            }
        };
        if ranks == 1 || !has_user_operators(comm) {
            // A scope holds the turn against other threads as a call does.
            let _held = (comm.group().rank() == 0).then(|| super::scopes::open(comm, "held"));
            return std::thread::scope(|threads| threads.spawn(late_turn).join().unwrap());
        }
        let (entered, has_entered) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let (released, is_slow) = (Mutex::new(released), comm.group().rank() == 0);
        let function = move |left: &[i32], right: &[i32], out: &mut [i32]| {
            out[0] = left[0] + right[0];
            if is_slow {
                entered.send(()).unwrap();
                let _ = released.lock().unwrap().recv();
            }
        };
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                let both_reduce = comm.with(backend.forcing("recursive_doubling"));
                // The failure of the other thread's call may reach it.
                let _ = both_reduce.all_reduce_user(&mut [1i32], UserOp::commutative("slow"), function);
            });
            if comm.group().rank() == 0 {
                has_entered.recv().unwrap();
            }
            late_turn();
            drop(release);
            first.join().unwrap();
        });
    });
}
