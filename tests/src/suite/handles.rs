//! What a handle can do beside giving a vector: several waiters, waiting for a time, functions called at the end.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{CallOptions, Communicator, Error, OwnedBuffers, Peer, ReduceOp, Work};

use crate::backend::Backend;
use crate::world::{options, run, run_each};

/// Far longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Of a wait that must end without a result.
const SHORT: Duration = Duration::from_millis(5);

fn sum_of_ones(comm: &dyn Communicator, length: usize) -> Work {
    comm.all_reduce_async(vec![1i32; length], ReduceOp::Sum).into_work()
}

/// Every thread that waits gets the same result; the buffers come to one.
pub fn several_threads_wait(backend: &dyn Backend) {
    run_each(backend, &[1, 2, 3, 5], |comm| {
        for length in [1, 200_000] {
            let work = sum_of_ones(comm, length);
            let outcomes: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| work.wait().unwrap())).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "{outcomes:?}");
            assert_eq!(outcomes[0].bytes, length as u64 * 4);
            let Some(OwnedBuffers::InOut(buffer)) = work.finish().buffers else { panic!("no buffer") };
            assert_eq!(buffer.into_vec::<i32>(), Some(vec![comm.group().size() as i32; length]));
        }
    });
}

/// All waiters of a call that fails get the same error.
pub fn several_threads_get_the_error(backend: &dyn Backend) {
    run(backend, 2, &options(), |comm| {
        if comm.group().rank() == 1 {
            // Until the cancellation comes, this rank stays: one that has left would be lost.
            while comm.recv(&mut [0u8], Peer::Rank(0), 1).is_ok() {}
            return;
        }
        let work = comm.recv_async(vec![0u8], Peer::Rank(1), 9).into_work();
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..3).map(|_| scope.spawn(|| work.wait().unwrap_err())).collect();
            comm.send(&[1u8], 1, 1).unwrap();
            work.cancel();
            for waiter in waiters {
                let error = waiter.join().unwrap();
                assert!(matches!(error.root_cause(), Error::Cancelled { .. }), "{error}");
            }
        });
        assert!(work.finish().buffers.is_some());
    });
}

/// A wait for a time gives up, and the call goes on.
pub fn waits_for_a_time(backend: &dyn Backend) {
    run_each(backend, &[1, 2, 3], |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        let work = comm.recv_async(vec![0u32], Peer::Rank(previous), 4).into_work();
        assert!(work.wait_timeout(SHORT).is_none());
        assert!(work.wait_timeout(Duration::ZERO).is_none());
        comm.barrier().unwrap();
        comm.send(&[rank], next, 4).unwrap();
        let outcome = work.wait_timeout(Duration::MAX).unwrap().unwrap();
        assert_eq!((outcome.source, outcome.bytes), (Some(previous), 4));
        assert!(work.wait_timeout(Duration::ZERO).is_some_and(|result| result.is_ok()));
    });
}

/// Every function is called exactly once, whether it was given before the end or after it.
pub fn functions_are_called_once(backend: &dyn Backend) {
    run_each(backend, &[1, 2, 4], |comm| {
        let (sender, called) = mpsc::channel();
        let note = |number: u32| {
            let sender = sender.clone();
            move |result: Result<_, Error>| sender.send((number, result.is_ok())).unwrap()
        };
        let works: Vec<_> = (0..20).map(|_| sum_of_ones(comm, 300)).collect();
        works.iter().for_each(|work| {
            work.on_done(note(0));
            work.on_done(note(1));
        });
        drop(works);
        let work = sum_of_ones(comm, 3);
        work.wait().unwrap();
        // Given after the end, it is called on this thread.
        let (own, caller) = (std::thread::current().id(), Arc::new(AtomicU32::new(0)));
        let seen = caller.clone();
        work.on_done(move |_| seen.store(u32::from(std::thread::current().id() == own), Ordering::SeqCst));
        assert_eq!(caller.load(Ordering::SeqCst), 1);
        work.on_done(note(2));
        let mut calls: Vec<_> = (0..41).map(|_| called.recv_timeout(LONG).unwrap()).collect();
        calls.sort_unstable();
        let expected = [vec![(0, true); 20], vec![(1, true); 20], vec![(2, true)]].concat();
        assert_eq!(calls, expected);
        comm.barrier().unwrap();
        assert!(called.try_recv().is_err(), "called twice");
    });
}

/// A function that blocks delays no call: not those of its own rank's threads, not those that nobody waits for, not
/// those of other ranks.
pub fn a_function_that_blocks_delays_no_call(backend: &dyn Backend) {
    run_each(backend, &[2, 3], |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        let (go, gone) = mpsc::channel::<()>();
        let (sender, called) = mpsc::channel();
        // Given after the end of the call, the function would block this thread: the others call behind it.
        let blocked = if rank == 0 {
            let blocked = sum_of_ones(comm, 10);
            blocked.on_done(move |_| sender.send(gone.recv_timeout(LONG)).unwrap());
            (1..ranks).for_each(|other| comm.send(&[1u8], other, 2).unwrap());
            blocked
        } else {
            comm.recv(&mut [0u8], Peer::Rank(0), 2).unwrap();
            sum_of_ones(comm, 10)
        };
        blocked.wait().unwrap();
        comm.all_reduce(&mut [1i32; 5], ReduceOp::Sum).unwrap();
        let unattended = sum_of_ones(comm, 1000);
        while !unattended.is_done() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let receive = comm.recv_async(vec![0u32; 50_000], Peer::Any, 1).into_work();
        let send = comm.send_async(vec![rank; 50_000], (rank + 1) % ranks, 1).into_work();
        std::thread::scope(|scope| {
            scope.spawn(|| receive.wait().unwrap());
            send.wait().unwrap();
        });
        comm.barrier().unwrap();
        drop(go);
        if rank == 0 {
            assert!(called.recv_timeout(LONG).unwrap().is_err(), "it was to wait until the end");
        }
    });
}

/// Functions that block until a later one has run: another thread goes on with that one.
pub fn functions_may_wait_for_later_ones(backend: &dyn Backend) {
    const BLOCKED: u32 = 5;
    run_each(backend, &[2, 3], |comm| {
        let rank = comm.group().rank();
        let received = |tag: u32| comm.recv_async(vec![0u8], Peer::Rank(rank), tag).into_work();
        let works: Vec<Work> = (0..=BLOCKED).map(received).collect();
        let (sender, called) = mpsc::channel();
        // The last function lets each of the others go on.
        let mut waiting = Vec::new();
        for work in &works[..BLOCKED as usize] {
            let (go, gone) = mpsc::channel::<()>();
            let sender = sender.clone();
            work.on_done(move |_| sender.send(gone.recv_timeout(LONG).is_ok()).unwrap());
            waiting.push(go);
        }
        works[BLOCKED as usize].on_done(move |_| waiting.iter().for_each(|go| go.send(()).unwrap()));
        (0..=BLOCKED).for_each(|tag| comm.send(&[1u8], rank, tag).unwrap());
        for _ in 0..BLOCKED {
            assert!(called.recv_timeout(2 * LONG).unwrap(), "a later function was not called");
        }
    });
}

/// A function that panics is reported, and those behind it are called.
pub fn a_function_that_panics_harms_nobody(backend: &dyn Backend) {
    run_each(backend, &[1, 2], |comm| {
        let (sender, called) = mpsc::channel();
        let work = sum_of_ones(comm, 10);
        work.on_done(|_| panic!("in a test"));
        work.on_done(move |_| sender.send(()).unwrap());
        called.recv_timeout(LONG).unwrap();
        work.on_done(|_| panic!("in a test, on the caller's thread"));
        comm.barrier().unwrap();
    });
}

/// Nothing is held when a function is called: it may make calls, also blocking ones.
pub fn functions_may_make_calls(backend: &dyn Backend) {
    run_each(backend, &[1, 2, 3], |comm| {
        let own = comm.duplicate().unwrap();
        let (sender, called) = mpsc::channel();
        let work = sum_of_ones(&*own, 10);
        let inner = own.clone();
        work.on_done(move |_| {
            let mut value = [1i32];
            inner.all_reduce(&mut value, ReduceOp::Sum).unwrap();
            sum_of_ones(&*inner, 3).on_done(move |result| sender.send((value[0], result.is_ok())).unwrap());
        });
        assert_eq!(called.recv_timeout(LONG).unwrap(), (comm.group().size() as i32, true));
        own.close().unwrap();
    });
}

/// The functions of detached work are called although the last handle of the communicator is gone.
pub fn functions_outlive_the_communicator(backend: &dyn Backend) {
    run_each(backend, &[1, 2, 3], |comm| {
        let own = comm.duplicate().unwrap();
        let (sender, called) = mpsc::channel();
        let work = sum_of_ones(&*own, 20_000);
        work.on_done(move |result| sender.send(result.is_ok()).unwrap());
        drop(work);
        drop(own);
        assert!(called.recv_timeout(LONG).unwrap());
        comm.barrier().unwrap();
    });
}

/// The functions of work that fails are called with the first cause, or at the deadline, though nobody waits.
///
/// Rows: A12
pub fn functions_get_the_error(backend: &dyn Backend) {
    let ranks = backend.ranks_max().min(2);
    let together = Barrier::new(ranks as usize);
    for is_late in [false, true] {
        run(backend, ranks, &options(), |comm| {
            let (sender, called) = mpsc::channel();
            let timeout = if is_late { Duration::from_millis(50) } else { LONG };
            let hurried = comm.with(CallOptions::new().timeout(timeout));
            let work = hurried.recv_async(vec![0u8; 4], Peer::Any, 5).into_work();
            work.on_done(move |result| sender.send(result.unwrap_err()).unwrap());
            together.wait();
            if !is_late && comm.group().rank() == 0 {
                comm.revoke(Error::closed()).unwrap();
            }
            drop(work);
            let error = called.recv_timeout(LONG).unwrap();
            let is_told = match error.root_cause() {
                Error::Timeout { .. } => is_late,
                Error::Closed { .. } => !is_late,
                _ => false,
            };
            assert!(is_told, "{error}");
        });
    }
}
