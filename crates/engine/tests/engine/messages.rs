//! The inner workings of sends and receives: borrowed memory that must be handed over, few bytes at a time, credits.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{Communicator, Peer, ReduceOp, Work};
use unisono_engine::{
    Edge, EngineCommunicator, EngineOptions, FaultPlan, Faulty, Flow, Lane, Tap, Tapped, Trace, TraceEvent,
    Traced, in_process,
};

use crate::support::watched;

/// Size of a frame header on the point-to-point lane.
const FRAME_BYTES: usize = 32;

/// The number of messages of at most 256 bytes that a receiver's queue takes from one sender.
const QUEUED_MESSAGES_MAX: usize = 4096;

/// Lets a set number of message bytes pass, and reports when its rank goes to sleep.
#[derive(Default)]
struct Gate {
    left: AtomicUsize,
    received: AtomicU64,
    sleeps: AtomicU64,
}

struct GateTap(Arc<Gate>);

impl Tap for GateTap {
    fn before(&mut self, edge: Edge, flow: Flow, bytes: usize) -> std::io::Result<usize> {
        match (edge.lane, flow) {
            (Lane::PointToPoint, Flow::Out) => match self.0.left.load(Ordering::SeqCst).min(bytes) {
                0 => Err(std::io::ErrorKind::WouldBlock.into()),
                allowed => Ok(allowed),
            },
            _ => Ok(bytes),
        }
    }

    fn after(&mut self, edge: Edge, flow: Flow, bytes: usize) {
        match (edge.lane, flow) {
            (Lane::PointToPoint, Flow::Out) => self.0.left.fetch_sub(bytes, Ordering::SeqCst),
            (Lane::PointToPoint, Flow::In) => {
                self.0.received.fetch_add(bytes as u64, Ordering::SeqCst) as usize
            }
            _ => 0,
        };
    }

    fn forbids_sleep(&mut self) -> bool {
        self.0.sleeps.fetch_add(1, Ordering::SeqCst);
        false
    }
}

fn message(seed: u32, length: usize) -> Vec<u32> {
    (0..length as u32).map(|index| index.wrapping_mul(2_654_435_761).wrapping_add(seed)).collect()
}

/// Both threads are in the middle of one long message, on borrowed memory, when other threads need the links for a
/// collective. The collective must end while the message stands still, and the message must arrive whole afterwards.
#[test]
fn lent_memory_is_handed_over_in_the_middle_of_a_message() {
    const PASSED_BYTES: usize = 300_000;
    for chosen in [Peer::Rank(1), Peer::Any] {
        watched(move || {
            let gates = [Arc::new(Gate::default()), Arc::new(Gate::default())];
            gates[0].left.store(usize::MAX, Ordering::SeqCst);
            gates[1].left.store(PASSED_BYTES, Ordering::SeqCst);
            let tap = |rank: u32| GateTap(gates[rank as usize].clone());
            let world = in_process::world_of(2, &EngineOptions::default(), |rank, links| {
                Tapped::with_tap(links, tap(rank))
            });
            let expected = message(5, 1 << 19);
            std::thread::scope(|scope| {
                let receiver = scope.spawn(|| {
                    let mut buffer = vec![0u32; (1 << 19) + 9];
                    let received = world[0].recv(&mut buffer, chosen, 3).expect("recv");
                    assert_eq!((received.source, received.count), (Some(1), 1 << 19));
                    assert!(buffer[..1 << 19] == expected, "the message is not the one that was sent");
                    assert_eq!(buffer[1 << 19..], [0; 9]);
                });
                let sender = scope.spawn(|| world[1].send(&expected, 0, 3).expect("send"));
                let all_have_passed = || gates[0].received.load(Ordering::SeqCst) == PASSED_BYTES as u64;
                while !all_have_passed() {
                    std::thread::yield_now();
                }
                // Both ranks have looked once more and found nothing to do.
                for gate in &gates {
                    let before = gate.sleeps.load(Ordering::SeqCst);
                    while gate.sleeps.load(Ordering::SeqCst) == before {
                        std::thread::yield_now();
                    }
                }
                let collectives = || {
                    let threads = [0, 1].map(|rank: usize| {
                        let world = &world;
                        scope.spawn(move || {
                            let mut value = vec![1u32; 5000];
                            world[rank].all_reduce(&mut value, ReduceOp::Sum).expect("all_reduce");
                            assert_eq!(value, vec![2; 5000]);
                        })
                    });
                    threads.into_iter().for_each(|collective| collective.join().expect("a collective"));
                };
                collectives();
                assert!(!receiver.is_finished() && !sender.is_finished(), "the message stands still");
                assert!(all_have_passed());
                gates[1].left.store(usize::MAX, Ordering::SeqCst);
                // A gate wakes nobody.
                collectives();
                sender.join().expect("the sender");
                receiver.join().expect("the receiver");
            });
        });
    }
}

/// A blocked receive also gives way to an asynchronous collective of another thread.
#[test]
fn a_queued_collective_goes_on_beside_a_lent_receive() {
    watched(|| {
        let world = in_process::world(2);
        let has_begun = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                has_begun.store(true, Ordering::SeqCst);
                let mut value = [0u8; 5];
                world[0].recv(&mut value, Peer::Rank(1), 1).expect("recv");
                value
            });
            while !has_begun.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let work = world[0].all_reduce_async(vec![1u64; 3000], ReduceOp::Sum);
            world[1].all_reduce(&mut vec![1u64; 3000], ReduceOp::Sum).expect("all_reduce");
            assert_eq!(work.wait().expect("all_reduce"), vec![2; 3000]);
            world[1].send(&[7u8; 5], 0, 1).expect("send");
            assert_eq!(receiver.join().expect("the receiver"), [7; 5]);
        });
    });
}

/// Frames and payloads arrive 1 to 7 bytes at a time, so that boundaries fall anywhere in the read-ahead.
#[test]
fn frames_arrive_in_crumbs() {
    watched(|| {
        let plan = |rank: u32| FaultPlan {
            seed: 77 + u64::from(rank),
            bytes_per_call_max: Some(7),
            would_block_percent: 10,
            cut_after_bytes: None,
        };
        let world =
            in_process::world_of(2, &EngineOptions::default(), |rank, links| Faulty::new(links, plan(rank)));
        let lengths = [0usize, 1, 7, 8, 100, 1000, 1016, 1024, 1025, 3000, 16_384, 16_385, 20_000];
        std::thread::scope(|scope| {
            for rank in [0u32, 1] {
                let comm = &world[rank as usize];
                scope.spawn(move || {
                    for turn in 0..3 {
                        let works: Vec<Work> = lengths
                            .iter()
                            .map(|&length| {
                                comm.send_async(message(turn + rank, length), rank ^ 1, turn).into_work()
                            })
                            .collect();
                        for &length in &lengths {
                            let mut buffer = vec![0; length];
                            let received = comm.recv(&mut buffer, Peer::Rank(rank ^ 1), turn).expect("recv");
                            assert_eq!(received.count, length);
                            assert!(buffer == message(turn + (rank ^ 1), length), "{length} elements");
                        }
                        works.into_iter().for_each(|work| assert!(work.wait().is_ok()));
                    }
                });
            }
        });
    });
}

type TracedWorld = Vec<Arc<EngineCommunicator<Traced<in_process::InProcessLinks>>>>;

fn traced_world() -> ([Trace; 2], TracedWorld) {
    let traces = [Trace::default(), Trace::default()];
    let world = in_process::world_of(2, &EngineOptions::default(), |rank, links| {
        Traced::new(links, traces[rank as usize].clone())
    });
    (traces, world)
}

/// The number of message bytes that a rank has sent.
fn sent_bytes(trace: &Trace) -> usize {
    let is_sent = |event: &&TraceEvent| event.edge.lane == Lane::PointToPoint && event.flow == Flow::Out;
    trace.events().iter().filter(is_sent).map(|event| event.bytes).sum()
}

/// A receiver that waits for another message keeps as many messages as its queue takes. The other messages stay with
/// the sender.
#[test]
fn the_queue_of_a_receiver_is_bounded() {
    const MESSAGES: usize = 10_000;
    watched(|| {
        let (traces, world) = traced_world();
        let has_counted = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let works: Vec<Work> = (0..MESSAGES)
                    .map(|number| world[1].send_async(vec![number as u64; 8], 0, 1).into_work())
                    .collect();
                world[1].send(&[1u64; 8], 0, 2).expect("the last message");
                // All messages have been written in order, and no credit has come back.
                let asked = MESSAGES + 1 - QUEUED_MESSAGES_MAX;
                let eager = QUEUED_MESSAGES_MAX * (FRAME_BYTES + 64);
                let sent = sent_bytes(&traces[1]);
                has_counted.wait();
                assert_eq!(sent, eager + asked * FRAME_BYTES + FRAME_BYTES + 64);
                works.into_iter().for_each(|work| assert!(work.wait().is_ok()));
            });
            world[0].recv(&mut [0u64; 8], Peer::Rank(1), 2).expect("the last message");
            // The next receive makes room in the queue, and more is sent.
            has_counted.wait();
            for number in 0..MESSAGES {
                let mut buffer = [0u64; 8];
                world[0].recv(&mut buffer, Peer::Any, 1).expect("recv");
                assert_eq!(buffer, [number as u64; 8]);
            }
        });
    });
}

/// Credit comes back without a frame for each message, and soon enough that no send needs a request.
#[test]
fn credit_comes_back_in_bulk() {
    const MESSAGES: usize = 10_000;
    watched(|| {
        let (traces, world) = traced_world();
        let taken = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..MESSAGES {
                    // A quarter of the queue ahead at most.
                    while number >= taken.load(Ordering::SeqCst) + QUEUED_MESSAGES_MAX / 4 {
                        std::thread::yield_now();
                    }
                    world[1].send(&[number as u64; 8], 0, 1).expect("send");
                }
            });
            for number in 0..MESSAGES {
                let mut buffer = [0u64; 8];
                world[0].recv(&mut buffer, Peer::Rank(1), 1).expect("recv");
                assert_eq!(buffer, [number as u64; 8]);
                taken.fetch_add(1, Ordering::SeqCst);
            }
        });
        assert_eq!(sent_bytes(&traces[1]), MESSAGES * (FRAME_BYTES + 64), "somebody had to ask");
        assert_eq!(sent_bytes(&traces[0]), MESSAGES / (QUEUED_MESSAGES_MAX / 2) * FRAME_BYTES);
    });
}

/// Both ranks send all their messages before they receive any: first with blocking calls, short messages that the
/// queues hold, then with asynchronous calls and slow receivers, far more than the queues hold.
#[test]
fn both_directions_at_once() {
    const MESSAGES: usize = 10_000;
    watched(|| {
        let world = in_process::world(2);
        std::thread::scope(|scope| {
            for rank in [0u32, 1] {
                let comm = &world[rank as usize];
                scope.spawn(move || {
                    for number in 0..QUEUED_MESSAGES_MAX / 2 {
                        comm.send(&[number as u32; 60], rank ^ 1, 8).expect("send");
                    }
                    let works: Vec<Work> = (0..MESSAGES)
                        .map(|number| comm.send_async(vec![number as u32; 16], rank ^ 1, 9).into_work())
                        .collect();
                    for number in 0..MESSAGES {
                        let mut buffer = [0u32; 16];
                        comm.recv(&mut buffer, Peer::Rank(rank ^ 1), 9).expect("recv");
                        assert_eq!(buffer, [number as u32; 16]);
                        if number % 1000 == 0 {
                            std::thread::sleep(Duration::from_millis(2));
                        }
                    }
                    for number in 0..QUEUED_MESSAGES_MAX / 2 {
                        let mut buffer = [0u32; 60];
                        comm.recv(&mut buffer, Peer::Any, 8).expect("recv");
                        assert_eq!(buffer, [number as u32; 60]);
                    }
                    works.into_iter().for_each(|work| assert!(work.wait().is_ok()));
                    comm.close().expect("close");
                });
            }
        });
    });
}
