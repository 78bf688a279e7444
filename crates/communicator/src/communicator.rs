//! The trait of every backend, decorator and test double; scopes; the survivors of a failure.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use unisono_schedule::{Algorithm, Collective, CostModel, Trust};

use crate::call::descriptor::Descriptor;
use crate::call::options::CallOptions;
use crate::call::outcome::{Outcome, Ticket};
use crate::call::parent::{ParentCall, ScopeId};
use crate::call::{Call, OwnedCall};
use crate::check::check_request;
use crate::comms_log::observations::Observations;
use crate::error::{Error, Result};
use crate::forward_communicator;
use crate::group::Group;
use crate::group::options::GroupOptions;
use crate::memory::MemoryKind;
use crate::work::Work;

/// A group of ranks that communicate.
///
/// Users call the typed operations of [`crate::Collectives`]; backends implement this trait. Calls follow the order of
/// issue, which must be the same on every rank. [`Communicator::execute`] gets checked arguments.
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

    /// Runs a call to its end on the calling thread. A call on device memory is only enqueued on its stream; the
    /// outcome has a ticket ([`Outcome::ticket`]) for [`Communicator::resolve`]. A backend may take parts out of the
    /// [`Call`], so make a new one for each call.
    ///
    /// # Errors
    /// Any [`Error`]; [`Error::is_before_start`] tells whether the communicator is still usable. The ticket, and every
    /// later call, reports an error that comes after the call was enqueued.
    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome>;

    /// Starts a call. Its buffers move in, and come back through the handle. A call on device memory ends when its
    /// stream has completed it; the handle then knows a late error.
    fn submit(&self, call: OwnedCall) -> Work;

    /// The backend's name, for messages.
    fn backend(&self) -> &'static str;

    /// The collectives for which the backend has an operation of its own. It puts the others together from these and
    /// from messages; [`Communicator::supports`] tells which it can do at all.
    ///
    /// ```
    /// use unisono_communicator::{Collective, Communicator, Solo};
    /// assert!(Solo::new().native_collectives().contains(&Collective::AllReduce));
    /// ```
    fn native_collectives(&self) -> Vec<Collective> {
        Collective::ALL.to_vec()
    }

    /// The figures of the network for the planner, the same on all ranks. A backend without own figures gives
    /// loopback's.
    fn cost_model(&self) -> CostModel {
        CostModel::LOOPBACK
    }

    /// The communicator beneath, if a vendor's library does the collectives of this one. It has the same ranks, order
    /// of calls and first cause. If a call hangs in the library, the survivors go on with the companion's
    /// [`Communicator::shrink`].
    fn companion(&self) -> Option<Arc<dyn Communicator>> {
        None
    }

    /// What the communicator has recorded of its last calls, and what it knows of clocks and networks, for
    /// [`crate::CommsLogger::stragglers`]. Nothing by default.
    fn observations(&self) -> Observations {
        Observations::default()
    }

    /// Whether this rank can make such a call on such memory, with these options and the options of
    /// [`crate::Collectives::with`]. It refuses what the call would refuse before it sends, except for faults of
    /// buffers, of uneven counts and of the order of calls. It sends nothing, and waits for no other call.
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

    /// Waits, at most for `timeout`, until the stream has completed the call of `ticket`. `None` when the call is still
    /// running; ask again later. [`Duration::ZERO`] does not wait.
    ///
    /// The answer never changes: every thread gets it, also after [`Communicator::close`] and after the failure of
    /// another call. Backends remember at least the last 1,024 completed calls.
    ///
    /// # Errors
    /// The late error of the call. [`Error::InvalidArgument`] for a ticket of another communicator, or a forgotten one.
    /// [`Error::Unsupported`] from a backend that issues no tickets.
    fn resolve_within(&self, ticket: Ticket, timeout: Duration) -> Result<Option<Outcome>> {
        let _ = timeout;
        let instead = Some("ask the communicator that has issued it".to_owned());
        Err(Error::Unsupported { what: format!("{ticket}"), backend: self.backend(), instead })
    }

    /// Waits until the stream has completed the call of `ticket`, at most until the call's deadline: then the call ends
    /// with [`Error::Timeout`].
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

    /// Adds an algorithm to this communicator and to communicators that are derived from it later. The planner may then
    /// choose it, and callers can name it. Collective: every rank gives the same algorithm, and no other thread calls
    /// meanwhile. Rank 0 proves it for this group and every root, and compares the digests of the ranks' schedules; all
    /// ranks return the same verdict.
    ///
    /// [`Trust::Trusted`] skips the proof: ranks compare the algorithm's name and claims, and check that sends match
    /// receives. Any other fault gives wrong results, or calls that end at their deadlines.
    ///
    /// # Errors
    /// [`Error::AlgorithmRefused`], which leaves the communicator as it was; [`Error::Unsupported`] from a backend
    /// without algorithms; errors of the calls that carry the digests.
    fn register(&self, algorithm: Arc<Algorithm>, trust: Trust) -> Result<()> {
        let _ = (algorithm, trust);
        Err(unsupported(self.backend(), "algorithms from outside"))
    }

    /// A communicator of some of its ranks, in the order given. Collective: every rank of this communicator makes the
    /// call. Members give the same list and options. The others give a list without themselves, which may be their
    /// own group's: so ranks make several groups at once, and get `None` where they are in none.
    ///
    /// Nothing is sent. Members that give different lists or options get [`Error::Refused`] with both from the first
    /// call of the group.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank outside the communicator or twice, and for an option that no group can
    /// have. [`Error::Unsupported`] unless the backend has it.
    fn subgroup_with(&self, ranks: &[u32], options: &GroupOptions) -> Result<Option<Arc<dyn Communicator>>> {
        let _ = (ranks, options);
        Err(unsupported(self.backend(), "subgroups"))
    }

    /// [`Communicator::subgroup_with`] without options.
    ///
    /// # Errors
    /// As [`Communicator::subgroup_with`].
    fn subgroup(&self, ranks: &[u32]) -> Result<Option<Arc<dyn Communicator>>> {
        self.subgroup_with(ranks, &GroupOptions::new())
    }

    /// A second communicator of the same ranks, with its own order of calls. Collective.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless the backend has it.
    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        Err(unsupported(self.backend(), "duplicate"))
    }

    /// After a failure: agrees with the other survivors on who is left, and returns the communicator in which they go
    /// on. It also copes with ranks that fail meanwhile. Collective over the survivors: it blocks until all have called
    /// it, and gives all the same members and `last_common_call`. It closes the streams of a revoked communicator; a
    /// communicator that works goes on working.
    ///
    /// # Errors
    /// [`Error::Evicted`] when the others have taken this rank for dead; [`Error::NoQuorum`] when the silent ranks may
    /// go on without this one; [`Error::Timeout`] with the living ranks that have not called it (then call it again);
    /// [`Error::Closed`] after [`Communicator::close`]; [`Error::Unsupported`] unless the backend has it.
    fn shrink(&self) -> Result<Shrunk> {
        Err(unsupported(self.backend(), "shrink"))
    }

    /// The logical AND of the survivors' flags, the same on all. It works while ranks fail, and on a revoked
    /// communicator. Collective over the survivors.
    ///
    /// # Errors
    /// As [`Communicator::shrink`].
    fn agree(&self, flag: bool) -> Result<bool> {
        let _ = flag;
        Err(unsupported(self.backend(), "agree"))
    }

    /// Waits until all ranks have called it, at most for `timeout`, which is this rank's own. The error names exactly
    /// the ranks that have not come, in rank order, as `monitored_barrier` of torch with `wait_all_ranks`;
    /// [`Error::first_missing`] is the first. Unlike a barrier's, its timeout revokes nothing: the communicator works
    /// as before, and the next call goes on with the same barrier, which ends when the last rank comes. It is no call
    /// in the communicator's order: collectives and scopes of other threads may go on.
    ///
    /// Cost: a message from every rank to every rank on the control connections. It proves that the ranks come, not
    /// that their data connections work.
    ///
    /// ```
    /// # use unisono_communicator as unisono;
    /// use std::time::Duration;
    /// use unisono::{Communicator, Solo};
    /// Solo::new().monitored_barrier(Duration::from_secs(10))?;
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`] with the missing ranks; [`Error::PeerLost`] when a rank has left without having come;
    /// [`Error::ConcurrentUse`] while another thread is in it; the first cause; [`Error::Closed`] after
    /// [`Communicator::close`]; [`Error::Unsupported`] unless the backend has it.
    fn monitored_barrier(&self, timeout: Duration) -> Result<()> {
        let _ = timeout;
        Err(unsupported(self.backend(), "monitored_barrier"))
    }

    /// Opens a scope for the collectives that make up `parent`. It first waits for the asynchronous calls that were
    /// submitted before. The timeout in `options` bounds all calls together, and the label belongs to the parent.
    /// Algorithm and determinism hold for calls that set none themselves. Opening sends nothing: other ranks notice
    /// only the scope's calls.
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
    /// [`Error::ConcurrentUse`] when another thread is inside a call or a scope; a scope with a label waits instead, at
    /// most for its timeout. [`Error::InvalidArgument`] for a name or label that is too long, and when this thread has
    /// a scope open. The first cause, on a revoked communicator. [`Error::Unsupported`] within a scope, and from a
    /// backend without scopes.
    fn scope(&self, parent: ParentCall, options: &CallOptions) -> Result<Scope> {
        let _ = (parent, options);
        Err(unsupported(self.backend(), "scopes"))
    }

    /// Ends every call on every rank. `cause` becomes the first cause, which all later calls return.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless the backend has it.
    fn revoke(&self, cause: Error) -> Result<()> {
        let _ = cause;
        Err(unsupported(self.backend(), "revoke"))
    }

    /// Ends every call on every rank with [`Error::Aborted`] as the first cause, unless there is a first cause already.
    /// Any thread may call it at any time. Blocked calls, waits for a turn and asynchronous calls of this process end
    /// at once; calls of other ranks end when the news reaches them, a few milliseconds later. A call whose bytes were
    /// all sent may still succeed. Later [`Communicator::shrink`] and [`Communicator::agree`] work as after any
    /// failure.
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
    /// The first cause if the communicator was revoked before, unless this rank has gone on with
    /// [`Communicator::shrink`] of it, or of a copy or a group made from it, and the newest communicator of survivors
    /// was closed in good order or is not revoked.
    /// [`Error::Mismatch`] when ranks close after different calls. It names the first call that differs, and the same
    /// two ranks on every rank that closes meanwhile.
    /// [`Error::InvalidArgument`] when this thread has a [`Scope`] open.
    fn close(&self) -> Result<()> {
        Err(unsupported(self.backend(), "close"))
    }
}

/// A communicator for the calls that make up a parent call, until it is dropped; see [`Communicator::scope`]. It may
/// move to another thread.
///
/// While a scope is open, the communicator runs no collective outside it. A collective with a label waits, at most for
/// its timeout; any other collective gets [`Error::ConcurrentUse`]. Sends and receives go on. The same rule holds
/// between two calls within the scope.
///
/// The thread that has opened the scope would wait for itself. Its collectives outside the scope, with or without a
/// label, get [`Error::InvalidArgument`], which names the scope and its line, and so does [`Communicator::close`].
/// [`Scope::hand_over`] is for a scope that ends on another thread.
///
/// The deadline of the scope bounds all its calls: each call gets the time that is left, or its own shorter timeout.
/// Errors and logs name the parent.
///
/// Dropping the scope ends it, also in a panic, and reports neither success nor failure. A caller that has all data and
/// rejects it returns its own error, and the communicator stays usable; all ranks must decide alike, for instance by a
/// flag that travels with the data. After a failed call, every later call returns the first cause. An asynchronous call
/// that still runs goes on, and the communicator's next call comes after it.
///
/// A ticket of a call within the scope belongs to the communicator, and outlives the scope.
///
/// [`Communicator::scope`] and [`Communicator::close`] of a scope are [`Error::Unsupported`].
pub struct Scope {
    // The first field is dropped first: it may hold the communicator's turn, its right to issue calls.
    open: Box<dyn OpenScope>,
    communicator: Arc<dyn Communicator>,
    /// In place of the communicator's where operations are switched off: parts of a call are not skipped.
    group: Option<Group>,
}

/// A backend's part of an open scope.
pub trait OpenScope: Send + Sync {
    /// The id that the scope's calls carry ([`Call::scope`]).
    fn id(&self) -> ScopeId;

    /// See [`Scope::parent`].
    fn parent(&self) -> &Arc<ParentCall>;

    /// See [`Scope::numbers`].
    fn numbers(&self) -> Range<u64>;

    /// See [`Scope::hand_over`].
    fn hand_over(&self);

    /// See [`Scope::note_size`].
    fn note_size(&self, bytes: u64);
}

impl Scope {
    /// A scope on `communicator`, which honours [`Call::scope`]. Dropping `open` ends the scope.
    pub fn new(communicator: Arc<dyn Communicator>, open: Box<dyn OpenScope>) -> Scope {
        let group = communicator.group().without_skipped();
        Scope { open, communicator, group }
    }

    /// The same scope seen through `communicator`, which lies on top of the scope's communicator and passes calls on.
    pub fn on(self, communicator: Arc<dyn Communicator>) -> Scope {
        Scope { communicator, ..self }
    }

    /// The parent call.
    pub fn parent(&self) -> &Arc<ParentCall> {
        self.open.parent()
    }

    /// The numbers of its collectives so far, as in errors and in [`crate::Shrunk::last_common_call`]. All survivors
    /// have completed the whole parent if the last common call is not below the end of this range.
    pub fn numbers(&self) -> Range<u64> {
        self.open.numbers()
    }

    /// Says that another thread ends the scope. From then on, the thread that has opened the scope may wait for it, as
    /// any other thread may.
    ///
    /// ```
    /// # use unisono_communicator as unisono;
    /// # mod call { pub use unisono_communicator::*; }
    /// use call::{Collective, DType, Descriptor, ParentCall};
    /// use unisono::{CallOptions, Collectives, Communicator, Solo};
    /// let comm = Solo::new();
    /// let descriptor = Descriptor::new(Collective::Barrier, DType::U8, 0);
    /// let scope = comm.scope(ParentCall::new("elsewhere", descriptor), &CallOptions::new())?;
    /// scope.hand_over();
    /// let elsewhere = std::thread::spawn(move || scope.barrier());
    /// comm.with(CallOptions::new().label("afterwards")).barrier()?;
    /// elsewhere.join().unwrap()?;
    /// # Ok::<(), unisono::Error>(())
    /// ```
    pub fn hand_over(&self) {
        self.open.hand_over();
    }

    /// Says what the size of the parent is for the communication log, in place of its descriptor's: for a parent whose
    /// size is known only after its first call.
    pub fn note_size(&self, bytes: u64) {
        self.open.note_size(bytes);
    }

    fn unsupported<T>(&self, what: &str) -> Result<T> {
        let (what, instead) = (format!("{what} within a scope"), Some("end the scope first".to_owned()));
        Err(Error::Unsupported { what, backend: self.backend(), instead })
    }
}

/// The result of [`Communicator::shrink`].
pub struct Shrunk {
    /// The survivors.
    pub communicator: Arc<dyn Communicator>,
    /// The new rank of each old rank; `None` for failed ranks.
    pub new_ranks: Vec<Option<u32>>,
    /// The number of collectives that every survivor has completed without a gap. Some survivors may have completed
    /// more: at most one more after calls that need data from every rank (all_reduce, all_gather, reduce_scatter,
    /// all_to_all, barrier), any number more after rooted calls.
    pub last_common_call: u64,
}

fn unsupported(backend: &'static str, what: &str) -> Error {
    Error::Unsupported { what: what.to_owned(), backend, instead: None }
}

impl Communicator for Scope {
    forward_communicator!(self => self.communicator; backend, native_collectives, cost_model, companion, observations,
        supports, resolve_within, resolve, subgroup_with, duplicate, shrink, agree, monitored_barrier, revoke, abort);

    fn group(&self) -> &Group {
        self.group.as_ref().unwrap_or_else(|| self.communicator.group())
    }

    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
        call.scope = Some(self.open.id());
        // Past the `Arc`, whose forwarding is a function more.
        (*self.communicator).execute(call)
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
