//! Communicators that come and go leave no descriptor, no mapping and no memory. In a process of its own, since it
//! counts.

use std::time::{Duration, Instant};

use unisono_collectives::Collectives;
use unisono_communicator::{Communicator, Peer, ReduceOp};
use unisono_shared_memory::Segment;

use crate::child::alone;
use crate::support::{TEST_TIME_MAX, config, on_each, worlds};

const CYCLES: usize = 2_000;

/// The rings that there may be at one time: the rings of the communicators of all and of the copies that live, and of a
/// few copies that go. When ranks did not answer goodbyes, copies stayed for seconds, and there were 34.
const RINGS_MAX: u64 = 20;

const RING_BYTES: u64 = 256 << 10;

/// The resources that this process holds: descriptors, mappings of rings, bytes of rings.
fn held() -> [u64; 3] {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("a directory of this process").count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("a file of this process");
    let mappings = maps.lines().filter(|line| line.contains("memfd:unisono")).count();
    [descriptors as u64, mappings as u64, Segment::bytes_in_process()]
}

fn live(copy: &dyn Communicator, uses_messages: bool) {
    let (rank, other) = (copy.group().rank(), 1 - copy.group().rank());
    let mut sum = [rank + 1];
    copy.all_reduce(&mut sum, ReduceOp::Sum).expect("all_reduce");
    assert_eq!(sum, [3]);
    if uses_messages {
        copy.send(&[rank], other, 7).expect("send");
        let mut received = [7];
        copy.recv(&mut received, Peer::Rank(other), 7).expect("recv");
        assert_eq!(received, [other]);
    }
}

/// Rows: A4
#[test]
fn communicators_that_come_and_go_leave_nothing() {
    alone("topics::cycles::communicators_that_come_and_go_leave_nothing", || {
        on_each(worlds(2, &config(&[])), |_world, communicator| {
            live(&*communicator, true);
            communicator.barrier().expect("barrier");
            let before = held();
            communicator.barrier().expect("barrier");
            let mut most = 0;
            for cycle in 0..CYCLES {
                let copy = communicator.duplicate().expect("duplicate");
                live(&*copy, cycle % 2 == 0);
                most = most.max(Segment::bytes_in_process());
                // Some are closed, and some only go.
                if cycle % 3 == 0 {
                    copy.close().expect("close");
                }
            }
            communicator.barrier().expect("barrier");
            assert!(most <= RINGS_MAX * RING_BYTES, "{most} bytes of rings at one time");
            let deadline = Instant::now() + TEST_TIME_MAX / 2;
            while held().iter().zip(before).any(|(now, before)| *now > before) {
                assert!(Instant::now() < deadline, "before {before:?}, after {:?}", held());
                std::thread::sleep(Duration::from_millis(20));
            }
            communicator.barrier().expect("barrier");
        });
    });
}
