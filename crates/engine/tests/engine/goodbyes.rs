//! The end of messages: a message that was sent before a `close` can be received after it, while the other side does
//! anything else, and no `close` hangs.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::support::watched;
use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{CallOptions, Communicator, Error, Executor, JobRank, Peer};
use unisono_engine::{Edge, EngineOptions, Flow, Lane, Tap, Tapped, in_process};

/// The number of received messages of 8 bytes after which the receiver returns credit in a frame of its own.
const CREDIT_MESSAGES: usize = 2048;

/// The states of a valve.
const PASS: u8 = 0;
const HOLD: u8 = 1;
const BREAK: u8 = 2;

/// Lets the frames of a rank pass, holds them back, or breaks the rank's sending side.
struct Valve(Arc<AtomicU8>);

impl Tap for Valve {
    fn before(&mut self, edge: Edge, flow: Flow, bytes: usize) -> io::Result<usize> {
        match (edge.lane, flow, self.0.load(Ordering::SeqCst)) {
            (Lane::PointToPoint, Flow::Out, HOLD) => Err(ErrorKind::WouldBlock.into()),
            (Lane::PointToPoint, Flow::Out, BREAK) => Err(ErrorKind::BrokenPipe.into()),
            _ => Ok(bytes),
        }
    }

    fn after(&mut self, _edge: Edge, _flow: Flow, _bytes: usize) {}

    fn forbids_sleep(&mut self) -> bool {
        false
    }
}

#[test]
fn what_was_sent_is_received_from_a_rank_that_closed_long_ago() {
    watched(|| {
        let mut world = in_process::world(2);
        let gone = world.pop().unwrap();
        for number in 0..3000u64 {
            gone.send(&[number], 0, 1).unwrap();
        }
        // Rank 0 is inside no call, and has never used the lane.
        gone.close().unwrap();
        drop(gone);
        for number in 0..3000u64 {
            let mut value = [0u64];
            world[0].recv(&mut value, Peer::Rank(1), 1).unwrap();
            assert_eq!(value, [number]);
        }
        let error = world[0].recv(&mut [0u64], Peer::Rank(1), 1).unwrap_err();
        assert_eq!(error.lost_ranks(), [JobRank::new(1)], "{error}");
    });
}

#[test]
fn all_may_close_at_the_same_time_behind_messages_for_each_other() {
    watched(|| {
        for _ in 0..50 {
            let world = in_process::world(3);
            std::thread::scope(|scope| {
                for comm in &world {
                    scope.spawn(|| {
                        let (rank, ranks) = (comm.group().rank(), comm.group().size());
                        for peer in (0..ranks).filter(|&peer| peer != rank) {
                            comm.send(&[rank; 30], peer, 4).unwrap();
                        }
                        comm.barrier().unwrap();
                        // Some lanes have never been read.
                        if rank > 0 {
                            comm.recv(&mut [0u32; 30], Peer::Rank(rank - 1), 4).unwrap();
                        }
                        comm.close().unwrap();
                    });
                }
            });
        }
    });
}

#[test]
fn a_detached_long_message_is_seen_off_by_close() {
    watched(|| {
        let world = in_process::world(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                drop(world[1].send_async(vec![9u8; 3 << 20], 0, 1).into_work());
                world[1].close().unwrap();
            });
            let mut value = vec![0u8; 3 << 20];
            world[0].recv(&mut value, Peer::Rank(1), 1).unwrap();
            assert!(value.iter().all(|byte| *byte == 9));
            world[0].close().unwrap();
        });
    });
}

/// No rank receives the long message. The wait of `close` ends at the deadline, and the error says why.
#[test]
fn close_does_not_wait_for_ever_for_a_long_message_that_nobody_receives() {
    watched(|| {
        let options = EngineOptions { timeout: Duration::from_millis(300), ..EngineOptions::default() };
        let world = in_process::world_of(2, &options, |_, links| links);
        drop(world[1].send_async(vec![9u8; 3 << 20], 0, 1).into_work());
        let error = world[1].close().unwrap_err();
        let Error::Timeout { not_arrived, .. } = &error else { panic!("{error}") };
        assert_eq!(not_arrived[0].rank.get(), 0, "{error}");
    });
}

#[test]
fn a_receive_that_waits_in_another_thread_ends_when_its_rank_closes() {
    watched(|| {
        let world = in_process::world(2);
        let work = world[0].recv_async(vec![0u8; 10], Peer::Rank(1), 1).into_work();
        world[0].close().unwrap();
        assert!(matches!(work.wait(), Err(Error::Closed { .. })));
    });
}

#[test]
fn a_send_to_a_rank_that_has_closed_fails() {
    watched(|| {
        let world = in_process::world(2);
        world[1].send(&[1u8], 0, 1).unwrap();
        world[1].close().unwrap();
        world[0].recv(&mut [0u8], Peer::Rank(1), 1).unwrap();
        // The goodbye is read before this call, or by it.
        let error = loop {
            if let Err(error) = world[0].send(&[2u8], 1, 1) {
                break error;
            }
        };
        assert_eq!(error.lost_ranks(), [JobRank::new(1)], "{error}");
    });
}

/// A credit, which is a frame without a message, is on its way out when the stream takes no more bytes.
#[test]
fn a_dead_link_with_a_frame_on_its_way_loses_no_message_and_does_not_hang_close() {
    watched(|| {
        let valve = Arc::new(AtomicU8::new(PASS));
        let world = in_process::world_of(2, &EngineOptions::default(), |rank, links| {
            let own = if rank == 0 { valve.clone() } else { Arc::default() };
            Tapped::with_tap(links, Valve(own))
        });
        for number in 0..CREDIT_MESSAGES as u64 + 50 {
            world[1].send(&[number], 0, 1).unwrap();
        }
        valve.store(HOLD, Ordering::SeqCst);
        let receive = |number: u64| {
            let mut value = [0u64];
            world[0].recv(&mut value, Peer::Rank(1), 1).unwrap();
            assert_eq!(value, [number]);
        };
        (0..CREDIT_MESSAGES as u64 + 1).for_each(receive);
        valve.store(BREAK, Ordering::SeqCst);
        (CREDIT_MESSAGES as u64 + 1..CREDIT_MESSAGES as u64 + 50).for_each(receive);
        world[0].close().unwrap();
        world[1].close().unwrap();
    });
}

/// The peer goes without a goodbye while `close` waits for its answer.
#[test]
fn close_ends_when_its_peer_dies_meanwhile() {
    watched(|| {
        for is_first in [true, false] {
            let valve = Arc::new(AtomicU8::new(PASS));
            let mut world = in_process::world_of(2, &EngineOptions::default(), |rank, links| {
                let own = if rank == 1 { valve.clone() } else { Arc::default() };
                Tapped::with_tap(links, Valve(own))
            });
            let dying = world.pop().unwrap();
            world[0].send(&[1u8], 1, 1).unwrap();
            dying.recv(&mut [0u8], Peer::Rank(0), 1).unwrap();
            // From now on the peer can say no goodbye.
            valve.store(BREAK, Ordering::SeqCst);
            if is_first {
                drop(dying);
                world[0].close().unwrap();
            } else {
                std::thread::scope(|scope| {
                    let closing = scope.spawn(|| world[0].close());
                    drop(dying);
                    closing.join().unwrap().unwrap();
                });
            }
        }
    });
}

#[test]
fn a_short_deadline_does_not_spoil_a_close_that_needs_nobody() {
    watched(|| {
        let world = in_process::world(2);
        let quick = world[1].with(CallOptions::new().timeout(Duration::from_secs(1)));
        quick.send(&[1u8], 0, 1).unwrap();
        world[1].close().unwrap();
        world[1].close().unwrap();
        world[0].recv(&mut [0u8], Peer::Any, 1).unwrap();
    });
}
