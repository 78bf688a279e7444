//! Calls allocate nothing, once their buffers have grown.

use unisono_collectives::{Collectives, CollectivesPrepared, PointToPoint};
use unisono_communicator::{BufferMut, Communicator, Division, Peer, ReduceOp};
use unisono_engine::in_process;

const WARM_UP: usize = 50;
const TURNS: usize = 200;

/// Short messages, the longest that leaves in one piece with its header, longer messages, the longest that needs no
/// request, and a message that needs a request and fits into a pipe at once.
const LENGTHS: [usize; 7] = [0, 64, 4064, 4065, 20_000, 512 * 1024, 600 * 1024];

#[test]
fn a_steady_ping_pong_allocates_nothing() {
    let world = in_process::world(2);
    std::thread::scope(|scope| {
        for rank in [0u32, 1] {
            let comm = &world[rank as usize];
            scope.spawn(move || {
                for length in LENGTHS {
                    let (mut buffer, peer) = (vec![rank as u8; length], rank ^ 1);
                    let mut play = |turns| {
                        for turn in 0..turns {
                            if (turn + rank as usize).is_multiple_of(2) {
                                comm.send(&buffer, peer, 7).expect("send");
                            } else {
                                let from = if turn % 3 == 0 { Peer::Any } else { Peer::Rank(peer) };
                                comm.recv(&mut buffer, from, 7).expect("recv");
                            }
                        }
                    };
                    play(WARM_UP);
                    let counted = allocation_counter::measure(|| play(TURNS));
                    // A pipe doubles when its reader is late. A call that allocates does so in every turn.
                    let pipes = TURNS as u64 / 50;
                    assert!(
                        counted.count_total <= pipes,
                        "rank {rank}, messages of {length} bytes: {counted:?}"
                    );
                }
            });
        }
    });
}

/// Neighbours that exchange their edges copy nothing, below and above the length that needs a request.
#[test]
fn a_steady_exchange_of_neighbours_allocates_nothing() {
    let world = in_process::world(2);
    std::thread::scope(|scope| {
        for comm in &world {
            scope.spawn(move || {
                for length in LENGTHS {
                    let (message, mut room) = (vec![1u8; length], vec![0; length]);
                    let peer = comm.rank() ^ 1;
                    let mut play = |turns| {
                        for _ in 0..turns {
                            comm.send_recv(&message, peer, &mut room, peer, 7).expect("exchange");
                        }
                    };
                    play(WARM_UP);
                    let counted = allocation_counter::measure(|| play(TURNS));
                    let pipes = TURNS as u64 / 10;
                    assert!(counted.count_total <= pipes, "messages of {length} bytes: {counted:?}");
                }
            });
        }
    });
}

/// A prepared call keeps its plan where plain calls of many shapes push out each other's plans.
#[test]
fn a_prepared_call_allocates_nothing_among_calls_of_many_shapes() {
    const SHAPES: usize = 100;
    let world = in_process::world(2);
    std::thread::scope(|scope| {
        for comm in &world {
            scope.spawn(move || {
                let prepared: Vec<_> = (1..=SHAPES)
                    .map(|elements| comm.prepare_all_reduce::<u32>(elements, ReduceOp::Max).expect("prepare"))
                    .collect();
                let mut buffer = [comm.rank(); SHAPES];
                let mut play = |turns| {
                    for _ in 0..turns {
                        for (elements, call) in (1..=SHAPES).zip(&prepared) {
                            call.call(&mut buffer[..elements]).expect("all_reduce");
                        }
                    }
                };
                play(2);
                let counted = allocation_counter::measure(|| play(4));
                assert!(counted.count_total <= SHAPES as u64 / 10, "{counted:?}");
                // Without plans of their own, these push each other out.
                let plain = allocation_counter::measure(|| {
                    for elements in 1..=SHAPES {
                        comm.all_reduce(&mut buffer[..elements], ReduceOp::Max).expect("all_reduce");
                    }
                });
                assert!(plain.count_total > SHAPES as u64, "{plain:?}");
            });
        }
    });
}

/// A plan is found again without a copy of the segments' lengths, so a coalesced call allocates only its list.
#[test]
fn a_steady_coalesced_call_allocates_its_list_only() {
    let world = in_process::world(2);
    std::thread::scope(|scope| {
        for comm in &world {
            scope.spawn(move || {
                let mut buffers = [vec![0u32; 64], vec![], vec![0; 5]];
                let mut play = |turns| {
                    for _ in 0..turns {
                        let [a, b, c] = &mut buffers;
                        comm.all_reduce_coalesced(&mut [a, b, c], ReduceOp::Max).expect("all_reduce");
                    }
                };
                play(WARM_UP);
                let counted = allocation_counter::measure(|| play(TURNS));
                let mut whole = [0u32; 64];
                let list = allocation_counter::measure(|| {
                    let (a, b) = whole.split_at_mut(8);
                    drop(BufferMut::of_list([a, &mut [], b], Division::Coalesced));
                });
                // A pipe may still grow now and then. A copy of the lengths would be one allocation in every turn.
                let pipes = TURNS as u64 / 4;
                assert!(
                    counted.count_total <= list.count_total * TURNS as u64 + pipes,
                    "{counted:?}, {list:?}"
                );
            });
        }
    });
}

/// Dropped preparations do not add up: the next one forgets their plans.
#[test]
fn a_thousand_preparations_are_forgotten() {
    let comm = &in_process::world(1)[0];
    let prepare = |times| {
        for elements in 0..times {
            drop(comm.prepare_all_reduce::<u8>(100_000 + elements, ReduceOp::Sum).expect("prepare"));
        }
    };
    prepare(100);
    let many = allocation_counter::measure(|| prepare(1000));
    let one = allocation_counter::measure(|| prepare(1));
    assert!(many.bytes_current < 10 * one.bytes_total as i64, "{many:?}, {one:?}");
}

#[test]
fn the_counter_counts() {
    let counted = allocation_counter::measure(|| drop(std::hint::black_box(vec![1u8; 10])));
    assert_eq!(counted.count_total, 1);
}
