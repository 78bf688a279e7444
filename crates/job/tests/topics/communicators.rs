//! Communicators that live for one call leave no descriptors, though both sides of a pair may dial and one of the two
//! connections may come when the communicator is gone. In a process of its own, since it counts.

use std::time::{Duration, Instant};

use crate::child::alone;
use crate::support::{config, on_each, worlds};
use unisono_collectives::Collectives;
use unisono_communicator::Communicator;

const RANKS: u32 = 4;
const ROUND: usize = 150;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("a directory of this process").count()
}

fn short_lives(communicator: &dyn Communicator) {
    for _ in 0..ROUND {
        let copy = communicator.duplicate().expect("duplicate");
        let mut output = [0; RANKS as usize];
        copy.all_to_all(&[communicator.group().rank(); RANKS as usize], &mut output).expect("all_to_all");
        assert_eq!(output, [0, 1, 2, 3]);
    }
    communicator.barrier().expect("barrier");
}

#[test]
fn short_lived_communicators_leave_no_descriptors() {
    alone("topics::communicators::short_lived_communicators_leave_no_descriptors", || {
        on_each(worlds(RANKS, &config(&[])), |_world, communicator| {
            short_lives(&*communicator);
            let is_counting = communicator.group().rank() == 0;
            let few = descriptors() + ROUND / 10;
            (0..4).for_each(|_| short_lives(&*communicator));
            // The next sweeps find the connections that both sides have given up.
            let deadline = Instant::now() + crate::support::TEST_TIME_MAX / 2;
            while is_counting && descriptors() > few {
                assert!(Instant::now() < deadline, "{} descriptors, {few} are few", descriptors());
                std::thread::sleep(Duration::from_millis(20));
            }
            communicator.barrier().expect("barrier");
        });
    });
}
