//! Calls that return at once: their order, their handles, their buffers.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use std::time::Duration;

use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{
    CallOptions, Collective, Communicator, DType, Descriptor, Division, Error, Operation, OwnedBuffers,
    OwnedCall, OwnedMemory, Peer, Received, ReduceOp, Tag, TypedWork,
};

use crate::backend::Backend;
use crate::case::{Case, assert_same};
use crate::sample::{Position, Sample, op_of, reduced};
use crate::suite::forms::{part, sums};
use crate::with_dtype;
use crate::world::{options, run, run_each};

/// Every method of the asynchronous trait. No two ranks, receivers or elements have the same values, so that a share of
/// another rank, another operator or another root shows.
///
/// Rows: A12, B21
pub fn every_typed_form(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        for count in [0, 1, 5, 2000] {
            let own = || part(rank, 7, count);
            let to_all = || (0..ranks).flat_map(|to| part(rank, to, count)).collect::<Vec<i32>>();
            let from_all = |to: u32| (0..ranks).flat_map(|from| part(from, to, count)).collect::<Vec<i32>>();

            let all_reduce = comm.all_reduce_async(own(), ReduceOp::Sum);
            let smallest = comm.all_reduce_async(own(), ReduceOp::Min);
            let reduce_scatter = comm.reduce_scatter_async(to_all(), ReduceOp::Sum);
            let largest = comm.reduce_scatter_async(to_all(), ReduceOp::Max);
            let all_gather = comm.all_gather_async(own());
            let all_to_all = comm.all_to_all_async(to_all());
            let barrier = comm.barrier_async();

            barrier.wait().unwrap();
            assert_eq!(all_reduce.wait().unwrap(), sums(ranks, 7, count));
            assert_eq!(smallest.wait().unwrap(), part(0, 7, count));
            assert_eq!(reduce_scatter.wait().unwrap(), sums(ranks, rank, count));
            assert_eq!(largest.wait().unwrap(), part(ranks - 1, rank, count));
            assert_eq!(all_gather.wait().unwrap(), from_all(7));
            assert_eq!(all_to_all.wait().unwrap(), from_all(rank));
            (0..ranks).for_each(|root| rooted_forms(comm, root, count));
            message(comm, count);
        }
    });
}

/// Other operators than a sum of whole numbers, each with the operand of its rank.
///
/// Rows: A10, A12
pub fn operators_of_handles(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        let operators = [ReduceOp::Avg, ReduceOp::PreMulSum(1.0), ReduceOp::Prod, ReduceOp::BitXor];
        let all = operators.into_iter().flat_map(|op| [DType::F32, DType::I32].map(|dtype| (dtype, op)));
        for (dtype, op) in all.filter(|(dtype, op)| op.accepts(*dtype)) {
            let is_refused =
                |collective| Case { op: Some(op), ..Case::new(collective, dtype, 3) }.refusal(comm).is_some();
            if [Collective::AllReduce, Collective::ReduceScatter].into_iter().any(is_refused) {
                continue;
            }
            with_dtype!(dtype, T => {
                let position = |rank, index| Position { seed: 8, ranks, rank, index };
                let all = 13 * u64::from(ranks);
                let input: Vec<T> = (0..all).map(|index| T::operand(op, &position(rank, index))).collect();
                let expected: Vec<T> = (0..all).map(|index| reduced(op, &position(0, index))).collect();
                let own = rank as usize * 13..rank as usize * 13 + 13;
                let sums = comm.all_reduce_async(input.clone(), op_of(op, rank));
                let share = comm.reduce_scatter_async(input, op_of(op, rank));
                assert_same(&sums.wait().unwrap(), &expected, &format!("all_reduce {dtype} {op}"));
                let what = format!("reduce_scatter {dtype} {op}");
                assert_same(&share.wait().unwrap(), &expected[own], &what);
            });
        }
    });
}

fn rooted_forms(comm: &dyn Communicator, root: u32, count: usize) {
    let (rank, ranks) = (comm.group().rank(), comm.group().size());
    let only_at_root = |list: Vec<i32>| if rank == root { list } else { Vec::new() };
    let own = || part(rank, 7, count);
    let to_all: Vec<i32> = (0..ranks).flat_map(|to| part(root, to, count)).collect();

    let broadcast = comm.broadcast_async(own(), root);
    let sum = comm.reduce_async(own(), ReduceOp::Sum, root);
    let largest = comm.reduce_async(own(), ReduceOp::Max, root);
    let gather = comm.gather_async(own(), root);
    let scatter = comm.scatter_async(only_at_root(to_all), count, root);

    let of_all: Vec<i32> = (0..ranks).flat_map(|from| part(from, 7, count)).collect();
    assert_eq!(broadcast.wait().unwrap(), part(root, 7, count));
    assert_eq!(sum.wait().unwrap(), only_at_root(sums(ranks, 7, count)));
    assert_eq!(largest.wait().unwrap(), only_at_root(part(ranks - 1, 7, count)));
    assert_eq!(gather.wait().unwrap(), only_at_root(of_all));
    assert_eq!(scatter.wait().unwrap(), part(root, rank, count));
}

/// Two messages at once, which are received by their tags and in the other order.
fn message(comm: &dyn Communicator, count: usize) {
    let (rank, ranks) = (comm.group().rank(), comm.group().size());
    let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    let value = |from: u32, tag: u32| from * 10 + tag;
    let receives = [4, 3].map(|tag| (tag, comm.recv_async(vec![0u32; count + 2], Peer::Rank(previous), tag)));
    let sends = [3, 4].map(|tag| (tag, comm.send_async(vec![value(rank, tag); count], next, tag)));
    for (tag, receive) in receives {
        let (buffer, received) = receive.wait().unwrap();
        assert_eq!(received, Received { source: Some(previous), tag, count });
        let mut expected = vec![value(previous, tag); count];
        expected.extend([0, 0]);
        assert_eq!(buffer, expected);
    }
    for (tag, send) in sends {
        assert_eq!(send.wait().unwrap(), vec![value(rank, tag); count]);
    }
}

/// The handle of a barrier ends when the last rank has come. Each rank comes last in turn, and half of the ranks make
/// the blocking call.
///
/// Rows: A12, B17
pub fn barriers_wait_for_everybody(backend: &dyn Backend) {
    for &ranks in backend.rank_counts() {
        let arrived = AtomicU32::new(0);
        run(backend, ranks, &options(), |comm| {
            for round in 1..=20 {
                if comm.rank() == round % ranks {
                    std::thread::sleep(Duration::from_millis(2));
                }
                arrived.fetch_add(1, Ordering::SeqCst);
                if (comm.rank() + round / 2).is_multiple_of(2) {
                    comm.barrier_async().wait().unwrap();
                } else {
                    comm.barrier().unwrap();
                }
                let seen = arrived.load(Ordering::SeqCst);
                assert!(seen >= round * ranks, "{seen} arrivals in round {round} of {ranks} ranks");
            }
            comm.close().unwrap();
        });
    }
}

/// Asynchronous and blocking calls mixed; the handles are waited for in another order than that of issue.
pub fn order_of_issue(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let ranks = comm.group().size() as i32;
        for turn in 0..3 {
            let mut handles: Vec<(i32, TypedWork<Vec<i32>>)> = Vec::new();
            for round in 1..=20 {
                let length = round as usize * 37 % 400;
                handles.push((round, comm.all_reduce_async(vec![round; length], ReduceOp::Sum)));
                if round % 6 == 0 {
                    let mut value = [round];
                    comm.all_reduce(&mut value, ReduceOp::Sum).unwrap();
                    assert_eq!(value, [round * ranks]);
                }
            }
            match turn {
                0 => {}
                1 => handles.reverse(),
                _ => handles.rotate_left(7),
            }
            for (round, handle) in handles {
                let result = handle.wait().unwrap();
                assert_eq!(result, vec![round * ranks; round as usize * 37 % 400]);
            }
        }
    });
}

/// A call ends although nobody waits for it, and not before all ranks have come. The last rank does not even ask: no
/// other rank can end before the elements of the last one have come.
///
/// Rows: A12, D6
pub fn progress_without_waiting(backend: &dyn Backend) {
    for &ranks in backend.rank_counts() {
        let (asked, ended) = (AtomicU32::new(0), AtomicU32::new(0));
        run(backend, ranks, &options(), |comm| {
            let is_last = comm.rank() == ranks - 1;
            while is_last && asked.load(Ordering::SeqCst) < ranks - 1 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let handle = comm.all_reduce_async(vec![1i32; 50_000], ReduceOp::Sum);
            assert!(is_last || !handle.is_done(), "it has ended without the last rank");
            asked.fetch_add(1, Ordering::SeqCst);
            while is_last && ended.load(Ordering::SeqCst) < ranks - 1 {
                std::thread::sleep(Duration::from_millis(1));
            }
            while !handle.is_done() {
                std::thread::sleep(Duration::from_millis(1));
            }
            ended.fetch_add(1, Ordering::SeqCst);
            assert!(handle.wait().unwrap() == vec![ranks as i32; 50_000]);
            comm.close().unwrap();
        });
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Handles are futures, and deadlines end them too.
///
/// Rows: A12
pub fn awaited(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.group().rank() as i32, comm.group().size() as i32);
        let (copy, soon) = (comm.duplicate().unwrap(), CallOptions::new().timeout(Duration::from_millis(50)));
        let late = copy.with(soon).recv_async(vec![0u8], Peer::Any, 9);
        let error = block_on(late).unwrap_err();
        assert!(matches!(error.root_cause(), Error::Timeout { .. }), "{error}");
        block_on(async {
            for count in [0, 1, 40_000] {
                let sums = comm.all_reduce_async(vec![rank + 1; count], ReduceOp::Sum);
                let largest = comm.all_reduce_async(vec![rank; 3], ReduceOp::Max);
                assert_eq!(largest.await.unwrap(), [ranks - 1; 3]);
                assert_eq!(sums.await.unwrap(), vec![ranks * (ranks + 1) / 2; count]);
                comm.barrier_async().into_work().await.result.unwrap();
            }
        });
    });
}

/// A dropped handle's call goes on: the others still get their results, and later calls work.
pub fn dropped_handles_detach(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        for round in 0..5 {
            let handle = comm.all_reduce_async(vec![rank as i32; 10_000], ReduceOp::Max);
            match rank == round % ranks {
                true => drop(handle),
                false => assert_eq!(handle.wait().unwrap()[0], ranks as i32 - 1),
            }
        }
        drop(comm.send_async(vec![rank; 50_000], (rank + 1) % ranks, 1));
        let mut buffer = vec![0u32; 50_000];
        comm.recv(&mut buffer, Peer::Any, 1).unwrap();
        assert_eq!(buffer[49_999], (rank + ranks - 1) % ranks);
        comm.barrier().unwrap();
    });
}

/// Cancelling ends the call on every rank, with who did it.
pub fn cancel_revokes(backend: &dyn Backend) {
    for ranks in backend.among(&[1, 2, 3, 5]) {
        run(backend, ranks, &options(), |comm| {
            let rank = comm.group().rank();
            let result = if rank == 0 {
                // The others cannot have ended: this rank's part is a receive that nobody answers.
                let handle = comm.recv_async(vec![0u8; 4], Peer::Rank(ranks - 1), 77).into_work();
                handle.cancel();
                handle.wait().map(|_| ())
            } else {
                comm.all_reduce(&mut [1i32], ReduceOp::Sum)
            };
            let error = result.unwrap_err();
            assert!(
                matches!(error.root_cause(), Error::Cancelled { by, .. } if by.get() == 0),
                "rank {rank}: {error}"
            );
            let later = comm.barrier().unwrap_err();
            assert!(
                matches!(later.root_cause(), Error::Cancelled { by, .. } if by.get() == 0),
                "rank {rank}, later: {later}"
            );
        });
    }
    run_each(backend, &[1, 2], |comm| {
        let handle = comm.all_reduce_async(vec![1i32], ReduceOp::Sum);
        while !handle.is_done() {
            std::thread::sleep(Duration::from_millis(1));
        }
        handle.cancel();
        assert_eq!(handle.wait().unwrap(), [comm.group().size() as i32]);
    });
}

/// The vectors come back from a failed call too, and from one that was refused.
pub fn buffers_come_back(backend: &dyn Backend) {
    run(backend, 2, &options(), |comm| {
        let refused = comm.all_reduce_async(vec![1.0f32; 3], ReduceOp::BitAnd).into_work().finish();
        assert!(matches!(refused.result, Err(Error::InvalidArgument { argument: "op", .. })));
        let Some(OwnedBuffers::InOut(buffer)) = refused.buffers else { panic!("no buffer") };
        assert_eq!(buffer.into_vec::<f32>(), Some(vec![1.0; 3]));
        // Three elements do not divide between two ranks.
        for odd in
            [comm.reduce_scatter_async(vec![5u8; 3], ReduceOp::Sum), comm.all_to_all_async(vec![5u8; 3])]
        {
            let refused = odd.into_work().finish();
            assert!(matches!(refused.result, Err(Error::InvalidArgument { argument: "input", .. })));
            let Some(OwnedBuffers::Separate { input, .. }) = refused.buffers else { panic!("no buffer") };
            assert_eq!(input.into_vec::<u8>(), Some(vec![5; 3]));
        }
        // Who sends first may leave first, so the revocation can overtake the other's barrier.
        let entered = comm.barrier();
        if comm.group().rank() == 0 {
            entered.unwrap();
            let work = comm.recv_async(vec![7u16; 9], Peer::Rank(1), 5).into_work();
            comm.revoke(Error::closed()).unwrap();
            let Some(OwnedBuffers::Separate { output, .. }) = work.finish().buffers else {
                panic!("no buffers")
            };
            assert_eq!(output.into_vec::<u16>().map(|vec| vec.len()), Some(9));
        }
    });
}

/// The asynchronous forms of lists: what comes back is a list.
pub fn lists(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        let lengths = [3, 0, 70_000, 1];
        let each = |of: &dyn Fn(u32, usize) -> Vec<i32>| -> Vec<Vec<i32>> {
            (0..).zip(lengths).map(|(buffer, length)| of(buffer, length)).collect()
        };
        let own = each(&|buffer, length| part(rank, buffer, length));
        let coalesced = comm.all_reduce_coalesced_async(own.clone(), ReduceOp::Sum);
        let smallest = comm.all_reduce_coalesced_async(own, ReduceOp::Min);
        let none = comm.all_reduce_coalesced_async(Vec::<Vec<i32>>::new(), ReduceOp::Sum);
        let gathered = comm.all_gather_list_async(vec![rank; 11]);
        let inputs = (0..ranks).map(|to| part(rank, to, 9)).collect();
        let scattered = comm.reduce_scatter_list_async(inputs, ReduceOp::Sum);
        let inputs = (0..ranks).map(|to| part(rank, to, 9)).collect();
        let largest = comm.reduce_scatter_list_async(inputs, ReduceOp::Max);
        assert_eq!(scattered.wait().unwrap(), sums(ranks, rank, 9));
        assert_eq!(largest.wait().unwrap(), part(ranks - 1, rank, 9));
        assert_eq!(gathered.wait().unwrap(), (0..ranks).map(|from| vec![from; 11]).collect::<Vec<_>>());
        let reduced = each(&|buffer, length| sums(ranks, buffer, length));
        assert!(coalesced.wait().unwrap() == reduced, "the sums of all buffers");
        assert!(smallest.wait().unwrap() == each(&|buffer, length| part(0, buffer, length)), "the minima");
        assert!(none.wait().unwrap().is_empty());
        let wrong = comm.reduce_scatter_list_async(vec![vec![1i32]; ranks as usize + 1], ReduceOp::Sum);
        assert!(matches!(wrong.wait(), Err(Error::InvalidArgument { argument: "input", .. })));
    });
}

/// Messages whose memory is a list, on either side.
pub fn messages_in_lists(backend: &dyn Backend) {
    run_each(backend, &[1, 2, 3], |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        let start = |operation, peer, list: Vec<Vec<u32>>| {
            let count = list.iter().map(Vec::len).sum::<usize>() as u64;
            let (list, none) =
                (OwnedMemory::of_list(list, Division::Anywhere), OwnedMemory::of(Vec::<u32>::new()));
            let (input, output) = if operation == Operation::Send { (list, none) } else { (none, list) };
            let peer = Some(Peer::Rank(peer));
            let descriptor =
                Descriptor { peer, tag: Tag::Is(2), ..Descriptor::new(operation, DType::U32, count) };
            comm.start(OwnedCall::new(descriptor, OwnedBuffers::Separate { input, output }))
        };
        let receive = start(Operation::Recv, previous, vec![vec![9; 2], vec![9; 60_000]]);
        let send = start(Operation::Send, next, vec![vec![rank; 1], vec![], vec![rank; 50_000]]);
        assert_eq!(receive.wait().unwrap().bytes, 50_001 * 4);
        let Some(OwnedBuffers::Separate { output, .. }) = receive.finish().buffers else {
            panic!("no buffers")
        };
        let received = output.into_list::<u32>().unwrap();
        assert_eq!(received[0], [previous; 2]);
        assert_eq!((received[1][49_998], received[1][49_999], received[1].len()), (previous, 9, 60_000));
        let Some(OwnedBuffers::Separate { input, .. }) = send.finish().buffers else { panic!("no buffers") };
        assert_eq!(input.into_list::<u32>().unwrap().len(), 3);
    });
}
