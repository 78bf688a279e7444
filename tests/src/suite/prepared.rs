//! Prepared calls: the results of plain calls, several at once, errors, and new plans for stale ones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_collectives::{AllReduceCache, Collectives, CollectivesPrepared};
use unisono_communicator::{
    Algorithm, CallOptions, Collective, Communicator, Error, Peer, ReduceOp, Trust, wait_all,
};

use crate::backend::Backend;
use crate::capabilities::Algorithms;
use crate::suite::mismatch::first_cause;
use crate::world::{options, run, run_each};

/// Some ranks have prepared a call, others make the plain one.
pub fn b22_prepared_calls_meet_plain_ones(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.rank() as i32, comm.size() as i32);
        let last = comm.size() - 1;
        let is_prepared = |turn: i32| (rank + turn) % 3 != 0;
        let sum = comm.prepare_all_reduce::<i32>(5, ReduceOp::Sum).unwrap();
        let share = comm.prepare_broadcast::<u8>(70_000, last).unwrap();
        let gather = comm.prepare_all_gather::<i32>(2).unwrap();
        for turn in 0..4 {
            let mut buffer = [rank + turn; 5];
            if is_prepared(turn) {
                sum.call(&mut buffer).unwrap();
            } else {
                comm.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
            }
            assert_eq!(buffer, [(0..ranks).map(|rank| rank + turn).sum::<i32>(); 5]);
            let mut long = vec![rank as u8; 70_000];
            if is_prepared(turn) {
                share.call(&mut long).unwrap();
            } else {
                comm.broadcast(&mut long, last).unwrap();
            }
            assert!(long == vec![last as u8; 70_000]);
            let (own, mut all) = ([rank, turn], vec![0; ranks as usize * 2]);
            if is_prepared(turn) {
                gather.call(&own, &mut all).unwrap();
            } else {
                comm.all_gather(&own, &mut all).unwrap();
            }
            assert_eq!(all, (0..ranks).flat_map(|rank| [rank, turn]).collect::<Vec<_>>());
        }
        shares_and_parts(comm);
        (0..comm.size()).for_each(|root| rooted_ones(comm, root));
        // Several of one plan at once: only one of them can have it.
        let works: Vec<_> = (0..6).map(|turn| sum.start(vec![turn; 5])).collect();
        let results = wait_all(works).unwrap();
        (0..).zip(results).for_each(|(turn, sum)| assert_eq!(sum, [turn * ranks; 5]));
    });
}

/// In each turn some ranks make the plain call, others the prepared one, and others start it.
fn shares_and_parts(comm: &dyn Communicator) {
    let (rank, ranks) = (comm.rank() as i32, comm.size() as i32);
    let scatter = comm.prepare_reduce_scatter::<i32>(2, ReduceOp::Max).unwrap();
    let exchange = comm.prepare_all_to_all::<i32>(1).unwrap();
    for turn in 0..3 {
        let given: Vec<i32> = (0..ranks * 2).map(|index| rank * 100 + index).collect();
        let parts: Vec<i32> = (0..ranks).map(|to| rank * 10 + to).collect();
        let (mut reduced, mut received) = (vec![-1; 2], vec![-1; ranks as usize]);
        match (rank + turn) % 3 {
            0 => {
                comm.reduce_scatter(&given, &mut reduced, ReduceOp::Max).unwrap();
                comm.all_to_all(&parts, &mut received).unwrap();
            }
            1 => {
                scatter.call(&given, &mut reduced).unwrap();
                exchange.call(&parts, &mut received).unwrap();
            }
            _ => {
                let works = [scatter.start(given), exchange.start(parts)];
                [reduced, received] = works.map(|work| work.wait().unwrap());
            }
        }
        assert_eq!(reduced, [0, 1].map(|index| (ranks - 1) * 100 + rank * 2 + index), "turn {turn}");
        assert_eq!(received, (0..ranks).map(|from| from * 10 + rank).collect::<Vec<_>>(), "turn {turn}");
    }
}

/// Half of the ranks make the prepared call, the others start it; then the other way round.
fn rooted_ones(comm: &dyn Communicator, root: u32) {
    let (rank, ranks) = (comm.rank() as i32, comm.size() as i32);
    let only_at_root = |list: Vec<i32>| if comm.rank() == root { list } else { Vec::new() };
    let reduce = comm.prepare_reduce::<i32>(2, ReduceOp::Sum, root).unwrap();
    let gather = comm.prepare_gather::<i32>(1, root).unwrap();
    let scatter = comm.prepare_scatter::<i32>(1, root).unwrap();
    let sums = only_at_root(vec![ranks, ranks * (ranks - 1) / 2]);
    let of_all = only_at_root((0..ranks).map(|rank| rank * 3).collect());
    for turn in 0..2 {
        let (mut sum, mut all, mut own) = (vec![-1; sums.len()], vec![-1; of_all.len()], vec![-1]);
        if (rank + turn) % 2 == 0 {
            reduce.call(&[1, rank], &mut sum).unwrap();
            gather.call(&[rank * 3], &mut all).unwrap();
            scatter.call(&all, &mut own).unwrap();
        } else {
            sum = reduce.start(vec![1, rank]).wait().unwrap();
            all = gather.start(vec![rank * 3]).wait().unwrap();
            own = scatter.start(all.clone()).wait().unwrap();
        }
        assert_eq!((&sum, &all, own), (&sums, &of_all, vec![rank * 3]), "root {root}, turn {turn}");
    }
}

/// Label and deadline of the preparation hold for the call, whether it is made or started.
pub fn b22_options_are_those_of_the_preparation(backend: &dyn Backend) {
    let deadline = Duration::from_millis(200);
    for is_started in [false, true] {
        let sum = |comm: &dyn Communicator, options: CallOptions| {
            let with = comm.with(options);
            let sum = with.prepare_all_reduce::<i32>(3, ReduceOp::Sum).unwrap();
            if is_started { sum.start(vec![1; 3]).wait().map(drop) } else { sum.call(&mut [1; 3]) }
        };
        let labelled = CallOptions::new().label("of the plan");
        run(backend, 2, &options(), |comm| {
            // Both have the label, then one of the two.
            let plain = |comm: &dyn Communicator| comm.all_reduce(&mut [1i32; 3], ReduceOp::Sum);
            let is_planned = comm.rank() == 0;
            if is_planned {
                sum(comm, labelled).unwrap()
            } else {
                plain(&comm.with(labelled)).unwrap()
            }
            let error = first_cause(comm, |comm| if is_planned { sum(comm, labelled) } else { plain(comm) });
            let Error::Mismatch { difference, .. } = error.root_cause() else { panic!("{error}") };
            assert!(difference.contains("label"), "{error}");
        });
        run(backend, 2, &options(), |comm| {
            let error = if comm.rank() == 0 {
                let began = Instant::now();
                let error = sum(comm, CallOptions::new().timeout(deadline)).unwrap_err();
                assert!(began.elapsed() >= deadline, "{error}");
                error
            } else {
                // Until the failure of the other rank.
                comm.recv(&mut [0u8], Peer::Rank(0), 3).unwrap_err()
            };
            assert!(matches!(error.root_cause(), Error::Timeout { .. }), "{error}");
        });
    }
}

/// The cache of DeepSpeed's `match_id`.
pub fn b22_calls_by_the_numbers_of_the_program(backend: &dyn Backend) {
    run_each(backend, &[1, 2, 3], |comm| {
        let mut cache = AllReduceCache::new(comm);
        for turn in 0..3 {
            for (match_id, elements) in [(9, 3), (7, 40)] {
                let mut buffer = vec![turn; elements];
                cache.all_reduce(match_id, &mut buffer, ReduceOp::Sum).unwrap();
                assert_eq!(buffer, vec![turn * comm.size() as i32; elements]);
            }
        }
        for error in [
            cache.all_reduce(9, &mut [0i32; 4], ReduceOp::Sum),
            cache.all_reduce(9, &mut [0f32; 3], ReduceOp::Sum),
            cache.all_reduce(9, &mut [0i32; 3], ReduceOp::Max),
        ] {
            assert!(matches!(error, Err(Error::InvalidArgument { argument: "match_id", .. })), "{error:?}");
        }
        comm.barrier().unwrap();
    });
}

/// Another length, arguments that make no call, an algorithm that was registered since, a failure.
pub fn b22_wrong_ones_are_refused_and_stale_ones_planned_anew(backend: &dyn Backend) {
    run_each(backend, &[1, 2, 3], |comm| {
        let (comm, ranks) = (comm.duplicate().unwrap(), comm.size());
        let sum = comm.prepare_all_reduce::<i32>(5, ReduceOp::Sum).unwrap();
        let wrong = sum.call(&mut [0; 4]).unwrap_err();
        assert!(matches!(wrong, Error::InvalidArgument { argument: "buffer", .. }), "{wrong}");
        let wrong = sum.start(vec![0; 6]).wait().unwrap_err();
        assert!(matches!(wrong, Error::InvalidArgument { argument: "buffer", .. }), "{wrong}");
        let wrong = comm.prepare_broadcast::<u8>(1, ranks).unwrap_err();
        assert!(matches!(wrong, Error::InvalidArgument { argument: "root", .. }), "{wrong}");
        let wrong = comm.prepare_all_reduce::<f32>(1, ReduceOp::BitAnd).unwrap_err();
        assert!(matches!(wrong, Error::InvalidArgument { argument: "op", .. }), "{wrong}");
        let forced = comm.with(CallOptions::new().algorithm("nobody"));
        let known = forced.prepare_all_reduce::<i32>(5, ReduceOp::Sum).map(drop);
        let plain = forced.all_reduce(&mut [0i32; 5], ReduceOp::Sum);
        assert_eq!(known.is_err(), plain.is_err(), "{known:?}, {plain:?}");

        let direct = Algorithm::new("direct_again", Collective::Broadcast, |builder| {
            let (rank, ranks, root) = (builder.rank(), builder.ranks(), builder.root());
            let others = (0..ranks).filter(|other| *other != root);
            if rank == root {
                others.for_each(|other| builder.send_all(other, [0]));
            } else {
                builder.recv_all(root, [0]);
            }
        });
        if backend.algorithms() == Algorithms::Open {
            comm.register(Arc::new(direct), Trust::Trusted).unwrap();
            let again = comm.prepare_all_reduce::<i32>(5, ReduceOp::Sum).unwrap();
            for prepared in [&sum, &again, &sum] {
                let mut buffer = [1; 5];
                prepared.call(&mut buffer).unwrap();
                assert_eq!(buffer, [ranks as i32; 5]);
            }
        }
        let last = comm.prepare_all_reduce::<i32>(5, ReduceOp::Sum).unwrap();
        comm.barrier().unwrap();
        if comm.rank() == 0 {
            comm.abort().unwrap();
        }
        for error in [last.call(&mut [1; 5]), last.start(vec![1; 5]).wait().map(drop)] {
            assert!(matches!(&error, Err(Error::Aborted { .. })), "{error:?}");
        }
        let survivors = comm.shrink().unwrap().communicator;
        let mut buffer = [1; 5];
        survivors.prepare_all_reduce::<i32>(5, ReduceOp::Sum).unwrap().call(&mut buffer).unwrap();
        assert_eq!(buffer, [ranks as i32; 5]);
    });
}
