//! Calls made of calls: against other threads, against plain calls of other ranks, and how they end.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{
    CallOptions, Collective, Communicator, DType, Descriptor, Error, ParentCall, Peer, ReduceOp, Result,
    Scope,
};

use crate::backend::Backend;
use crate::suite::mismatch::first_cause;
use crate::world::{options, run, run_each};

const RANKS: [u32; 3] = [1, 2, 3];

#[track_caller]
pub(super) fn parent(name: &str, count: u64) -> ParentCall {
    let op = Some(ReduceOp::Sum);
    ParentCall::new(name, Descriptor { op, ..Descriptor::new(Collective::AllReduce, DType::F32, count) })
}

#[track_caller]
pub(super) fn open(comm: &dyn Communicator, name: &str) -> Scope {
    comm.scope(parent(name, 8), &CallOptions::new()).unwrap()
}

fn sum(comm: &dyn Communicator) -> Result<()> {
    let mut values = [comm.group().rank() as i32; 8];
    comm.all_reduce(&mut values, ReduceOp::Sum)?;
    let ranks = comm.group().size() as i32;
    assert_eq!(values, [ranks * (ranks - 1) / 2; 8]);
    Ok(())
}

/// A scope in place of the two calls that it is made of.
fn sum_twice(comm: &dyn Communicator, parent: ParentCall) -> Result<()> {
    let scope = comm.scope(parent, &CallOptions::new())?;
    sum(&scope)?;
    sum(&scope)
}

/// Unlabelled calls are refused while a scope is open, labelled ones wait.
pub fn threads_wait_or_are_refused(backend: &dyn Backend) {
    run_each(backend, &RANKS, |comm| {
        let labelled = comm.with(CallOptions::new().label("late"));
        let is_refused = |call: &dyn Fn() -> Result<()>| {
            let refused = call();
            assert!(matches!(refused, Err(Error::ConcurrentUse { .. })), "{refused:?}");
        };
        std::thread::scope(|threads| {
            let before = comm.all_reduce_async(vec![1i32; 8], ReduceOp::Sum);
            let scope = open(comm, "whole");
            assert!(before.is_done(), "what was submitted before has ended");
            let late = threads.spawn(|| labelled.barrier());
            sum(&scope).unwrap();
            let unlabelled = || {
                is_refused(&|| comm.barrier());
                is_refused(&|| comm.scope(parent("second", 8), &CallOptions::new()).map(drop));
            };
            threads.spawn(unlabelled).join().unwrap();
            sum(&scope).unwrap();
            assert_eq!(scope.numbers(), 1..3, "the labelled call waits");
            drop(scope);
            late.join().unwrap().unwrap();
        });
        sum(comm).unwrap();
    });
}

/// Every rank names what both calls are parts of.
pub fn parts_and_plain_calls_are_a_mismatch(backend: &dyn Backend) {
    type Odd = fn(&dyn Communicator) -> Result<()>;
    let cases: [(Odd, &str); 3] = [
        (sum, "a plain call"),
        (|comm| sum_twice(comm, parent("other", 8)), "part of other(8 x f32, sum)"),
        (|comm| sum_twice(comm, parent("usual", 9)), "part of usual(9 x f32, sum)"),
    ];
    for ranks in backend.among(&[2, 3, 5]) {
        for (odd, named) in cases {
            let errors = run(backend, ranks, &options(), |comm| {
                let is_odd = comm.group().rank() == ranks - 1;
                first_cause(comm, |comm| if is_odd { odd(comm) } else { sum_twice(comm, parent("usual", 8)) })
            });
            for (rank, error) in errors.iter().enumerate() {
                let Error::Mismatch { difference, .. } = error else { panic!("rank {rank}: {error}") };
                let is_both =
                    difference.contains("part of usual(8 x f32, sum)") && difference.contains(named);
                assert!(is_both, "rank {rank} of {ranks}: {error}");
                assert!(error.to_string().contains(" of usual(8 x f32, sum)"), "{error}");
            }
        }
    }
}

/// The second call gets what the first and the time between them have left.
pub fn one_deadline_for_all_calls(backend: &dyn Backend) {
    let (whole, between) = (Duration::from_secs(2), Duration::from_millis(1500));
    let done = Barrier::new(2);
    let errors = run(backend, 2, &options(), |comm| {
        let started = Instant::now();
        let scope = comm.scope(parent("late", 8), &CallOptions::new().timeout(whole)).unwrap();
        sum(&scope).unwrap();
        if comm.group().rank() == 1 {
            done.wait();
            // Rank 0 may have sent its part before its time was over, and then the first of these gets all it needs.
            return (0..3).find_map(|_| sum(&scope).err()).unwrap();
        }
        std::thread::sleep(between);
        let error = sum(&scope.with(CallOptions::new().timeout(Duration::from_secs(60)))).unwrap_err();
        assert!(started.elapsed() >= whole);
        done.wait();
        error
    });
    for error in errors {
        let Error::Timeout { waited, call, not_arrived, reported_by } = &error else { panic!("{error}") };
        assert!(*waited < between, "{error}");
        // Rank 1, whose time is over too, may call before it has heard of rank 0's failure.
        assert_eq!((call.number, not_arrived[0].rank.get()), (1, 1 - reported_by.get()), "{error}");
        assert!(error.to_string().contains("of late(8 x f32, sum)"), "{error}");
    }
}

/// A result that is not good is the caller's error, and the communicator goes on.
pub fn numbers_and_errors_that_revoke_nothing(backend: &dyn Backend) {
    fn refusing(comm: &dyn Communicator) -> Result<()> {
        let scope = open(comm, "refusing");
        assert_eq!(scope.numbers(), 2..2);
        sum(&scope)?;
        scope.barrier()?;
        assert_eq!(scope.numbers(), 2..4);
        Err(Error::invalid("input", "it is not finite"))
    }
    run_each(backend, &RANKS, |comm| {
        sum(comm).unwrap();
        sum(comm).unwrap();
        let error = refusing(comm).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        sum(comm).unwrap();
        let next = open(comm, "next").numbers();
        assert_eq!(next, 5..5);
        assert_eq!(comm.shrink().unwrap().last_common_call, 5);
    });
}

/// Between two calls, on a thread that has the scope to itself.
pub fn a_panic_gives_the_turn_back(backend: &dyn Backend) {
    run_each(backend, &RANKS, |comm| {
        let scope = open(comm, "fragile");
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            sum(&scope).unwrap();
            let _scope = scope;
            resume_unwind(Box::new("a panic between two calls"));
        }));
        assert!(panicked.is_err());
        sum(comm).unwrap();
    });
}

/// It begins on one thread and ends on another.
pub fn moved_to_another_thread(backend: &dyn Backend) {
    run_each(backend, &RANKS, |comm| {
        let scope = open(comm, "moved");
        sum(&scope).unwrap();
        let elsewhere = std::thread::spawn(move || {
            sum(&scope).unwrap();
            scope.numbers()
        });
        assert_eq!(elsewhere.join().unwrap(), 0..2);
        sum(comm).unwrap();
    });
}

/// The first cause, from the scope and after it, and for a thread that waits for its turn.
pub fn failures_within(backend: &dyn Backend) {
    for ranks in backend.among(&RANKS) {
        run(backend, ranks, &options(), |comm| {
            let is_it = |result: Result<()>| {
                let error = result.unwrap_err();
                assert!(matches!(&error, Error::Revoked { by, .. } if by.get() == ranks - 1), "{error}");
            };
            let labelled = comm.with(CallOptions::new().label("waiting"));
            std::thread::scope(|threads| {
                let scope = open(comm, "failing");
                let waiting = threads.spawn(|| labelled.barrier());
                sum(&scope).unwrap();
                // Who has done this knows that all have done the one before. It may come too late for a slow rank.
                match sum(&scope) {
                    Ok(()) if comm.group().rank() == ranks - 1 => scope.revoke(Error::closed()).unwrap(),
                    Ok(()) => {}
                    Err(late) => is_it(Err(late)),
                }
                // The scope is still open.
                is_it(waiting.join().unwrap());
                is_it(sum(&scope));
            });
            is_it(sum(comm));
        });
    }
}

/// They may end after the scope; what comes next stays behind them.
pub fn asynchronous_parts(backend: &dyn Backend) {
    run_each(backend, &RANKS, |comm| {
        let scope = open(comm, "begun");
        let works: Vec<_> = (0..4).map(|_| scope.all_reduce_async(vec![1i32; 1000], ReduceOp::Sum)).collect();
        drop(scope);
        sum(comm).unwrap();
        for work in works {
            assert_eq!(work.wait().unwrap(), vec![comm.group().size() as i32; 1000]);
        }
    });
}

/// The algorithm that a scope was opened with is forced on its calls.
pub fn options_are_those_of_its_calls(backend: &dyn Backend) {
    run_each(backend, &RANKS, |comm| {
        let forced = CallOptions::new().algorithm("no such");
        let scope = comm.scope(parent("forced", 8), &forced).unwrap();
        assert!(
            sum(&scope).is_err_and(|error| error.is_before_start()),
            "its options are those of its calls"
        );
    });
}

/// The whole job goes on meanwhile.
pub fn of_a_subgroup(backend: &dyn Backend) {
    run_each(backend, &[2, 3, 5], |comm| {
        let members = [comm.group().size() - 1, 0];
        let part = comm.subgroup(&members).unwrap();
        let scope = part.as_ref().map(|part| open(&**part, "partial"));
        sum(comm).unwrap();
        if let Some(scope) = &scope {
            sum(scope).unwrap();
        }
        sum(comm).unwrap();
    });
}

/// A call past the scope of its own thread would wait for itself. It is refused at once, whatever its form is.
pub fn a_call_past_the_scope_of_its_thread(backend: &dyn Backend) {
    run_each(backend, &[1, 2], |comm| {
        let other = comm.duplicate().unwrap();
        let [labelled, queued] = [CallOptions::new().label("past"), CallOptions::new().queued()];
        let (scope, line) = (open(comm, "outer"), line!());
        let past: [&dyn Fn() -> Result<()>; 6] = [
            &|| comm.barrier(),
            &|| comm.with(labelled).barrier(),
            &|| comm.with(queued).barrier(),
            &|| comm.with(labelled).all_reduce_async(vec![1i32; 8], ReduceOp::Sum).wait().map(drop),
            &|| comm.scope(parent("second", 8), &labelled).map(drop),
            &|| comm.close(),
        ];
        for (form, call) in past.iter().enumerate() {
            let started = Instant::now();
            let error = call().unwrap_err();
            assert!(started.elapsed() < options().timeout / 2, "form {form}: {error}");
            assert!(
                matches!(error, Error::InvalidArgument { argument: "scope", .. }),
                "form {form}: {error}"
            );
            let named = format!("the scope of outer(8 x f32, sum) at {}:{line}", file!());
            assert!(error.to_string().contains(&named), "form {form}: {error}");
        }
        // Another communicator has another order.
        sum(&other.with(labelled)).unwrap();
        sum(&scope).unwrap();
        assert_eq!(scope.numbers(), 0..1, "a refused call takes no number");
        drop(scope);
        sum(&comm.with(labelled)).unwrap();
    });
}

/// Within a scope, labelled calls of its own thread wait for those of another, as elsewhere.
pub fn threads_take_turns_within(backend: &dyn Backend) {
    run_each(backend, &RANKS, |comm| {
        let scope = open(comm, "shared");
        let labelled = scope.with(CallOptions::new().label("part"));
        let call = || (0..50).for_each(|_| sum(&labelled).unwrap());
        std::thread::scope(|threads| {
            threads.spawn(call);
            call();
        });
        assert_eq!(scope.numbers(), 0..100);
    });
}

/// A thread that has handed its scope over waits until the other thread ends the scope.
pub fn handed_to_another_thread(backend: &dyn Backend) {
    run_each(backend, &RANKS, |comm| {
        let scope = open(comm, "handed");
        sum(&scope).unwrap();
        scope.hand_over();
        let elsewhere = std::thread::spawn(move || {
            sum(&scope).unwrap();
            scope.numbers()
        });
        sum(&comm.with(CallOptions::new().label("behind"))).unwrap();
        assert_eq!(elsewhere.join().unwrap(), 0..2);
        sum(comm).unwrap();
    });
}

/// A call or a scope that waits in vain behind the scope of another thread names that scope, and the line that has
/// opened it.
pub fn a_call_behind_a_scope_that_stays_open(backend: &dyn Backend) {
    type Behind = fn(&dyn Communicator) -> Result<()>;
    let waits: [Behind; 2] = [sum, |comm| comm.scope(parent("inner", 8), &CallOptions::new()).map(drop)];
    for wait in waits {
        let errors = run(backend, backend.ranks_max().min(2), &options(), |comm| {
            let (_scope, line) = (open(comm, "outer"), line!());
            let late = comm.with(CallOptions::new().label("behind").timeout(Duration::from_millis(300)));
            let behind = || wait(&late).unwrap_err();
            (std::thread::scope(|threads| threads.spawn(behind).join().unwrap()), line)
        });
        for (error, line) in errors {
            let named = format!("is within the scope of outer(8 x f32, sum) at {}:{line}, which", file!());
            assert!(error.to_string().contains(&named), "{error}");
        }
    }
}

/// Each refusal leaves the communicator as it was.
pub fn what_a_scope_refuses(backend: &dyn Backend) {
    run_each(backend, &[1, 2], |comm| {
        for bad in ["", "a name of more than thirty-two bytes"] {
            let error = comm.scope(parent(bad, 8), &CallOptions::new()).err().unwrap();
            assert!(matches!(error, Error::InvalidArgument { argument: "name", .. }), "{error}");
        }
        let long = CallOptions::new().label("a label of more than thirty-two bytes");
        let error = comm.scope(parent("labelled", 8), &long).err().unwrap();
        assert!(matches!(error, Error::InvalidArgument { argument: "label", .. }), "{error}");
        let scope = open(comm, "outer");
        let nested = scope.scope(parent("inner", 8), &CallOptions::new()).map(drop);
        for refused in [nested, scope.close()] {
            assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
        }
        sum(&scope).unwrap();
    });
}

/// A thread that closes the communicator waits until the scope of another has ended.
pub fn closing_waits_for_a_scope(backend: &dyn Backend) {
    run_each(backend, &[1, 2], |comm| {
        std::thread::scope(|threads| {
            let scope = open(comm, "unfinished");
            let closing = threads.spawn(|| comm.close());
            sum(&scope).unwrap();
            sum(&scope).unwrap();
            drop(scope);
            closing.join().unwrap().unwrap();
        });
        assert!(matches!(sum(comm), Err(Error::Closed { .. })));
    });
}

/// Messages have no order, so those past the scope go on.
pub fn messages_pass_a_scope(backend: &dyn Backend) {
    run_each(backend, &[1, 2], |comm| {
        let scope = open(comm, "open");
        let next = (comm.group().rank() + 1) % comm.group().size();
        let (past, within) = (
            comm.send_async(vec![1u8], next, 1).into_work(),
            scope.send_async(vec![2u8], next, 2).into_work(),
        );
        let mut received = [0u8];
        scope.recv(&mut received, Peer::Any, 1).unwrap();
        assert_eq!(received, [1]);
        comm.recv(&mut received, Peer::Any, 2).unwrap();
        assert_eq!(received, [2]);
        past.wait().unwrap();
        within.wait().unwrap();
        assert_eq!(scope.numbers().count(), 0, "a message takes no number");
    });
}
