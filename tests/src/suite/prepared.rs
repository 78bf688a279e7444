//! Prepared calls: the results of plain calls, several at once, and the errors of stale ones.

use std::sync::Arc;

use unisono_collectives::{AllReduceCache, Collectives, CollectivesPrepared};
use unisono_communicator::{
    Algorithm, CallOptions, Collective, Communicator, Error, ReduceOp, Trust, wait_all,
};

use crate::backend::Backend;
use crate::capabilities::Algorithms;
use crate::world::run_each;

/// Some ranks have prepared a call, others make the plain one.
pub fn b22_prepared_calls_meet_plain_ones(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.rank() as i32, comm.size() as i32);
        let last = comm.size() - 1;
        let is_prepared = |turn: i32| (rank + turn) % 3 != 0;
        let sum = comm.prepare_all_reduce::<i32>(5, ReduceOp::Sum).unwrap();
        let share = comm.prepare_broadcast::<u8>(70_000, last).unwrap();
        let gather = comm.prepare_all_gather::<i32>(2).unwrap();
        let scatter = comm.prepare_reduce_scatter::<i32>(2, ReduceOp::Max).unwrap();
        let exchange = comm.prepare_all_to_all::<i32>(1).unwrap();
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
            let given: Vec<i32> = (0..ranks * 2).map(|index| rank * 100 + index).collect();
            let reduced = scatter.start(given).wait().unwrap();
            assert_eq!(reduced, [0, 1].map(|index| (ranks - 1) * 100 + rank * 2 + index));
            let given: Vec<i32> = (0..ranks).map(|to| rank * 10 + to).collect();
            let parts = exchange.start(given).wait().unwrap();
            assert_eq!(parts, (0..ranks).map(|from| from * 10 + rank).collect::<Vec<_>>());
        }
        for root in [0, last] {
            let is_root = comm.rank() == root;
            let room = |elements: i32| vec![0; if is_root { elements as usize } else { 0 }];
            let (mut sum, mut all, mut own) = (room(2), room(ranks), [0]);
            let reduce = comm.prepare_reduce::<i32>(2, ReduceOp::Sum, root).unwrap();
            let gather = comm.prepare_gather::<i32>(1, root).unwrap();
            let scatter = comm.prepare_scatter::<i32>(1, root).unwrap();
            reduce.call(&[1, rank], &mut sum).unwrap();
            gather.call(&[rank], &mut all).unwrap();
            scatter.call(&all, &mut own).unwrap();
            let expected = [ranks, ranks * (ranks - 1) / 2];
            assert_eq!((&sum[..], own), (if is_root { &expected[..] } else { &[] }, [rank]));
        }
        // Several of one plan at once: only one of them can have it.
        let works: Vec<_> = (0..6).map(|turn| sum.start(vec![turn; 5])).collect();
        let results = wait_all(works).unwrap();
        (0..).zip(results).for_each(|(turn, sum)| assert_eq!(sum, [turn * ranks; 5]));
    });
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
pub fn b22_stale_and_wrong_ones_are_refused(backend: &dyn Backend) {
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
            let called = sum.call(&mut [1; 5]);
            let again = comm.prepare_all_reduce::<i32>(5, ReduceOp::Sum).unwrap();
            if let Err(stale) = called {
                assert!(matches!(stale, Error::InvalidArgument { argument: "prepared", .. }), "{stale}");
            }
            let mut buffer = [1; 5];
            again.call(&mut buffer).unwrap();
            assert_eq!(buffer, [ranks as i32; 5]);
        }
        comm.barrier().unwrap();
    });
}
