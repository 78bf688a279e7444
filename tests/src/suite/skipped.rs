//! Operations that are switched off for the whole job (row A16).

use unisono_collectives::{
    Collectives, CollectivesAsync, CollectivesOfObjects, CollectivesPrefix, CollectivesPrepared,
};
use unisono_communicator::{
    BufferMut, Buffers, Call, CallOptions, Collective, Communicator, Completion, DType, Descriptor, Error,
    ParentCall, Peer, Place, ReduceOp,
};
use unisono_compression::{CompressedCollectives, CompressionState, SignL1};
use unisono_engine::EngineOptions;

use crate::backend::Backend;
use crate::world::{options, run};

fn without(operations: &str) -> EngineOptions {
    EngineOptions { skipped: operations.parse().unwrap(), ..options() }
}

fn sum_of(values: &mut [i32]) -> Call<'_> {
    let descriptor = Descriptor {
        op: Some(ReduceOp::Sum),
        place: Place::InPlace,
        ..Descriptor::new(Collective::AllReduce, DType::I32, values.len() as u64)
    };
    Call::new(descriptor, Buffers::InOut(BufferMut::of(values)))
}

/// Buffers stay as they are, no rank waits for another, and no number is taken: ranks may make another number of such
/// calls, and the next call matches.
pub fn a16_skipped_operations_do_nothing(backend: &dyn Backend) {
    run(backend, 3, &without("all_reduce,barrier,send,recv"), |comm| {
        for _ in 0..=comm.rank() {
            let mut values = [7i32, 8];
            let outcome = comm.issue(sum_of(&mut values)).unwrap();
            assert_eq!((outcome.completion, outcome.bytes, values), (Completion::Skipped, 0, [7, 8]));
            assert_eq!(comm.all_reduce_async(vec![5i32], ReduceOp::Sum).wait().unwrap(), [5]);
            comm.barrier().unwrap();
            comm.send(&[1u8], 0, 4).unwrap();
            let mut buffer = [9u8];
            let received = comm.recv(&mut buffer, Peer::Rank(2), 4).unwrap();
            assert_eq!((received.source, received.tag, received.count, buffer), (Some(2), 4, 0, [9]));
            let (message, received) = comm.recv_vec::<u16>(Peer::Any, 4).unwrap();
            assert_eq!((message, received.source), (vec![], Some(comm.rank())));
        }
        let error = comm.all_reduce(&mut [1.0f32], ReduceOp::BitAnd);
        assert!(matches!(error, Err(Error::InvalidArgument { .. })), "wrong arguments stay wrong: {error:?}");
        let mut all = [0; 3];
        comm.all_gather(&[comm.rank()], &mut all).unwrap();
        assert_eq!(all, [0, 1, 2]);
        comm.close().unwrap();
        let outcome = comm.issue(sum_of(&mut [1])).unwrap();
        assert_eq!(outcome.completion, Completion::Skipped, "nothing is noticed either");
    });
}

/// Every collective can be switched off: no form of it writes to a buffer or waits for another rank.
pub fn a16_every_collective_is_skipped(backend: &dyn Backend) {
    let all = Collective::ALL.map(|collective| collective.to_string()).join(",");
    run(backend, 3, &without(&all), |comm| {
        let (root, sum) = (1, ReduceOp::Sum);
        let is_root = comm.rank() == root;
        for _ in 0..=comm.rank() {
            let (mut one, mut three) = ([9i32], [9i32; 3]);
            comm.all_reduce(&mut one, sum).unwrap();
            comm.broadcast(&mut one, root).unwrap();
            comm.reduce(&[1], is_root.then_some(&mut one[..]), sum, root).unwrap();
            comm.reduce_scatter(&[1; 3], &mut one, sum).unwrap();
            comm.all_gather(&[1], &mut three).unwrap();
            comm.all_to_all(&[1; 3], &mut three).unwrap();
            comm.gather(&[1], is_root.then_some(&mut three[..]), root).unwrap();
            comm.scatter(is_root.then_some(&[1; 3][..]), &mut one, root).unwrap();
            comm.scan(&mut one, sum).unwrap();
            comm.exscan(&mut one, sum).unwrap();
            comm.barrier().unwrap();
            comm.prepare_all_reduce::<i32>(1, sum).unwrap().call(&mut one).unwrap();
            assert_eq!((one, three), ([9], [9; 3]));
            assert_eq!(comm.broadcast_async(vec![5], root).wait().unwrap(), [5]);
            assert_eq!(comm.scan_async(vec![6], sum).wait().unwrap(), [6]);
            comm.barrier_async().wait().unwrap();
        }
        // The next call that is made matches.
        let ranks = comm.all_gather_object(comm.rank().to_string()).unwrap();
        assert_eq!(ranks, ["0", "1", "2"]);
        comm.close().unwrap();
    });
}

/// Groups skip what the job skips; the parts of a call and needed calls are made.
pub fn a16_parts_are_made_and_groups_skip(backend: &dyn Backend) {
    run(backend, 4, &without("all_reduce,all_gather,broadcast"), |comm| {
        let (own, ranks) = (comm.rank(), comm.size());
        let half = comm.split(Some(own % 2), 0).unwrap().unwrap();
        assert_eq!(half.size(), 2);
        for comm in [comm, &*half] {
            assert_eq!(comm.issue(sum_of(&mut [1])).unwrap().completion, Completion::Skipped);
            let needed = comm.with(CallOptions::new().needed());
            let mut sum = [1];
            assert_eq!(needed.issue(sum_of(&mut sum)).unwrap().completion, Completion::Done);
            assert_eq!(sum, [comm.size() as i32]);
            let call = Call { options: CallOptions::new().needed(), ..sum_of(&mut sum) };
            assert_eq!(comm.issue(call).unwrap().completion, Completion::Done);
        }
        let texts = comm.all_gather_object(format!("{own}")).unwrap();
        assert_eq!(texts, (0..ranks).map(|rank| rank.to_string()).collect::<Vec<_>>());
        let parent = ParentCall::new("both", Descriptor::new(Collective::Barrier, DType::U8, 0));
        let scope = comm.scope(parent, &CallOptions::new()).unwrap();
        let mut sum = [1];
        scope.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
        assert_eq!(sum, [ranks as i32]);
        drop(scope);
        comm.barrier().unwrap();
    });
}

/// An object that is sent arrives, whatever is switched off, and so do the parts of every other call on objects.
pub fn a16_objects_are_sent_and_received(backend: &dyn Backend) {
    let all = "all_reduce,all_gather,gather,scatter,broadcast,barrier,send,recv";
    for skipped in ["send,recv", all] {
        run(backend, 3, &without(skipped), |comm| {
            let (rank, next) = (comm.rank(), (comm.rank() + 1) % 3);
            for size in [0, 1, 5000, 700_000] {
                let text = |from: u32| format!("{from} ").repeat(size);
                // Above the limit of messages that are sent unasked a send waits for its receive.
                std::thread::scope(|scope| {
                    scope.spawn(|| comm.send_object(text(rank), next, 5).unwrap());
                    let (got, received) = comm.recv_object::<String>(Peer::Any, 5).unwrap();
                    let source = received.source.unwrap();
                    assert!(got == text(source), "{size} from {source}");
                    assert_eq!((source + 1) % 3, rank);
                });
                assert_eq!(comm.broadcast_object((rank == 1).then(|| text(1)), 1).unwrap(), text(1));
            }
            // Other messages are skipped as before.
            comm.send(&[1u8], next, 5).unwrap();
            assert!(comm.recv_vec::<u8>(Peer::Any, 5).unwrap().0.is_empty());
        });
    }
}

/// A compressed call is skipped with the exact call in whose place it is made, and its state stays as it is.
pub fn a16_a_compressed_call_is_what_it_replaces(backend: &dyn Backend) {
    for (skipped, expected) in [("all_reduce", [1.0f32, -3.0]), ("all_to_all,all_gather", [2.0, -2.0])] {
        run(backend, 2, &without(skipped), |comm| {
            let mut state = CompressionState::new::<f32>(comm, SignL1::default(), 2).unwrap();
            let mut gradients = [1.0f32, -3.0];
            comm.compressed_all_reduce(&mut gradients, ReduceOp::Avg, &mut state).unwrap();
            assert_eq!(gradients, expected, "without {skipped}");
            let owes = state.residual().iter().any(|element| *element != 0.0);
            assert_eq!(owes, skipped != "all_reduce");
            let work = comm.compressed_all_reduce_async(gradients.to_vec(), ReduceOp::Avg, state);
            work.wait().0.unwrap();
            comm.barrier().unwrap();
        });
    }
}
