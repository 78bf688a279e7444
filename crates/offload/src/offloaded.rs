//! The communicator: collectives by the library, everything else by the communicator beneath.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_backend::{Companion, Entered, Executor, ScopeTurn, Survivors};
use unisono_communicator::{
    Algorithm, Call, CallOptions, Communicator, CostModel, Counts, Descriptor, Error, Group, MemoryKind,
    Outcome, OwnedCall, ParentCall, Result, Scope, Shrunk, Ticket, Trust, Work, check_request,
    deadline_after,
};

use crate::capabilities::Capabilities;
use crate::open::open;
use crate::scheduled::Means;
use crate::scope::OffloadedScope;
use crate::thread::{ScheduledExecutor, VendorShared, VendorThread, stuck};
use crate::vendor::Vendor;
use crate::watch::Inline;

/// How a vendor's communicator is made.
#[derive(Clone, Copy, Debug)]
pub struct OffloadOptions {
    /// How long making it, or one that is derived from it, may take.
    pub init_timeout: Duration,
    /// Whether blocking calls without a deadline of their own have that of the communicator. Else they run on their
    /// caller's thread, faster, and one that hangs in the library cannot be ended. The same on every rank.
    pub deadlines: bool,
    /// What is done with memory of the host by a library that works on a device.
    pub host_memory: HostMemory,
}

impl OffloadOptions {
    /// With these, and without a way for memory of the host to a device.
    pub const fn new(init_timeout: Duration, deadlines: bool) -> OffloadOptions {
        OffloadOptions { init_timeout, deadlines, host_memory: HostMemory::Refused }
    }
}

/// What is done with memory of the host by a library that works on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostMemory {
    /// Calls on it are refused.
    Refused,
    /// It is copied to the device and back.
    Staged,
    /// Calls on it are the companion's.
    Companion,
}

/// Which way a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// The companion does it: a message, or a call on memory of the host that is none of the library's.
    Companion,
    /// Onto the stream that it names.
    Stream,
    /// Through the library on memory of the host, directly or by way of its device.
    Host,
}

/// A communicator whose collectives a vendor's library does. Beneath it is another one of the same ranks, its
/// companion, which gives calls their order and numbers, compares them, hears of failures, and does sends and
/// receives.
///
/// A blocking call runs on its caller's thread. One with a deadline (its own, that of its scope, or
/// [`OffloadOptions::deadlines`]), and every asynchronous one, first meets the other ranks: a mismatch, or a rank
/// that is dead or late, ends it as it ends a call of the companion's. Then a thread of the communicator runs it, on
/// memory that is a copy of the caller's unless it has moved in. Blocking calls without a deadline and the others do
/// not go together: all ranks make a call in the same way. Calls that have not met, by two threads on two communicators
/// of one library, need the same order on all ranks. On a device whose library serves one communicator at a time
/// ([`Device::turn`](crate::Device::turn)) any order will do: a call waits for its turn while others are enqueued, at
/// most until its deadline.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use unisono_offload::{OffloadOptions, Offloaded};
/// use unisono_communicator::{Collectives, Communicator, ReduceOp};
/// use unisono_tests::double::{LibraryDouble, LibraryRoom};
/// use unisono_tests::companions;
///
/// // Two ranks as threads, and a test double in place of a library.
/// let room = LibraryRoom::new();
/// companions(2, |companion| {
///     let options = OffloadOptions::new(Duration::from_secs(60), false);
///     let world = Offloaded::open(companion, Ok(Arc::new(LibraryDouble::new(&room))), &options).unwrap();
///     let mut sum = [world.group().rank() + 1];
///     world.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
///     assert_eq!(sum, [3]);
/// });
/// ```
pub struct Offloaded<V: Vendor> {
    pub(crate) shared: Arc<OffloadedShared<V>>,
}

/// What a communicator and its scopes share.
pub(crate) struct OffloadedShared<V: Vendor> {
    pub(crate) companion: Arc<dyn Companion>,
    pub(crate) thread: Arc<VendorThread<V>>,
    executor: Arc<dyn Executor>,
    options: OffloadOptions,
}

impl<V: Vendor> Offloaded<V> {
    /// The library's communicator of the ranks of `companion`, with the library of this rank, or why there is none.
    /// Collective.
    ///
    /// # Errors
    /// The same on every rank: that of `library` on the first rank that has none, as the cause of an
    /// [`Error::Revoked`]; [`Error::Unsupported`] when ranks have several versions, or a call hangs in the library of
    /// one; [`Error::Vendor`] of the library; [`Error::Timeout`] and errors of the companion.
    pub fn open(
        companion: Arc<dyn Companion>,
        library: Result<Arc<V>>,
        options: &OffloadOptions,
    ) -> Result<Arc<Offloaded<V>>> {
        let thread = open(companion.clone(), library, options.init_timeout)?;
        let (executor, options) = (thread.clone(), *options);
        let shared = OffloadedShared { companion, thread, executor, options };
        Ok(Arc::new(Offloaded { shared: Arc::new(shared) }))
    }

    /// What the library can do on every rank.
    pub fn capabilities(&self) -> &Capabilities {
        &self.shared.thread.shared.capabilities
    }
}

impl<V: Vendor> OffloadedShared<V> {
    /// A communicator of the library's on top of another companion.
    fn on(&self, companion: Arc<dyn Companion>) -> Result<Arc<dyn Communicator>> {
        Ok(Offloaded::open(companion, Ok(self.thread.shared.vendor.clone()), &self.options)?)
    }

    pub(crate) fn subgroup(&self, ranks: &[u32]) -> Result<Option<Arc<dyn Communicator>>> {
        self.companion.companion_of(ranks)?.map(|companion| self.on(companion)).transpose()
    }

    pub(crate) fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        self.on(self.companion.duplicate_companion()?)
    }

    pub(crate) fn shrink(&self) -> Result<Shrunk> {
        let Survivors { companion, new_ranks, last_common_call } = self.companion.survivors()?;
        Ok(Shrunk { communicator: self.on(companion)?, new_ranks, last_common_call })
    }

    /// Which way a call goes, and by what means. Refuses what the library cannot do or reach, before the call has a
    /// number.
    fn route(
        &self,
        descriptor: &Descriptor,
        counts: &Counts,
        options: &CallOptions,
        memory: MemoryKind,
    ) -> Result<(Route, Means)> {
        let has_device = self.thread.shared.vendor.device().is_some();
        let is_message = descriptor.operation.collective().is_none();
        let route = match (memory, self.options.host_memory) {
            // Messages have tags, which no library has.
            (MemoryKind::Host, _) if is_message => return Ok((Route::Companion, Means::Library)),
            (MemoryKind::Device, _) if has_device && !is_message => Route::Stream,
            (MemoryKind::Device, _) => return Err(Error::no_device(V::BACKEND)),
            (MemoryKind::Host, HostMemory::Companion) if has_device => {
                return Ok((Route::Companion, Means::Library));
            }
            (MemoryKind::Host, HostMemory::Refused) if has_device => {
                let what = "memory of the host".to_owned();
                let instead = Some("memory of the device, or UNISONO_HOST_MEMORY=staged or tcp".to_owned());
                return Err(Error::Unsupported { what, backend: V::BACKEND, instead });
            }
            (MemoryKind::Host, HostMemory::Refused | HostMemory::Staged | HostMemory::Companion) => {
                Route::Host
            }
        };
        let capabilities = &self.thread.shared.capabilities;
        capabilities.check_wishes(V::BACKEND, descriptor, options)?;
        let Some(schedule) = self.companion.schedule(descriptor, counts, options)? else {
            capabilities.check(V::BACKEND, descriptor)?;
            return Ok((route, Means::Library));
        };
        capabilities.check_scheduled(V::BACKEND, descriptor)?;
        Ok((route, Means::schedule::<V>(schedule)?))
    }

    /// Runs a call to its end, within `scope` if there is one; `has_deadline` says whether the scope has one.
    pub(crate) fn execute(
        &self,
        call: &mut Call<'_>,
        scope: Option<&ScopeTurn>,
        has_deadline: bool,
    ) -> Result<Outcome> {
        self.companion.gate().admit(call)?;
        let options = scope.map_or(call.options, |scope| scope.options(&call.options));
        let (route, means) = self.route(&call.descriptor, &call.counts, &options, call.memory())?;
        let is_met = has_deadline || self.options.deadlines || call.options.timeout.is_some();
        match route {
            Route::Companion => self.companion.execute_by(None, call, scope),
            Route::Stream => self.issue(call, scope, (&options, &means)),
            Route::Host if is_met => self.companion.execute_by(Some(&self.executor(means)), call, scope),
            Route::Host => self.run_inline(call, scope, &means),
        }
    }

    /// What runs a call whose ranks have met.
    fn executor(&self, means: Means) -> Arc<dyn Executor> {
        match means {
            Means::Library => self.executor.clone(),
            Means::Schedule { .. } => Arc::new(ScheduledExecutor { thread: self.thread.clone(), means }),
        }
    }

    /// On this thread, to its end.
    fn run_inline(&self, call: &mut Call<'_>, scope: Option<&ScopeTurn>, means: &Means) -> Result<Outcome> {
        let run = |thread: &VendorShared<V>, call: &mut Call<'_>, number| {
            let named = (&call.descriptor, Some(number));
            thread.run_call(named, &call.counts, &mut call.buffers, (means, None))
        };
        let ((), entered) = self.inline(call, scope, means, None, run)?;
        self.companion.gate().board().progress().leave(entered.number);
        Ok(Outcome::done(call.buffers.bytes_max(), means.named::<V>().0))
    }

    /// Makes a call on this thread, when it is its turn; `body` has its number. It may be in the library for `timeout`.
    pub(crate) fn inline<'a, R>(
        &'a self,
        call: &mut Call<'_>,
        scope: Option<&'a ScopeTurn>,
        means: &Means,
        timeout: Option<Duration>,
        body: impl FnOnce(&VendorShared<V>, &mut Call<'_>, u64) -> Result<R>,
    ) -> Result<(R, Entered<'a>)> {
        let (thread, gate) = (&*self.thread.shared, self.companion.gate());
        let entered = self.companion.enter(means.named_inline::<V>(), call, scope)?;
        let is_revoked = || gate.board().first_cause().is_revoked();
        let pass = match thread.vendor.turn().map(|turn| turn.take(None, is_revoked)) {
            Some(None) => {
                gate.check_revoked()?;
                return Err(self.companion.settle(stuck::<V>()));
            }
            Some(pass) => pass,
            None => None,
        };
        let visit = || body(thread, call, entered.number);
        let inline = Inline { number: entered.number, timeout };
        let result = thread.inline.during(inline, thread.vendor.turn(), is_revoked, visit);
        drop(pass);
        let result = result.map_err(|error| self.companion.settle(error))?;
        Ok((result, entered))
    }

    /// Starts a call, within `scope` if there is one.
    pub(crate) fn submit(&self, call: OwnedCall, scope: Option<&ScopeTurn>) -> Work {
        let options = scope.map_or(call.options, |scope| scope.options(&call.options));
        let admitted = self.companion.gate().admit(&call);
        match admitted.and_then(|()| self.route(&call.descriptor, &call.counts, &options, call.memory())) {
            Ok((Route::Companion, _)) => self.companion.submit_by(None, call, scope),
            Ok((Route::Stream, means)) => self.submit_on_stream(call, scope, (&options, &means)),
            Ok((Route::Host, means)) => self.companion.submit_by(Some(&self.executor(means)), call, scope),
            Err(error) => Work::refused(call, error),
        }
    }

    pub(crate) fn supports(
        &self,
        descriptor: &Descriptor,
        options: &CallOptions,
        memory: MemoryKind,
    ) -> Result<()> {
        self.companion.gate().check_caller(descriptor)?;
        check_request(descriptor, options, self.companion.group())?;
        match self.route(descriptor, &Counts::Even, options, memory)?.0 {
            Route::Companion => self.companion.supports(descriptor, options, memory),
            Route::Stream | Route::Host => Ok(()),
        }
    }
}

impl<V: Vendor> Communicator for Offloaded<V> {
    fn group(&self) -> &Group {
        self.shared.companion.group()
    }

    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
        self.shared.execute(call, None, false)
    }

    fn submit(&self, call: OwnedCall) -> Work {
        self.shared.submit(call, None)
    }

    fn backend(&self) -> &'static str {
        V::BACKEND
    }

    fn cost_model(&self) -> CostModel {
        self.shared.companion.cost_model()
    }

    fn companion(&self) -> Option<Arc<dyn Communicator>> {
        Some(self.shared.companion.clone())
    }

    fn supports(&self, descriptor: &Descriptor, options: &CallOptions, memory: MemoryKind) -> Result<()> {
        self.shared.supports(descriptor, options, memory)
    }

    fn register(&self, algorithm: Arc<Algorithm>, trust: Trust) -> Result<()> {
        self.capabilities().check_schedules(V::BACKEND, "algorithms from outside")?;
        self.shared.companion.register(algorithm, trust)
    }

    fn subgroup(&self, ranks: &[u32]) -> Result<Option<Arc<dyn Communicator>>> {
        self.shared.subgroup(ranks)
    }

    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        self.shared.duplicate()
    }

    fn shrink(&self) -> Result<Shrunk> {
        self.shared.shrink()
    }

    fn agree(&self, flag: bool) -> Result<bool> {
        self.shared.companion.agree(flag)
    }

    fn scope(&self, parent: ParentCall, options: &CallOptions) -> Result<Box<dyn Scope>> {
        let turn = self.shared.companion.open_scope(parent, options)?;
        Ok(Box::new(OffloadedScope::new(self.shared.clone(), turn, options.timeout.is_some())))
    }

    fn revoke(&self, cause: Error) -> Result<()> {
        self.shared.companion.revoke(cause)
    }

    fn abort(&self) -> Result<()> {
        self.shared.companion.abort()
    }

    fn resolve_within(&self, ticket: Ticket, timeout: Duration) -> Result<Option<Outcome>> {
        self.shared.thread.shared.resolve_within(ticket, timeout)
    }

    fn close(&self) -> Result<()> {
        // Every call on a stream has a deadline of its own.
        self.shared.thread.shared.drain(deadline_after(Instant::now(), Duration::MAX));
        self.shared.companion.close()
    }
}
