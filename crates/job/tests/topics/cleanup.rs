//! Nothing is left behind: descriptors and threads of jobs that have ended. In a process of its own, since it counts.

use std::time::{Duration, Instant};

use crate::child::alone;
use crate::support::{config, on_each, worlds};
use unisono_collectives::Collectives;
use unisono_communicator::ReduceOp;

fn count(directory: &str) -> usize {
    std::fs::read_dir(directory).expect("a directory of this process").count()
}

fn run_job() {
    on_each(worlds(4, &config(&[])), |_world, communicator| {
        let copy = communicator.duplicate().expect("duplicate");
        for elements in [1, 100_000] {
            copy.all_reduce(&mut vec![1u64; elements], ReduceOp::Sum).expect("all_reduce");
            communicator.all_reduce(&mut vec![1u64; elements], ReduceOp::Sum).expect("all_reduce");
        }
    });
}

/// Rows: A4
#[test]
fn ended_jobs_leave_no_descriptors_and_no_threads() {
    alone("topics::cleanup::ended_jobs_leave_no_descriptors_and_no_threads", || {
        run_job();
        let settled = || (count("/proc/self/fd"), count("/proc/self/task"));
        std::thread::sleep(Duration::from_millis(300));
        let before = settled();
        (0..20).for_each(|_| run_job());
        let deadline = Instant::now() + crate::support::TEST_TIME_MAX;
        while settled() > before {
            assert!(Instant::now() < deadline, "before {before:?}, after {:?}", settled());
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}
