//! One rank of the test of forks: forks between calls and in the middle of them. A child is refused everything, drops
//! what it has and ends; the parent goes on as if nothing had been.

#![expect(unsafe_code, reason = "forks")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the test reads it")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use unisono::{Collectives, CollectivesAsync, Communicator, Error, Peer, ReduceOp, World};
use unisono_communicator::TypedWork;
use unisono_compression::{CompressedCollectives, CompressionState, SignL1};

/// Forks in the middle of a call: each meets the other threads of the parent elsewhere.
const FORKS: u32 = 20;

/// Long enough on any machine.
const CHILD_TIME_MAX: Duration = Duration::from_secs(30);

/// How often the function that the parent gave to its handle was called in this process.
static CALLED: AtomicU32 = AtomicU32::new(0);

fn main() {
    let comm = unisono::init().unwrap();
    // A call that a log has recorded by the time of the first fork.
    comm.barrier().unwrap();
    if comm.group().rank() != 0 {
        // The call of rank 0 waits for this one until its child has ended.
        comm.recv(&mut [0u8], Peer::Rank(0), 0).unwrap();
        let mut value = [1u32];
        comm.all_reduce(&mut value, ReduceOp::Sum).unwrap();
        assert_eq!(value, [2]);
        comm.close().unwrap();
        return println!("done");
    }
    // Nothing is in progress, so the child drops the last handle of the communicator and of the world.
    let comm = match fork() {
        None => {
            drop(comm);
            std::process::exit(0);
        }
        Some(child) => {
            await_child(child);
            comm
        }
    };
    let mut work = comm.all_reduce_async(vec![1u32], ReduceOp::Sum);
    work.as_work().on_done(|_| {
        CALLED.fetch_add(1, Ordering::SeqCst);
    });
    for _ in 0..FORKS {
        work = match fork() {
            None => refused_in_child(comm, work),
            Some(child) => {
                await_child(child);
                work
            }
        };
    }
    comm.send(&[0u8], 1, 0).unwrap();
    assert_eq!(work.wait().unwrap(), [2]);
    let until = Instant::now() + CHILD_TIME_MAX;
    while CALLED.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < until, "the function given to on_done is not called");
        std::thread::sleep(Duration::from_millis(1));
    }
    comm.close().unwrap();
    println!("done");
}

/// The child of the parent, `None` in the child.
fn fork() -> Option<i32> {
    // SAFETY: the child uses nothing that another thread of the parent may hold: it asks the communicator, which must
    // refuse it before it takes a lock, writes and exits.
    match unsafe { libc::fork() } {
        -1 => panic!("no fork"),
        0 => None,
        child => Some(child),
    }
}

/// Ends with status 0 when everything was refused; by way of `exit`, so that its handler runs too.
fn refused_in_child(comm: World, work: TypedWork<Vec<u32>>) -> ! {
    let is_refused = |error: Error| matches!(error, Error::Forked { .. });
    let mut state = CompressionState::new::<f32>(&*comm, SignL1::default(), 4).unwrap();
    let checks = [
        comm.compressed_all_reduce(&mut [1.0f32; 4], ReduceOp::Sum, &mut state).is_err_and(is_refused),
        comm.barrier().is_err_and(is_refused),
        comm.send(&[1u8], 1, 0).is_err_and(is_refused),
        comm.agree(true).is_err_and(is_refused),
        comm.shrink().is_err_and(is_refused),
        comm.close().is_err_and(is_refused),
        work.is_done(),
        work.as_work().wait_timeout(Duration::MAX).is_some_and(|result| result.is_err_and(is_refused)),
        is_told_at_once(&work),
        work.wait().is_err_and(is_refused),
    ];
    drop(comm);
    // The parent's function is the parent's to call.
    let checks = checks.into_iter().chain([CALLED.load(Ordering::SeqCst) == 0]).collect::<Vec<_>>();
    std::process::exit(i32::from(checks.contains(&false)));
}

/// Whether a function that the child gives to a handle is called at once, and refused.
fn is_told_at_once(work: &TypedWork<Vec<u32>>) -> bool {
    let (sender, told) = std::sync::mpsc::channel();
    work.as_work().on_done(move |result| {
        let _ = sender.send(matches!(result, Err(Error::Forked { .. })));
    });
    told.try_recv() == Ok(true)
}

fn await_child(child: i32) {
    let until = Instant::now() + CHILD_TIME_MAX;
    loop {
        let mut status = 0;
        // SAFETY: the status is ours, and the child is this process's own.
        match unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } {
            0 if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            0 => panic!("the child hangs"),
            _ => return assert_eq!(status, 0, "the child was not refused everything"),
        }
    }
}
