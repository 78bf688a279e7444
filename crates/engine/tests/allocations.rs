//! What calls cost in memory: nothing, once their buffers have grown.

use unisono_communicator::{Collectives, Peer};
use unisono_engine::in_process;

const WARM_UP: usize = 50;
const TURNS: usize = 200;

/// Short ones, the longest that leaves in one piece with its header, longer ones, the longest that is sent without
/// asking, and one that asks and fits into a pipe at once.
const LENGTHS: [usize; 7] = [0, 64, 4064, 4065, 20_000, 64 * 1024, 300 * 1024];

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
                    assert_eq!(counted.count_total, 0, "rank {rank}, messages of {length} bytes");
                }
            });
        }
    });
}

#[test]
fn the_counter_counts() {
    let counted = allocation_counter::measure(|| drop(std::hint::black_box(vec![1u8; 10])));
    assert_eq!(counted.count_total, 1);
}
