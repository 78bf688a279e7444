//! Several threads use one communicator. They take turns with the links, and no two threads wait for each other.

use std::sync::Arc;
use std::time::Duration;

use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{
    Buffers, Call, CallOptions, Collective, Communicator, DType, Descriptor, Error, Executor, JobRank,
    ParentCall, Peer, ReduceOp, Result,
};
use unisono_engine::{EngineOptions, in_process};
use unisono_schedule::{Algorithm, Trust};

use crate::support::watched;

#[test]
fn a_thread_in_recv_does_not_stop_a_collective_that_the_sender_needs_first() {
    watched(|| {
        let world = in_process::world(2);
        std::thread::scope(|scope| {
            let (receiver, sender) = (&world[0], &world[1]);
            for elements in [10usize, 1 << 20] {
                let waiting = scope.spawn(move || {
                    let mut message = vec![0u32; elements];
                    receiver.recv(&mut message, Peer::Rank(1), 1).expect("recv");
                    assert_eq!(message, vec![7; elements]);
                });
                let collective = scope.spawn(move || {
                    let mut value = [1u32; 5000];
                    receiver.all_reduce(&mut value, ReduceOp::Sum).expect("all_reduce");
                    assert_eq!(value, [2; 5000]);
                });
                sender.all_reduce(&mut [1u32; 5000], ReduceOp::Sum).expect("all_reduce");
                sender.send(&vec![7u32; elements], 0, 1).expect("send");
                waiting.join().expect("the receiver");
                collective.join().expect("the collective");
            }
        });
    });
}

#[test]
fn a_large_message_passes_while_its_receiver_also_runs_a_collective() {
    watched(|| {
        let world = in_process::world(2);
        std::thread::scope(|scope| {
            let (receiver, sender) = (&world[0], &world[1]);
            let waiting = scope.spawn(move || {
                let mut message = vec![0u64; 1 << 18];
                receiver.recv(&mut message, Peer::Any, 1).expect("recv");
            });
            let collective = scope.spawn(move || receiver.barrier().expect("barrier"));
            // The message must get through before this rank comes to the barrier that the other is already in.
            sender.send(&vec![3u64; 1 << 18], 0, 1).expect("send");
            sender.barrier().expect("barrier");
            waiting.join().expect("the receiver");
            collective.join().expect("the collective");
        });
    });
}

#[test]
fn asynchronous_work_ends_without_anybody_waiting() {
    watched(|| {
        let world = in_process::world(3);
        let works: Vec<_> = world
            .iter()
            .map(|comm| comm.all_reduce_async(vec![comm.group().rank(); 100_000], ReduceOp::Sum))
            .collect();
        while !works.iter().all(|work| work.is_done()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        for work in works {
            assert_eq!(work.wait().expect("all_reduce"), vec![3; 100_000]);
        }
    });
}

#[test]
fn calls_of_two_threads_are_refused_unless_labelled() {
    watched(|| {
        let world = in_process::world(2);
        std::thread::scope(|scope| {
            let labelled = |rank: usize| world[rank].with(CallOptions::new().label("first")).barrier();
            let first = scope.spawn(move || labelled(0));
            // Until the other thread is inside its call, this thread is alone, and its call is refused for its
            // algorithm's name instead.
            let refused = loop {
                if first.is_finished() {
                    panic!("the barrier ended without its peer");
                }
                match world[0].with(CallOptions::new().algorithm("none such")).barrier() {
                    Err(error @ Error::ConcurrentUse { .. }) => break error,
                    Err(Error::InvalidArgument { .. }) => std::thread::yield_now(),
                    other => panic!("{other:?}"),
                }
            };
            assert!(refused.is_before_start());
            labelled(1).expect("barrier");
            first.join().expect("a thread").expect("barrier");
        });
        // With labels, each thread waits for its turn.
        std::thread::scope(|scope| {
            for comm in &world {
                for _ in 0..4 {
                    scope.spawn(move || {
                        let labelled = comm.with(CallOptions::new().label("same"));
                        labelled.all_reduce(&mut [1u8; 100], ReduceOp::Max).expect("all_reduce");
                    });
                }
            }
        });
    });
}

#[test]
fn a_peer_that_left_stops_only_those_who_wait_for_it() {
    watched(|| {
        let mut world = in_process::world(3);
        let (last, gone) = (world.pop().expect("rank 2"), world.pop().expect("rank 1"));
        gone.send(&[1u8], 0, 1).expect("send");
        world[0].recv(&mut [0u8], Peer::Rank(1), 1).expect("recv");
        drop(gone);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                last.send(&[2u8], 0, 1).expect("send");
            });
            let received = world[0].recv(&mut [0u8], Peer::Any, 1).expect("recv from whoever is left");
            assert_eq!(received.source, Some(2));
        });
        let error = world[0].recv(&mut [0u8], Peer::Rank(1), 1).expect_err("nobody is there");
        assert_eq!(error.lost_ranks(), [JobRank::new(1)], "{error}");
    });
}

/// The longest possible patience overflows nothing: the progress thread, which looks after work that no thread waits
/// for, lives on.
#[test]
fn work_goes_on_with_a_patience_without_end() {
    watched(|| {
        let options = EngineOptions { drop_timeout: Duration::MAX, ..EngineOptions::default() };
        let world = in_process::world_of(2, &options, |_, links| links);
        for _ in 0..2 {
            let detached = world[0].all_reduce_async(vec![1u32], ReduceOp::Sum);
            let mut sum = [2u32];
            world[1].all_reduce(&mut sum, ReduceOp::Sum).unwrap();
            assert_eq!((detached.wait().unwrap(), sum), (vec![3], [3]));
        }
    });
}

/// A call names the scope in whose order it is issued, and cannot be issued in that order when the scope is over.
#[test]
fn a_call_of_a_scope_that_is_over_is_refused() {
    watched(|| {
        let world = in_process::world(1);
        let barrier = Descriptor::new(Collective::Barrier, DType::U8, 0);
        let mut call = Call::new(barrier, Buffers::none());
        let open = || world[0].scope(ParentCall::new("whole", barrier), &CallOptions::new()).unwrap();
        open().execute(&mut call).unwrap();
        let mut is_refused = || {
            let error = world[0].execute(&mut call).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { argument: "scope", .. }), "{error}");
        };
        is_refused();
        let _other = open();
        is_refused();
    });
}

/// A call that waits for its turn would wait for itself while its own thread has a scope open.
#[test]
fn a_thread_that_has_a_scope_open_waits_for_no_turn() {
    watched(|| {
        let world = in_process::world(1);
        let barrier = Descriptor::new(Collective::Barrier, DType::U8, 0);
        let scope = world[0].scope(ParentCall::new("whole", barrier), &CallOptions::new()).unwrap();
        let is_refused = |refused: Result<()>, named: &str| {
            let error = refused.unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { argument: "scope", .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains("the scope of whole(0 x u8) at ") && text.ends_with(named), "{text}");
        };
        let algorithm = Algorithm::new("mine", Collective::Barrier, |_| {});
        is_refused(world[0].register(Arc::new(algorithm), Trust::Prove), "in register");
        is_refused(world[0].close(), "in close");
        drop(scope);
        world[0].close().unwrap();
    });
}
