//! Several calls as one: collectives that travel together, others in order, messages as one batch.

use std::sync::atomic::{AtomicU64, Ordering};

use unisono_collectives::{Collectives, CollectivesGrouped, PointToPoint};
use unisono_communicator::{
    Call, Collective, Communicator, DType, Error, Executor, Group, Life, Outcome, OwnedCall, ReduceOp,
    Result, Work,
};

use crate::backend::Backend;
use crate::case::Case;
use crate::world::run_each;

/// Counts the collectives that reach the communicator beneath.
struct Counted<'a>(&'a dyn Communicator, AtomicU64);

impl Executor for Counted<'_> {
    fn group(&self) -> &Group {
        self.0.group()
    }

    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.execute(call)
    }

    fn submit(&self, call: OwnedCall) -> Work {
        self.0.submit(call)
    }

    fn life(&self) -> &dyn Life {
        self.0.life()
    }
}

/// Neighbours of one kind are one call, with the results of each alone; a rank may make the coalesced call instead.
pub fn b23_neighbours_travel_together(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let counted = Counted(comm, AtomicU64::new(0));
        let (rank, ranks) = (comm.rank() as i32, comm.size() as i32);
        let (mut first, mut second, mut third) = ([rank; 3], [rank + 1; 1], [0i32; 0]);
        if rank == 1 {
            let list: &mut [&mut [i32]] = &mut [&mut first, &mut second, &mut third];
            comm.all_reduce_coalesced(list, ReduceOp::Sum).unwrap();
        } else {
            counted
                .group_calls(|group| {
                    group.all_reduce(&mut first, ReduceOp::Sum);
                    group.all_reduce(&mut second, ReduceOp::Sum);
                    group.all_reduce(&mut third, ReduceOp::Sum);
                })
                .unwrap();
            assert_eq!(counted.1.swap(0, Ordering::Relaxed), 1);
        }
        let sum = ranks * (ranks - 1) / 2;
        assert_eq!((first, second), ([sum; 3], [sum + ranks; 1]));

        let (mut gathered, mut more) = (vec![0; ranks as usize * 2], vec![0; ranks as usize]);
        let (two, one) = ([rank, 7], [rank * 2]);
        counted
            .group_calls(|group| {
                group.all_gather(&two, &mut gathered);
                group.all_gather(&one, &mut more);
            })
            .unwrap();
        assert_eq!(gathered, (0..ranks).flat_map(|rank| [rank, 7]).collect::<Vec<_>>());
        assert_eq!(more, (0..ranks).map(|rank| rank * 2).collect::<Vec<_>>());

        let of_two = (0..ranks * 2).map(|index| rank * 100 + index).collect::<Vec<_>>();
        let of_one = (0..ranks).map(|to| rank + to).collect::<Vec<_>>();
        let (mut share, mut other) = ([0; 2], [0]);
        counted
            .group_calls(|group| {
                group.reduce_scatter(&of_two, &mut share, ReduceOp::Sum);
                group.reduce_scatter(&of_one, &mut other, ReduceOp::Sum);
            })
            .unwrap();
        assert_eq!(share, [0, 1].map(|index| 100 * sum + ranks * (rank * 2 + index)));
        assert_eq!(other, [sum + ranks * rank]);

        let root = comm.size() - 1;
        let (mut one, mut two) = ([0i32; 2], [0i32; 1]);
        counted
            .group_calls(|group| {
                let is_root = comm.rank() == root;
                group.reduce(&[1, 2], is_root.then_some(&mut one[..]), ReduceOp::Sum, root);
                group.reduce(&[3], is_root.then_some(&mut two[..]), ReduceOp::Sum, root);
            })
            .unwrap();
        let each = if comm.rank() == root { ranks } else { 0 };
        assert_eq!((one, two), ([each, each * 2], [each * 3]));
        assert_eq!(counted.1.into_inner(), 3, "three pairs");
    });
}

/// A factor is the rank's own: equal ones on one rank say nothing about the others.
pub fn b23_sums_with_factors_travel_alone(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let op = ReduceOp::PreMulSum(1.0);
        if (Case { op: Some(op), ..Case::new(Collective::AllReduce, DType::F32, 1) }).refusal(comm).is_some()
        {
            return;
        }
        let (rank, ranks) = (f64::from(comm.rank()), comm.size());
        let (mut once, mut again) = ([1f32; 2], [1f32; 1]);
        comm.group_calls(|group| {
            group.all_reduce(&mut once, ReduceOp::PreMulSum(1.0));
            group.all_reduce(&mut again, ReduceOp::PreMulSum(1.0 + rank));
        })
        .unwrap();
        let sum = ranks * (ranks + 1) / 2;
        assert_eq!((once, again), ([ranks as f32; 2], [sum as f32]));
    });
}

/// Calls of several kinds keep their order, in one scope, beside messages in both directions.
pub fn b23_the_rest_runs_in_order(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.rank(), comm.size());
        let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        let counted = Counted(comm, AtomicU64::new(0));
        for length in [1, 200_000] {
            let (mut sum, mut largest, mut shared) = ([1i32; 2], [rank as i32; 1], [rank; 1]);
            // Neighbours of another element type, or of another root, do not travel together.
            let (mut floats, mut first, mut again) = ([0.5f32; 3], [rank + 7; 2], [rank + 8; 1]);
            let (mut all, mut parts) = (vec![0; ranks as usize], vec![0; ranks as usize]);
            let (sent, mut room) = (vec![rank; length], vec![0; length]);
            let given: Vec<u32> = (0..ranks).map(|to| rank * 10 + to).collect();
            let (mut at_root, mut own) = (vec![0; ranks as usize], [0]);
            let is_first = rank == 0;
            let received = counted
                .group_calls(|group| {
                    group.send(&sent, next, 1);
                    group.all_reduce(&mut sum, ReduceOp::Sum);
                    group.all_reduce(&mut floats, ReduceOp::Sum);
                    group.all_reduce(&mut largest, ReduceOp::Max);
                    group.recv(&mut room, previous, 1);
                    group.broadcast(&mut shared, ranks - 1);
                    group.broadcast(&mut first, 0);
                    group.broadcast(&mut again, 0);
                    group.all_gather(std::slice::from_ref(&given[0]), &mut all);
                    group.all_to_all(&given, &mut parts);
                    group.gather(&given[..1], is_first.then_some(&mut at_root[..]), 0);
                    group.scatter(is_first.then_some(&given[..]), &mut own, 0);
                })
                .unwrap();
            assert_eq!((received.len(), received[0].source), (1, Some(previous)));
            assert!(room == vec![previous; length]);
            assert_eq!((sum, largest), ([ranks as i32; 2], [ranks as i32 - 1]));
            assert_eq!((floats, first, again), ([0.5 * ranks as f32; 3], [7; 2], [8]));
            assert_eq!((shared, own), ([ranks - 1], [rank]));
            let firsts: Vec<u32> = (0..ranks).map(|from| from * 10).collect();
            assert_eq!(all, firsts);
            assert_eq!(parts, (0..ranks).map(|from| from * 10 + rank).collect::<Vec<_>>());
            assert_eq!(at_root, if is_first { firsts } else { vec![0; ranks as usize] });
        }
        assert!(comm.group_calls(|_| {}).unwrap().is_empty());
        comm.barrier().unwrap();
    });
}

/// One wrong argument anywhere, and nothing starts.
pub fn b23_all_are_checked_first(backend: &dyn Backend) {
    run_each(backend, &[2, 3], |comm| {
        let (rank, ranks) = (comm.rank(), comm.size());
        let (mut sum, mut one, mut room) = ([1i32], [0u32], [0u8]);
        let wrong = comm.group_calls(|group| {
            group.send(&[1u8], rank, 3);
            group.recv(&mut room, rank, 3);
            group.all_reduce(&mut sum, ReduceOp::Sum);
            group.broadcast(&mut one, ranks);
        });
        assert!(matches!(wrong, Err(Error::InvalidArgument { argument: "root", .. })), "{wrong:?}");
        assert_eq!(sum, [1]);
        assert!(comm.try_probe(rank, 3).unwrap().is_none());
        let (given, mut parts) = (vec![0u32; ranks as usize + 1], vec![0u32; ranks as usize + 1]);
        let wrong = comm.group_calls(|group| group.all_to_all(&given, &mut parts));
        assert!(matches!(wrong, Err(Error::InvalidArgument { argument: "input", .. })), "{wrong:?}");
        let wrong = comm.group_calls(|group| group.all_gather(&[1u32], &mut parts));
        assert!(matches!(wrong, Err(Error::InvalidArgument { argument: "output", .. })), "{wrong:?}");
        comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
        assert_eq!(sum, [ranks as i32]);
    });
}
