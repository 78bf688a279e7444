//! A thread that waits beside other work has a short time slice, but not while other code runs on it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use unisono_collectives::Collectives;
use unisono_communicator::{CallOptions, Error, UserOp};

use crate::calls::idling::Idle;
use crate::calls::time_slice::slice_ns;
use crate::in_process::{InProcessCommunicator, world};

/// Longer than any of these tests takes.
const DEADLINE: Duration = Duration::from_secs(60);

/// Makes a rank's threads believe that other work shares their core. For a second their waits sleep at once.
fn crowd(comm: &InProcessCommunicator) {
    let (mut guard, now) = (comm.shared.lock_links(), Instant::now());
    (0..10).for_each(|_| guard.idling.gave_way(now, now + Duration::from_millis(10)));
    let later = now + Duration::from_millis(500);
    assert_eq!(guard.idling.next(later, &mut None, || false), Idle::Sleep);
}

/// Runs `late` on another thread, later than `early`, so that `early` has to wait.
fn late<R: Send>(early: impl FnOnce() -> R, late: impl FnOnce() + Send) -> R {
    let started = Barrier::new(2);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            started.wait();
            std::thread::sleep(Duration::from_millis(50));
            late();
        });
        started.wait();
        early()
    })
}

#[test]
fn a_thread_that_has_waited_has_its_own_slice_again_and_so_have_those_that_it_starts() {
    let (world, before) = (world(2), slice_ns());
    let hurried = CallOptions::new().timeout(DEADLINE);
    for _ in 0..3 {
        crowd(&world[0]);
        late(|| world[0].with(hurried).barrier().unwrap(), || world[1].with(hurried).barrier().unwrap());
        assert_eq!(slice_ns(), before);
        assert_eq!(std::thread::spawn(slice_ns).join().unwrap(), before);
    }
    // The slice also returns to normal when the call fails.
    crowd(&world[0]);
    let brief = CallOptions::new().timeout(Duration::from_millis(50));
    assert!(matches!(world[0].with(brief).barrier(), Err(Error::Timeout { .. })));
    assert_eq!(slice_ns(), before);
}

#[test]
fn functions_of_users_run_with_the_slice_of_their_thread() {
    let (world, before) = (world(2), slice_ns().unwrap_or_default());
    crowd(&world[0]);
    let shortest = Arc::new(AtomicU64::new(before));
    let sum = |comm: &InProcessCommunicator| {
        let (mut value, seen) = ([1u32], shortest.clone());
        let add = move |left: &[u32], right: &[u32], out: &mut [u32]| {
            seen.fetch_min(slice_ns().unwrap_or_default(), Ordering::SeqCst);
            out.iter_mut().zip(left.iter().zip(right)).for_each(|(out, (left, right))| *out = left + right);
        };
        let hurried = CallOptions::new().timeout(DEADLINE);
        comm.with(hurried).all_reduce_user(&mut value, UserOp::commutative("add"), add).unwrap();
        assert_eq!(value, [2]);
    };
    late(|| sum(&world[0]), || sum(&world[1]));
    assert_eq!(shortest.load(Ordering::SeqCst), before);
}
