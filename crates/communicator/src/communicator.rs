//! The one trait of every backend, decorator and test double, and the types that it returns: scopes and survivors.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use unisono_schedule::{Algorithm, CostModel, Trust};

use crate::call::descriptor::Descriptor;
use crate::call::options::CallOptions;
use crate::call::outcome::{Outcome, Ticket};
use crate::call::parent::{ParentCall, ScopeId};
use crate::call::{Call, OwnedCall};
use crate::check::{check_label, check_options, check_request};
use crate::error::{Error, Result};
use crate::forward_communicator;
use crate::group::Group;
use crate::memory::MemoryKind;
use crate::work::Work;

/// A group of ranks that communicate.
///
/// Users call the typed operations of [`crate::Collectives`]; backends implement this. Calls on one communicator
/// happen in the order of issue, the same order on every rank. Arguments are already checked when they reach
/// [`Communicator::execute`].
pub trait Communicator: Send + Sync {
    /// Rank, size, members.
    fn group(&self) -> &Group;

    /// This rank's number in the group.
    fn rank(&self) -> u32 {
        self.group().rank()
    }

    /// The number of ranks.
    fn size(&self) -> u32 {
        self.group().size()
    }

    /// Runs a call to its end on the calling thread. A call on device memory is enqueued on its stream, and the outcome
    /// has the ticket ([`Outcome::ticket`]) that [`Communicator::resolve`] takes. The call may be used up afterwards:
    /// its caller makes a new one for the next.
    ///
    /// # Errors
    /// Any [`Error`]; see [`Error::is_before_start`] for what it leaves behind. The ticket, and every later call, tells
    /// an error that comes after the call was enqueued.
    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome>;

    /// Starts a call; its buffers move in and come back through the handle. A call on device memory has ended when it
    /// has completed in the order of its stream; the handle knows a late error.
    fn submit(&self, call: OwnedCall) -> Work;

    /// The backend's name, for messages.
    fn backend(&self) -> &'static str;

    /// The figures of the network by which calls are planned, the same on all ranks; the figures of loopback where the
    /// backend has none of its own.
    fn cost_model(&self) -> CostModel {
        CostModel::LOOPBACK
    }

    /// The communicator beneath, of the same ranks, if a vendor's library does the collectives of this one: it has the
    /// same order and the same first cause. After a failure that leaves a call hanging in the library, the survivors go
    /// on with its [`Communicator::shrink`].
    fn companion(&self) -> Option<Arc<dyn Communicator>> {
        None
    }

    /// Whether this communicator can do such a call on such memory on this rank, with these options besides those of
    /// [`crate::Collectives::with`]. It refuses what the call itself would refuse before anything is sent, as far as
    /// that does not depend on buffers, counts that differ by rank, or other calls. Sends nothing, and waits for no
    /// call that another thread is in.
    ///
    /// ```
    /// # mod unisono { pub use unisono_communicator::*; pub use unisono_communicator as call; }
    /// use unisono::{CallOptions, Collective, Communicator, DType, ReduceOp, Solo};
    /// use unisono::call::{Descriptor, MemoryKind};
    /// let sum = |dtype| Descriptor { op: Some(ReduceOp::Sum), ..Descriptor::new(Collective::AllReduce, dtype, 8) };
    /// let options = CallOptions::new();
    /// assert!(Solo::new().supports(&sum(DType::F16), &options, MemoryKind::Host).is_ok());
    /// assert!(Solo::new().supports(&sum(DType::Bool), &options, MemoryKind::Host).is_err());
    /// assert!(Solo::new().supports(&sum(DType::F16), &options, MemoryKind::Device).is_err());
    /// ```
    ///
    /// # Errors
    /// The errors of the call: [`Error::InvalidArgument`], or [`Error::Unsupported`] with what to do instead.
    fn supports(&self, descriptor: &Descriptor, options: &CallOptions, memory: MemoryKind) -> Result<()> {
        check_request(descriptor, options, self.group())?;
        match memory {
            MemoryKind::Host => Ok(()),
            MemoryKind::Device => Err(Error::no_device(self.backend())),
        }
    }

    /// Waits, for at most `timeout`, until the call of `ticket` has completed in the order of its stream. `None` when
    /// the call has not completed by then: it goes on, and can be asked for again. [`Duration::ZERO`] asks without
    /// waiting.
    ///
    /// Every thread that asks gets the same answer once there is one, also after [`Communicator::close`] and after the
    /// failure of another call. Backends remember at least the last 1,024 calls that have completed.
    ///
    /// # Errors
    /// The late error of the call. [`Error::InvalidArgument`] for a ticket of another communicator, and for a forgotten
    /// ticket. [`Error::Unsupported`] from a backend that issues no tickets.
    fn resolve_within(&self, ticket: Ticket, timeout: Duration) -> Result<Option<Outcome>> {
        let _ = timeout;
        let instead = Some("ask the communicator that has issued it".to_owned());
        Err(Error::Unsupported { what: format!("{ticket}"), backend: self.backend(), instead })
    }

    /// Waits until the call of `ticket` has completed in the order of its stream. The deadline of the call bounds the
    /// wait: an enqueued call that passes it ends with [`Error::Timeout`].
    ///
    /// # Errors
    /// As [`Communicator::resolve_within`].
    fn resolve(&self, ticket: Ticket) -> Result<Outcome> {
        loop {
            if let Some(outcome) = self.resolve_within(ticket, Duration::MAX)? {
                return Ok(outcome);
            }
        }
    }

    /// Adds an algorithm to this communicator and to communicators that are derived from it later. From then on the
    /// algorithm takes part in choice, and callers can name it. Collective: every rank calls with the same algorithm,
    /// and no other thread calls meanwhile. Rank 0 proves it for this group, for all roots, and compares the digests of
    /// the ranks' schedules; all ranks return the same verdict.
    ///
    /// With [`Trust::Trusted`] the ranks prove nothing and build no schedules of other ranks: they compare the
    /// algorithm's name and claims. Nobody then notices a rank whose schedules differ from the others' expectation, and
    /// calls give wrong results or end at their deadlines.
    ///
    /// # Errors
    /// [`Error::AlgorithmRefused`], and the communicator is as it was; [`Error::Unsupported`] unless the backend has
    /// algorithms; errors of the calls that carry the digests.
    fn register(&self, algorithm: Arc<Algorithm>, trust: Trust) -> Result<()> {
        let _ = (algorithm, trust);
        Err(unsupported(self.backend(), "algorithms from outside"))
    }

    /// A communicator of some of this one's ranks, in the order given. Collective over the parent: every rank calls
    /// with the same list. `None` on ranks that are not in it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless the backend has it.
    fn subgroup(&self, ranks: &[u32]) -> Result<Option<Arc<dyn Communicator>>> {
        let _ = ranks;
        Err(unsupported(self.backend(), "subgroups"))
    }

    /// A second communicator of the same ranks, with its own order of calls. Collective.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless the backend has it.
    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        Err(unsupported(self.backend(), "duplicate"))
    }

    /// After a failure: agrees with the other survivors on who is left, also when more ranks fail meanwhile, and gives
    /// the communicator in which they go on. Collective over the survivors; blocks until all of them have called it.
    /// Each gets the same members and the same `last_common_call`. The streams of a revoked communicator are closed; a
    /// communicator that works goes on working.
    ///
    /// # Errors
    /// [`Error::Evicted`] when the others have taken this rank for dead; [`Error::NoQuorum`] when the silent ranks may
    /// go on without this one; [`Error::Timeout`] with the ranks that live and have not called it: `shrink` can then be
    /// called again; [`Error::Closed`] after [`Communicator::close`]; [`Error::Unsupported`] unless the backend has it.
    fn shrink(&self) -> Result<Shrunk> {
        Err(unsupported(self.backend(), "shrink"))
    }

    /// The logical AND of every survivor's flag, the same on all of them, also when ranks fail meanwhile and on a
    /// communicator that is revoked. Collective over the survivors.
    ///
    /// # Errors
    /// As [`Communicator::shrink`].
    fn agree(&self, flag: bool) -> Result<bool> {
        let _ = flag;
        Err(unsupported(self.backend(), "agree"))
    }

    /// A scope for the collectives that `parent` is made of. It waits until the asynchronous calls that were submitted
    /// before have ended. Of the options, the timeout holds for all its calls together, the label for the parent, and
    /// algorithm and determinism for calls that set none of their own. The scope sends nothing itself: it is collective
    /// as far as its calls are.
    ///
    /// ```
    /// use unisono_communicator::{
    ///     CallOptions, Collective, Collectives, Communicator, DType, Descriptor, Error, ParentCall, ReduceOp, Result,
    /// };
    ///
    /// /// The sum of all ranks' values, and the largest of them.
    /// fn sum_and_largest(comm: &dyn Communicator, value: f32) -> Result<[f32; 2]> {
    ///     let descriptor =
    ///         Descriptor { op: Some(ReduceOp::Sum), ..Descriptor::new(Collective::AllReduce, DType::F32, 1) };
    ///     let scope = comm.scope(ParentCall::new("sum_and_largest", descriptor), &CallOptions::new())?;
    ///     let (mut sum, mut largest) = ([value], [value]);
    ///     scope.all_reduce(&mut sum, ReduceOp::Sum)?;
    ///     scope.all_reduce(&mut largest, ReduceOp::Max)?;
    ///     assert_eq!(scope.numbers().count(), 2);
    ///     Ok([sum[0], largest[0]])
    /// }
    /// assert_eq!(sum_and_largest(&unisono_communicator::Solo::new(), 3.0)?, [3.0, 3.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ConcurrentUse`] when another thread is inside a call or a scope; with a label it waits for its turn, at
    /// most for its timeout. [`Error::InvalidArgument`] for a name or label that is too long. The first cause.
    /// [`Error::Unsupported`] unless the backend has it, and within a scope.
    fn scope(&self, parent: ParentCall, options: &CallOptions) -> Result<Scope> {
        let _ = (parent, options);
        Err(unsupported(self.backend(), "scopes"))
    }

    /// Ends every call on every rank with `cause` as the first cause.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless the backend has it.
    fn revoke(&self, cause: Error) -> Result<()> {
        let _ = cause;
        Err(unsupported(self.backend(), "revoke"))
    }

    /// Ends every call on every rank with [`Error::Aborted`] as the first cause, unless there is one already. Calls in
    /// which other threads of this process wait end at once. Calls of other ranks end when the news reaches them, a few
    /// milliseconds later. Handles of asynchronous calls end too, and so do waits for a turn. A call whose bytes have
    /// all been sent may still succeed. May be called from any thread, also while others are in a call;
    /// [`Communicator::shrink`] and [`Communicator::agree`] come after it and do not end.
    ///
    /// ```
    /// # use unisono_communicator as unisono;
    /// use unisono::{Collectives, Communicator, Error, Peer, Solo};
    /// let comm = Solo::new();
    /// std::thread::scope(|threads| {
    ///     let waiting = threads.spawn(|| comm.recv(&mut [0u8], Peer::Any, 1));
    ///     comm.abort()?;
    ///     assert!(matches!(waiting.join().unwrap(), Err(Error::Aborted { .. })));
    ///     Ok::<(), Error>(())
    /// })
    /// # ?; Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless the backend has it.
    fn abort(&self) -> Result<()> {
        Err(unsupported(self.backend(), "abort"))
    }

    /// Tells the other ranks that this one makes no more calls. Idempotent.
    ///
    /// # Errors
    /// The first cause if the communicator was revoked; [`Error::Mismatch`] when ranks close after different calls: of
    /// the first call that differs, and of the same two ranks on every rank that closes meanwhile.
    fn close(&self) -> Result<()> {
        Err(unsupported(self.backend(), "close"))
    }
}

/// A communicator for the calls that another call is made of, until it is dropped; see [`Communicator::scope`]. It
/// can be moved to another thread.
///
/// While it is open, the communicator serves no other collective. A collective of another thread, or of this thread
/// past the scope, waits for at most its timeout if it has a label. Without a label it is refused with
/// [`Error::ConcurrentUse`]. Sends and receives have no order and go on. Within the scope the same holds between its
/// own calls.
///
/// All its calls end by the deadline of the scope: each call gets the time that remains, or its own timeout if that is
/// shorter. Errors and logs name the call that they are parts of.
///
/// Dropping the scope ends it, also in a panic, and says nothing about success. A caller that has all data and rejects
/// it returns an error of its own, and the communicator is as usable as after any call. All ranks must decide the same,
/// for instance by a flag that travels with the data. After the failure of a call within the scope every later call
/// returns the first cause, as ever. An asynchronous call that is still running goes on, and the next call of the
/// communicator comes behind it.
///
/// A ticket of a call on device memory within the scope belongs to the communicator, and outlives the scope.
///
/// Scopes do not nest, and a scope is not closed: [`Communicator::scope`] and [`Communicator::close`] of a scope are
/// [`Error::Unsupported`].
pub struct Scope {
    // First, so that it is dropped first: it may be the communicator's turn.
    open: Box<dyn OpenScope>,
    communicator: Arc<dyn Communicator>,
}

/// What a backend holds while a scope is open.
pub trait OpenScope: Send + Sync {
    /// What the calls of the scope are issued with.
    fn id(&self) -> ScopeId;

    /// See [`Scope::parent`].
    fn parent(&self) -> &Arc<ParentCall>;

    /// See [`Scope::numbers`].
    fn numbers(&self) -> Range<u64>;
}

impl Scope {
    /// A scope that `open` holds open on `communicator`, which issues calls in the order that they name
    /// ([`Call::scope`]).
    pub fn new(communicator: Arc<dyn Communicator>, open: Box<dyn OpenScope>) -> Scope {
        Scope { open, communicator }
    }

    /// The same scope on `communicator`, which lies on top of the present communicator and passes calls on to it.
    pub fn on(self, communicator: Arc<dyn Communicator>) -> Scope {
        Scope { communicator, ..self }
    }

    /// The call that this scope's calls are parts of.
    pub fn parent(&self) -> &Arc<ParentCall> {
        self.open.parent()
    }

    /// The numbers that its collectives have so far, as in errors and in [`crate::Shrunk::last_common_call`]. After a
    /// failure, the whole call was completed by all survivors if the last common call is not below the end of this.
    pub fn numbers(&self) -> Range<u64> {
        self.open.numbers()
    }

    fn unsupported<T>(&self, what: &str) -> Result<T> {
        let (what, instead) = (format!("{what} within a scope"), Some("end the scope first".to_owned()));
        Err(Error::Unsupported { what, backend: self.backend(), instead })
    }
}

/// What [`Communicator::shrink`] gives.
pub struct Shrunk {
    /// The survivors.
    pub communicator: Arc<dyn Communicator>,
    /// The new rank of each old rank; `None` for failed ranks.
    pub new_ranks: Vec<Option<u32>>,
    /// How many collectives every survivor has completed without a gap. After calls that need data from every rank
    /// (all_reduce, all_gather, reduce_scatter, all_to_all, barrier) a survivor has completed at most one more; after
    /// rooted calls survivors can be further apart.
    pub last_common_call: u64,
}

fn unsupported(backend: &'static str, what: &str) -> Error {
    Error::Unsupported { what: what.to_owned(), backend, instead: None }
}

/// A communicator that adds the caller's options to every call; made by [`crate::Collectives::with`].
pub struct With<'a, C: ?Sized> {
    inner: &'a C,
    options: CallOptions,
}

impl<'a, C: Communicator + ?Sized> With<'a, C> {
    pub(crate) fn new(inner: &'a C, options: CallOptions) -> With<'a, C> {
        With { inner, options }
    }

    fn merge(&self, own: &CallOptions, descriptor: &mut Descriptor) -> Result<CallOptions> {
        let options = own.or(&self.options);
        descriptor.label = descriptor.label.or(options.label);
        check_label(descriptor)?;
        check_options(&options)?;
        Ok(options)
    }
}

impl<C: Communicator + ?Sized> Communicator for With<'_, C> {
    forward_communicator!(self => self.inner; group, backend, cost_model, companion, resolve_within, resolve, register,
        subgroup, duplicate, shrink, agree, revoke, abort, close);

    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
        call.options = self.merge(&call.options, &mut call.descriptor)?;
        self.inner.execute(call)
    }

    fn submit(&self, mut call: OwnedCall) -> Work {
        match self.merge(&call.options, &mut call.descriptor) {
            Ok(options) => {
                call.options = options;
                self.inner.submit(call)
            }
            Err(error) => Work::refused(call, error),
        }
    }

    fn supports(&self, descriptor: &Descriptor, options: &CallOptions, memory: MemoryKind) -> Result<()> {
        let options = options.or(&self.options);
        let descriptor = Descriptor { label: descriptor.label.or(options.label), ..*descriptor };
        self.inner.supports(&descriptor, &options, memory)
    }

    fn scope(&self, parent: ParentCall, options: &CallOptions) -> Result<Scope> {
        self.inner.scope(parent, &options.or(&self.options))
    }
}

impl Communicator for Scope {
    forward_communicator!(self => self.communicator; group, backend, cost_model, companion, supports, resolve_within,
        resolve, subgroup, duplicate, shrink, agree, revoke, abort);

    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
        call.scope = Some(self.open.id());
        self.communicator.execute(call)
    }

    fn submit(&self, mut call: OwnedCall) -> Work {
        call.scope = Some(self.open.id());
        self.communicator.submit(call)
    }

    fn register(&self, _: Arc<Algorithm>, _: Trust) -> Result<()> {
        self.unsupported("register")
    }

    fn scope(&self, _: ParentCall, _: &CallOptions) -> Result<Scope> {
        self.unsupported("scope")
    }

    fn close(&self) -> Result<()> {
        self.unsupported("close")
    }
}
