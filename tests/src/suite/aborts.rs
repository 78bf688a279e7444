//! A user's abort ends what waits, at once and on every rank.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{CallOptions, Communicator, Error, Peer, ReduceOp, Result};

use crate::backend::Backend;
use crate::world::{options, run};

/// Of a wait after the abort, on a machine that is busy with other tests; the deadline of a call is far longer.
const ENDED_AFTER_MAX: Duration = Duration::from_secs(10);

/// How long a thread has to come to its wait.
const SETTLED_AFTER: Duration = Duration::from_millis(100);

fn is_it<R>(result: Result<R>, by: u32) {
    match result {
        Err(Error::Aborted { by: who }) => assert_eq!(who.get(), by),
        Err(other) => panic!("not the abort: {other}"),
        Ok(_) => panic!("a call succeeded that nobody has answered"),
    }
}

/// Runs `waits` on every rank until the last one aborts, and looks at what comes of it.
fn aborted_during(backend: &dyn Backend, waits: impl Fn(&dyn Communicator, u32) + Sync) {
    for ranks in backend.among(&[1, 2, 3]) {
        let together = Barrier::new(ranks as usize);
        run(backend, ranks, &options(), |comm| {
            let by = ranks - 1;
            let waiting = || {
                waits(comm, by);
                Instant::now()
            };
            let (aborted, ended) = std::thread::scope(|threads| {
                let waiting = threads.spawn(waiting);
                together.wait();
                std::thread::sleep(SETTLED_AFTER);
                let aborted = Instant::now();
                if comm.group().rank() == by {
                    comm.abort().unwrap();
                }
                (aborted, waiting.join().unwrap())
            });
            let waited = ended.saturating_duration_since(aborted);
            assert!(waited < ENDED_AFTER_MAX, "it took {waited:?}");
            is_it(comm.barrier(), by);
            is_it(comm.recv(&mut [0u8], Peer::Any, 1), by);
            comm.abort().unwrap();
            is_it(comm.barrier(), by);
            together.wait();
        });
    }
}

/// A collective that the aborting rank's other thread, or nobody else, has come to.
pub fn collectives_that_wait(backend: &dyn Backend) {
    aborted_during(backend, |comm, by| {
        if comm.group().rank() == by || comm.group().size() == 1 {
            // The rank that aborts is inside a receive of its own.
            is_it(comm.recv(&mut [0u8], Peer::Any, 7), by);
        } else {
            is_it(comm.all_reduce(&mut [1i32; 8], ReduceOp::Sum), by);
        }
    });
}

/// Blocking, on every rank.
pub fn receives_that_wait(backend: &dyn Backend) {
    aborted_during(backend, |comm, by| is_it(comm.recv(&mut [0u8; 4], Peer::Any, 3), by));
}

/// A collective and a receive behind it.
pub fn handles_that_wait(backend: &dyn Backend) {
    aborted_during(backend, |comm, by| {
        let message = comm.recv_async(vec![0u8; 4], Peer::Any, 3).into_work();
        let is_alone = comm.group().size() == 1;
        let sum = (comm.group().rank() != by).then(|| comm.all_reduce_async(vec![1i32; 8], ReduceOp::Sum));
        assert!(!is_alone || sum.is_none());
        is_it(message.wait(), by);
        sum.into_iter().for_each(|sum| is_it(sum.wait(), by));
    });
}

/// A labelled call behind another thread's scope.
pub fn turns_that_are_waited_for(backend: &dyn Backend) {
    aborted_during(backend, |comm, by| {
        // A thread that comes after the abort has no scope to hold.
        let scope = match comm.scope(super::scopes::parent("held", 8), &CallOptions::new()) {
            Ok(scope) => scope,
            Err(late) => return is_it::<()>(Err(late), by),
        };
        let behind = || comm.with(CallOptions::new().label("behind")).barrier();
        is_it(std::thread::scope(|threads| threads.spawn(behind).join().unwrap()), by);
        is_it(scope.barrier(), by);
    });
}

/// Rank 0 aborts, and all ranks go on in the next epoch.
fn abort_and_shrink(comm: &dyn Communicator) -> Arc<dyn Communicator> {
    if comm.group().rank() == 0 {
        comm.abort().unwrap();
    }
    is_it(comm.barrier(), 0);
    let shrunk = comm.shrink().unwrap();
    assert_eq!(shrunk.communicator.group().size(), comm.group().size());
    shrunk.communicator.barrier().unwrap();
    shrunk.communicator
}

/// The others of the job go on, in the next epoch. Then a failure that they have survived is no error of `close`, in
/// whatever order the communicators are closed.
pub fn shrink_goes_on(backend: &dyn Backend) {
    for ranks in backend.among(&[1, 2, 3]) {
        run(backend, ranks, &options(), |comm| {
            let survivors = abort_and_shrink(comm);
            survivors.close().unwrap();
            comm.close().unwrap();
        });
        run(backend, ranks, &options(), |comm| {
            let newest = abort_and_shrink(&*abort_and_shrink(comm));
            comm.close().unwrap();
            newest.close().unwrap();
        });
    }
}

/// A rank that goes on after the failure of a copy has survived the same failure of the communicator.
pub fn shrink_of_a_copy_goes_on(backend: &dyn Backend) {
    for (ranks, is_last_failure) in
        backend.among(&[1, 2]).into_iter().flat_map(|ranks| [(ranks, true), (ranks, false)])
    {
        run(backend, ranks, &options(), |comm| {
            let copy = comm.duplicate().unwrap();
            let copy_of_it = copy.duplicate().unwrap();
            copy_of_it.barrier().unwrap();
            if comm.group().rank() == 0 {
                comm.abort().unwrap();
            }
            is_it(comm.barrier(), 0);
            let survivors = abort_and_shrink(&*copy_of_it);
            if is_last_failure {
                survivors.close().unwrap();
                copy.close().unwrap();
                comm.close().unwrap();
            } else {
                if comm.group().rank() == 0 {
                    survivors.abort().unwrap();
                }
                is_it(survivors.barrier(), 0);
                is_it(comm.close(), 0);
            }
        });
    }
}

/// A failure of the survivors that nobody has survived is an error of every `close`.
pub fn closing_tells_a_later_failure(backend: &dyn Backend) {
    for ranks in backend.among(&[1, 2]) {
        run(backend, ranks, &options(), |comm| {
            let survivors = abort_and_shrink(comm);
            if comm.group().rank() == 0 {
                survivors.abort().unwrap();
            }
            is_it(survivors.barrier(), 0);
            is_it(comm.close(), 0);
        });
    }
}

/// What would be a call of a revoked communicator gets the cause, and closing it does, too. The survivors may agree.
pub fn nothing_starts_afterwards(backend: &dyn Backend) {
    for ranks in backend.among(&[1, 2]) {
        run(backend, ranks, &options(), |comm| {
            if comm.group().rank() == 0 {
                comm.abort().unwrap();
            }
            is_it(comm.barrier(), 0);
            is_it(comm.barrier_async().into_work().wait(), 0);
            is_it(comm.send(&[1u8], 0, 1), 0);
            is_it(comm.recv_async(vec![0u8], Peer::Any, 1).into_work().wait(), 0);
            is_it(comm.duplicate(), 0);
            is_it(comm.subgroup(&[0]), 0);
            is_it(comm.scope(super::scopes::parent("late", 8), &CallOptions::new()), 0);
            assert!(comm.agree(true).unwrap());
            is_it(comm.close(), 0);
            comm.close().unwrap();
        });
    }
}
