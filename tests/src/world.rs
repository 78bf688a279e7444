//! Runs a function on all ranks of a world at once.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use unisono_communicator::{
    Algorithm, Call, CallOptions, Communicator, Error, Executor, Group, GroupOptions, Life, Outcome,
    OwnedCall, ParentCall, Probed, Result, Scope, Shrunk, Ticket, Trust, Work,
};
use unisono_engine::EngineOptions;

use crate::backend::{Backend, Job, MakeGroup};
use crate::calls_made::{CallsMade, Door};
use crate::watchdog::Seat;

/// Settings of a test: a deadline that a test reaches only when something is wrong, long before its watchdog.
pub fn options() -> EngineOptions {
    EngineOptions { timeout: Duration::from_secs(60), ..EngineOptions::default() }
}

/// Runs `body` on every rank of a new world, each on its own thread, and gives the results in rank order.
///
/// # Panics
/// When `body` does on some rank; the others are revoked, so that none of them waits for it.
pub fn run<R: Send>(
    backend: &dyn Backend,
    ranks: u32,
    options: &EngineOptions,
    body: impl Fn(&dyn Communicator) -> R + Sync,
) -> Vec<R> {
    run_with_groups(backend, ranks, options, |comm, _| body(comm))
}

/// [`run`], with what makes groups of some of the ranks.
///
/// # Panics
/// As [`run`].
pub fn run_with_groups<R: Send>(
    backend: &dyn Backend,
    ranks: u32,
    options: &EngineOptions,
    body: impl Fn(&dyn Communicator, &dyn MakeGroup) -> R + Sync,
) -> Vec<R> {
    run_job(&*backend.open(ranks, options), backend.name(), ranks, body)
}

/// [`run_with_groups`] in a world that was opened before, of a backend with this name.
///
/// # Panics
/// As [`run`].
pub fn run_job<R: Send>(
    job: &dyn Job,
    name: &str,
    ranks: u32,
    body: impl Fn(&dyn Communicator, &dyn MakeGroup) -> R + Sync,
) -> Vec<R> {
    let (body, has_failed) = (&body, &AtomicBool::new(false));
    // A rank that has failed stays in sight: others may wait for it in the test itself, and the watchdog ends them.
    let seats: Vec<_> = (0..ranks).map(|rank| Seat::take(format!("{name} rank {rank} of {ranks}"))).collect();
    let seats = &seats;
    let made = Arc::new(CallsMade::new(name));
    let rank_thread = &|rank: u32| {
        let (seat, made) = (seats[rank as usize].clone(), made.clone());
        let member = job.join(rank).unwrap();
        let watched = Watched { inner: member.communicator.clone(), seat, made };
        let result = catch_unwind(AssertUnwindSafe(|| body(&watched, &*member.groups)));
        if result.is_err() {
            let is_first = !has_failed.swap(true, Ordering::SeqCst);
            if is_first {
                eprintln!("the first failure was on {name} rank {rank} of {ranks}");
            }
            let _ = Communicator::revoke(
                &watched,
                Error::invalid("test", format!("rank {rank} has failed its test")),
            );
        }
        let end = result.as_ref().err().map(|panic| format!("has failed: {}", panic_text(&**panic)));
        watched.seat.note(end.unwrap_or_else(|| "has ended".to_owned()));
        drop(watched);
        drop(member);
        result
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let spawn = |rank| {
            let thread = std::thread::Builder::new().name(format!("rank {rank}"));
            thread.spawn_scoped(scope, move || rank_thread(rank)).unwrap()
        };
        let threads: Vec<_> = (0..ranks).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().and_then(|result| result)).collect()
    });
    results.into_iter().map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect()
}

/// The text of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// Runs `body` on worlds of each of these sizes, and closes them in good order.
pub fn run_each(backend: &dyn Backend, rank_counts: &[u32], body: impl Fn(&dyn Communicator) + Sync) {
    for ranks in backend.among(rank_counts) {
        run(backend, ranks, &options(), |comm| {
            body(comm);
            comm.close().unwrap();
        });
    }
}

/// A communicator that says what it is doing, for the watchdog, and counts its calls.
pub struct Watched {
    inner: Arc<dyn Communicator>,
    seat: Arc<Seat>,
    made: Arc<CallsMade>,
}

impl Watched {
    fn noted<R>(&self, doing: String, action: impl FnOnce() -> R) -> R {
        self.seat.note(format!("in {doing}"));
        let result = action();
        self.seat.note(format!("after {doing}"));
        result
    }

    fn derived(&self, inner: Arc<dyn Communicator>) -> Arc<dyn Communicator> {
        Arc::new(Watched { inner, seat: self.seat.clone(), made: self.made.clone() })
    }
}

impl Executor for Watched {
    fn group(&self) -> &Group {
        self.inner.group()
    }

    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
        let kind = self.made.kind(Door::Blocking, call);
        let outcome = self.noted(call.to_string(), || self.inner.execute(call))?;
        self.made.add(kind);
        Ok(outcome)
    }

    fn submit(&self, mut call: OwnedCall) -> Work {
        self.made.add(self.made.kind_of_owned(&mut call));
        self.noted(format!("submit of {call}"), || self.inner.submit(call))
    }

    fn life(&self) -> &dyn Life {
        self
    }
}

impl Life for Watched {
    fn under(&self) -> Option<&dyn Life> {
        Some(self.inner.life())
    }

    fn resolve_within(&self, ticket: Ticket, timeout: Duration) -> Result<Option<Outcome>> {
        self.noted(format!("resolve of {ticket}"), || self.inner.resolve_within(ticket, timeout))
    }

    fn register(&self, algorithm: Arc<Algorithm>, trust: Trust) -> Result<()> {
        self.noted(format!("register({algorithm:?})"), || self.inner.register(algorithm.clone(), trust))
    }

    fn subgroup_with(&self, ranks: &[u32], options: &GroupOptions) -> Result<Option<Arc<dyn Communicator>>> {
        let make = || self.inner.subgroup_with(ranks, options);
        let subgroup = self.noted(format!("subgroup({ranks:?})"), make)?;
        Ok(subgroup.map(|inner| self.derived(inner)))
    }

    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        let inner = self.noted("duplicate".to_owned(), || self.inner.duplicate())?;
        Ok(self.derived(inner))
    }

    fn shrink(&self) -> Result<Shrunk> {
        let shrunk = self.noted("shrink".to_owned(), || self.inner.shrink())?;
        Ok(Shrunk { communicator: self.derived(shrunk.communicator), ..shrunk })
    }

    fn monitored_barrier(&self, timeout: Duration) -> Result<()> {
        self.noted("monitored_barrier".to_owned(), || self.inner.monitored_barrier(timeout))
    }

    fn agree(&self, flag: bool) -> Result<bool> {
        self.noted("agree".to_owned(), || self.inner.agree(flag))
    }

    fn scope(&self, parent: ParentCall, options: &CallOptions) -> Result<Scope> {
        self.noted(format!("scope of {parent}"), || self.inner.scope(parent, options))
    }

    fn exchange(&self, calls: &mut [Call<'_>], results: &mut [Option<Result<Outcome>>]) -> Result<()> {
        let kinds: Vec<_> = calls.iter().map(|call| self.made.kind(Door::Batch, call)).collect();
        self.noted(format!("a batch of {}", calls.len()), || self.inner.life().exchange(calls, results))?;
        kinds.into_iter().for_each(|kind| self.made.add(kind));
        Ok(())
    }

    fn probe(&self, call: &mut Call<'_>, waits: bool) -> Result<Option<Probed>> {
        self.noted(format!("a probe by {call}"), || self.inner.life().probe(call, waits))
    }

    fn close(&self) -> Result<()> {
        self.noted("close".to_owned(), || self.inner.close())
    }
}
