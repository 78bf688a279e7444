//! The communicator: collectives by the library, everything else by the communicator beneath.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use unisono_backend::{Companion, Course, Entered, Survivors};
use unisono_communicator::{
    Algorithm, Call, CallBody, CallOptions, Collective, Communicator, CostModel, Counts, Descriptor, Error,
    Executor, Group, GroupBackend, GroupOptions, Life, MemoryKind, Observations, Outcome, OwnedCall,
    ParentCall, PreparedCall, Probed, Result, Scope, ScopeId, Shrunk, Ticket, Trust, Work, check_request,
    deadline_after,
};

use crate::body::VendorBody;
use crate::capabilities::Capabilities;
use crate::open::open;
use crate::scheduled::Means;
use crate::thread::{VendorShared, VendorThread, stuck};
use crate::vendor::Vendor;
use crate::watch::Inline;

/// The options of a vendor's communicator.
#[derive(Clone, Copy, Debug)]
pub struct OffloadOptions {
    /// The time that its making, or the making of one derived from it, may take.
    pub init_timeout: Duration,
    /// Whether blocking calls without a deadline of their own have the deadline of the communicator. Else they run on
    /// their caller's thread. They are faster there, but a call that hangs in the library does not end. The same on
    /// every rank.
    pub deadlines: bool,
    /// The way of a library that works on a device to memory of the host.
    pub host_memory: HostMemory,
}

impl OffloadOptions {
    /// With these, and without a way for memory of the host to a device.
    pub const fn new(init_timeout: Duration, deadlines: bool) -> OffloadOptions {
        OffloadOptions { init_timeout, deadlines, host_memory: HostMemory::Refused }
    }
}

/// The way of a library that works on a device to memory of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostMemory {
    /// Calls on it are refused, but for a barrier, and for calls that say that the companion may make them
    /// ([`CallOptions::host_by_companion`]): both are the companion's.
    Refused,
    /// It is copied to the device and back.
    Staged,
    /// Calls on it are the companion's.
    Companion,
}

/// The way of a call.
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
/// A blocking call runs on its caller's thread. One with a deadline (its own, its scope's, or
/// [`OffloadOptions::deadlines`]), and every asynchronous one, first meets the other ranks: a mismatch, or a rank that
/// is dead or late, ends it as it ends a call of the companion's. Then a thread of the communicator runs it, on memory
/// that is a copy of the caller's unless it has moved in. Blocking calls without a deadline and the others do not go
/// together: all ranks make a call in the same way. Calls that have not met, by two threads on two communicators of one
/// library, need the same order on all ranks. On a device whose library serves one communicator at a time
/// ([`Device::turn`](crate::Device::turn)) any order will do: a call waits for its turn while others are enqueued, at
/// most until its deadline.
///
/// ```
/// use std::sync::{Arc, Weak};
/// use std::time::Duration;
/// use unisono_offload::{OffloadOptions, Offloaded};
/// use unisono_collectives::Collectives;
/// use unisono_communicator::{Communicator, ReduceOp};
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
    /// This value, for scopes.
    own: Weak<Offloaded<V>>,
    pub(crate) companion: Companion,
    pub(crate) thread: Arc<VendorThread<V>>,
    options: OffloadOptions,
}

/// The decisions about a call.
pub(crate) struct Dispatch {
    route: Route,
    means: Means,
    /// Its own timeout, or its scope's; else the communicator's.
    pub(crate) timeout: Duration,
    /// Whether it has one of its own, or its scope has one.
    has_deadline: bool,
}

impl<V: Vendor> Offloaded<V> {
    /// Rank, size, members.
    pub fn group(&self) -> &Group {
        self.companion.group()
    }

    /// The library's communicator of the ranks of `companion`, with the library of this rank, or why there is none.
    /// Collective.
    ///
    /// # Errors
    /// The same on every rank: the error of `library` on the first rank that has none, as the cause of an
    /// [`Error::Revoked`]; [`Error::Unsupported`] when ranks have several versions, or a call hangs in the library of
    /// one; [`Error::Vendor`] of the library; [`Error::Timeout`] and errors of the companion.
    pub fn open(
        companion: Companion,
        library: Result<Arc<V>>,
        options: &OffloadOptions,
    ) -> Result<Arc<Offloaded<V>>> {
        let thread = open(companion.clone(), library, options.init_timeout)?;
        let options = *options;
        Ok(Arc::new_cyclic(|own| Offloaded { own: own.clone(), companion, thread, options }))
    }

    /// The operations that the library can do on every rank.
    pub fn capabilities(&self) -> &Capabilities {
        &self.thread.shared.capabilities
    }

    /// A communicator of the same library with the same options, on top of another companion of this rank's job.
    ///
    /// # Errors
    /// As [`Offloaded::open`].
    pub fn over(&self, companion: Companion) -> Result<Arc<dyn Communicator>> {
        Ok(Offloaded::open(companion, Ok(self.thread.shared.vendor.clone()), &self.options)?)
    }

    /// The way of a call, and its means. Refuses a call that the library cannot do, or memory that it cannot reach,
    /// before the call has a number.
    fn route(
        &self,
        descriptor: &Descriptor,
        counts: &Counts,
        options: &CallOptions,
        memory: MemoryKind,
    ) -> Result<(Route, Means)> {
        let has_device = self.thread.shared.vendor.device().is_some();
        let is_message = descriptor.operation.collective().is_none();
        // A barrier has no memory, and other calls say that theirs is not the program's data.
        let is_barrier = descriptor.operation == Collective::Barrier.into();
        let host_memory = match self.options.host_memory {
            HostMemory::Refused if is_barrier || options.host_by_companion => HostMemory::Companion,
            as_configured => as_configured,
        };
        let route = match (memory, host_memory) {
            // Messages have tags, which no library has, so the companion makes them on memory of the host.
            (MemoryKind::Host, _) if is_message => return Ok((Route::Companion, Means::Library)),
            (MemoryKind::Device, _) if has_device && is_message => {
                self.thread.shared.capabilities.check_message(V::BACKEND, descriptor)?;
                return Ok((Route::Stream, Means::Library));
            }
            (MemoryKind::Device, _) if has_device => Route::Stream,
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

    /// The decisions about a call with these options. Refuses a call that cannot be done, before it has a number.
    pub(crate) fn dispatch(
        &self,
        scope: Option<ScopeId>,
        descriptor: &Descriptor,
        counts: &Counts,
        options: &CallOptions,
        memory: MemoryKind,
    ) -> Result<Dispatch> {
        let gate = self.companion.gate();
        let order = gate.order_of(scope)?;
        let has_deadline = order.has_deadline() || options.timeout.is_some();
        let options = order.options(options, gate.timeout());
        let (route, means) = self.route(descriptor, counts, &options, memory)?;
        Ok(Dispatch { route, means, timeout: options.timeout.unwrap_or(gate.timeout()), has_deadline })
    }

    /// The body of a call whose ranks have met.
    fn body(&self, means: Means, descriptor: &Descriptor, counts: &Counts) -> Box<dyn CallBody> {
        Box::new(VendorBody::new(&self.thread, means, descriptor, counts))
    }

    /// On this thread, to its end.
    fn run_inline(&self, call: &mut Call<'_>, means: &Means) -> Result<Outcome> {
        let run = |thread: &VendorShared<V>, call: &mut Call<'_>, number| {
            let Call { descriptor, counts, buffers, .. } = call;
            thread.run_call(descriptor, Some(number), counts, buffers, means, None)
        };
        let ((), entered) = self.inline(call, means, None, run)?;
        self.companion.gate().board().leave(entered.number, Some(Course::default()));
        Ok(Outcome::done(call.buffers.bytes_max(), means.named::<V>().0))
    }

    /// Makes a call on this thread, when it is its turn; `body` has its number. It may be in the library for `timeout`.
    pub(crate) fn inline<R>(
        &self,
        call: &mut Call<'_>,
        means: &Means,
        timeout: Option<Duration>,
        body: impl FnOnce(&VendorShared<V>, &mut Call<'_>, u64) -> Result<R>,
    ) -> Result<(R, Entered<'_>)> {
        let entered = self.companion.enter(means.named_inline::<V>(), call)?;
        let inline = Inline { number: entered.number, timeout };
        let result = self.in_library(inline, |thread| body(thread, call, entered.number))?;
        Ok((result, entered))
    }

    /// Makes a call that has its turn on this thread.
    pub(crate) fn in_library<R>(
        &self,
        inline: Inline,
        body: impl FnOnce(&VendorShared<V>) -> Result<R>,
    ) -> Result<R> {
        let (thread, gate) = (&*self.thread.shared, self.companion.gate());
        let is_revoked = || gate.board().first_cause().is_revoked();
        let pass = match thread.vendor.turn().map(|turn| turn.take(None, is_revoked)) {
            Some(None) => {
                gate.check_revoked()?;
                return Err(self.companion.settle(stuck::<V>()));
            }
            Some(pass) => pass,
            None => None,
        };
        let result = thread.inline.during(inline, thread.vendor.turn(), is_revoked, || body(thread));
        drop(pass);
        result.map_err(|error| self.companion.settle(error))
    }
}

impl<V: Vendor> Executor for Offloaded<V> {
    fn group(&self) -> &Group {
        self.group()
    }

    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
        self.group().options().complete(&mut call.descriptor, &mut call.options);
        self.companion.gate().admit(call)?;
        let Call { scope, descriptor, counts, options, .. } = &*call;
        let dispatch = self.dispatch(*scope, descriptor, counts, options, call.memory())?;
        let is_met = dispatch.has_deadline || self.options.deadlines;
        match dispatch.route {
            Route::Companion => self.companion.execute(call),
            Route::Stream if call.descriptor.operation.collective().is_none() => {
                self.issue_message(call, dispatch.timeout)
            }
            Route::Stream => self.issue(call, &dispatch.means, dispatch.timeout),
            Route::Host if is_met => {
                call.body = Some(self.body(dispatch.means, &call.descriptor, &call.counts));
                self.companion.execute(call)
            }
            Route::Host => self.run_inline(call, &dispatch.means),
        }
    }

    fn submit(&self, mut call: OwnedCall) -> Work {
        self.group().options().complete(&mut call.descriptor, &mut call.options);
        let OwnedCall { scope, descriptor, counts, options, .. } = &call;
        let admitted = self.companion.gate().admit(&call);
        let dispatch =
            admitted.and_then(|()| self.dispatch(*scope, descriptor, counts, options, call.memory()));
        match dispatch {
            Ok(Dispatch { route: Route::Companion, .. }) => self.companion.submit(call),
            Ok(Dispatch { route: Route::Stream, means, timeout, .. }) => {
                self.submit_on_stream(call, &means, timeout)
            }
            Ok(Dispatch { route: Route::Host, means, .. }) => {
                call.body = Some(self.body(means, descriptor, counts));
                self.companion.submit(call)
            }
            Err(error) => Work::refused(call, error),
        }
    }

    fn life(&self) -> &dyn Life {
        self
    }
}

impl<V: Vendor> Life for Offloaded<V> {
    fn backend(&self) -> &'static str {
        V::BACKEND
    }

    fn native_collectives(&self) -> Vec<Collective> {
        self.capabilities().collectives()
    }

    fn cost_model(&self) -> CostModel {
        self.companion.cost_model()
    }

    fn companion(&self) -> Option<Arc<dyn Communicator>> {
        Some(self.companion.communicator())
    }

    fn observations(&self) -> Observations {
        self.companion.gate().observations()
    }

    fn supports(
        &self,
        _: &Group,
        descriptor: &Descriptor,
        options: &CallOptions,
        memory: MemoryKind,
    ) -> Result<()> {
        self.companion.gate().check_caller(descriptor)?;
        let (mut descriptor, mut options) = (*descriptor, *options);
        self.group().options().complete(&mut descriptor, &mut options);
        let (descriptor, options) = (&descriptor, &options);
        check_request(descriptor, options, self.companion.group())?;
        match self.route(descriptor, &Counts::Even, options, memory)?.0 {
            Route::Companion => self.companion.supports(descriptor, options, memory),
            Route::Stream | Route::Host => Ok(()),
        }
    }

    fn prepare(
        &self,
        group: &Group,
        descriptor: &Descriptor,
        options: &CallOptions,
        memory: MemoryKind,
    ) -> Result<PreparedCall> {
        Life::supports(self, group, descriptor, options, memory)?;
        Ok(PreparedCall::checked(*descriptor, *options))
    }

    fn exchange(&self, calls: &mut [Call<'_>], results: &mut [Option<Result<Outcome>>]) -> Result<()> {
        match calls.iter().find(|call| call.memory() == MemoryKind::Device) {
            Some(_) => self.exchange_on_stream(calls, results),
            None => self.companion.communicator().life().exchange(calls, results),
        }
    }

    fn probe(&self, call: &mut Call<'_>, waits: bool) -> Result<Option<Probed>> {
        self.companion.communicator().life().probe(call, waits)
    }

    fn register(&self, algorithm: Arc<Algorithm>, trust: Trust) -> Result<()> {
        self.capabilities().check_schedules(V::BACKEND, "algorithms from outside")?;
        self.companion.register(algorithm, trust)
    }

    fn subgroup_with(&self, ranks: &[u32], options: &GroupOptions) -> Result<Option<Arc<dyn Communicator>>> {
        let part = self.companion.part(ranks, options)?;
        match options.backend {
            GroupBackend::OfParent => part.map(|companion| self.over(companion)).transpose(),
            GroupBackend::Companion => Ok(part.map(|companion| companion.communicator())),
        }
    }

    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        self.over(self.companion.gate().duplicate()?)
    }

    fn shrink(&self) -> Result<Shrunk> {
        let Survivors { companion, new_ranks, last_common_call } = self.companion.survivors()?;
        Ok(Shrunk { communicator: self.over(companion)?, new_ranks, last_common_call })
    }

    fn agree(&self, flag: bool) -> Result<bool> {
        self.companion.agree(flag)
    }

    fn monitored_barrier(&self, timeout: Duration) -> Result<()> {
        self.companion.monitored_barrier(timeout)
    }

    fn scope(&self, parent: ParentCall, options: &CallOptions) -> Result<Scope> {
        #[expect(clippy::expect_used, reason = "`open` is the only way to one, and gives an `Arc`")]
        let own = self.own.upgrade().expect("a communicator is in an Arc");
        Ok(self.companion.scope(parent, options)?.on(own))
    }

    fn revoke(&self, cause: Error) -> Result<()> {
        self.companion.revoke(cause)
    }

    fn abort(&self) -> Result<()> {
        self.companion.abort()
    }

    fn resolve_within(&self, ticket: Ticket, timeout: Duration) -> Result<Option<Outcome>> {
        self.thread.shared.resolve_within(ticket, timeout)
    }

    fn close(&self) -> Result<()> {
        // Every call on a stream has a deadline of its own.
        self.thread.shared.drain(deadline_after(Instant::now(), Duration::MAX));
        self.companion.close()
    }
}
