//! The trait of every communicator, as its users see it.

use std::sync::Arc;
use std::time::Duration;

use unisono_schedule::{Algorithm, Collective, CostModel, Trust};

use crate::call::descriptor::Descriptor;
use crate::call::options::CallOptions;
use crate::call::outcome::{Outcome, Ticket};
use crate::call::parent::ParentCall;
use crate::comms_log::observations::Observations;
use crate::error::{Error, Result};
use crate::executor::Executor;
use crate::group::options::GroupOptions;
use crate::memory::MemoryKind;
use crate::scope::Scope;

/// A group of ranks that communicate.
///
/// Every [`Executor`] is one, and no implementation writes a method of this trait: a backend implements `Executor` and
/// [`Life`](crate::Life). Users call the typed operations of `Collectives`. Calls follow the order of issue,
/// which must be the same on every rank.
pub trait Communicator: Executor {
    /// This rank's number in the group.
    fn rank(&self) -> u32 {
        self.group().rank()
    }

    /// The number of ranks.
    fn size(&self) -> u32 {
        self.group().size()
    }

    /// The backend's name, for messages.
    fn backend(&self) -> &'static str {
        self.life().backend()
    }

    /// The collectives for which the backend has an operation of its own. It puts the others together from these and
    /// from messages; [`Communicator::supports`] tells which it can do at all.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Collective, Communicator, Solo};
    /// assert!(Solo::new().native_collectives().contains(&Collective::AllReduce));
    /// ```
    fn native_collectives(&self) -> Vec<Collective> {
        self.life().native_collectives()
    }

    /// The figures of the network for the planner, the same on all ranks. A backend without own figures gives
    /// loopback's.
    fn cost_model(&self) -> CostModel {
        self.life().cost_model()
    }

    /// The communicator beneath, if a vendor's library does the collectives of this one. It has the same ranks, order
    /// of calls and first cause. If a call hangs in the library, the survivors go on with the companion's
    /// [`Communicator::shrink`].
    fn companion(&self) -> Option<Arc<dyn Communicator>> {
        self.life().companion()
    }

    /// The records of the last calls of the communicator, and the times of clocks and networks, for
    /// `CommsLogger::stragglers`. Nothing by default.
    fn observations(&self) -> Observations {
        self.life().observations()
    }

    /// Whether this rank can make such a call on such memory, with these options and the options of
    /// `Collectives::with`. It refuses all that the call would refuse before it sends, except for faults of buffers, of
    /// uneven counts and of the order of calls. It sends nothing, and waits for no other call.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*};
    /// # pub mod call { pub use unisono_communicator::*; } }
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
    /// The errors of the call: [`Error::InvalidArgument`], or [`Error::Unsupported`] with an alternative.
    fn supports(&self, descriptor: &Descriptor, options: &CallOptions, memory: MemoryKind) -> Result<()> {
        self.life().supports(self.group(), descriptor, options, memory)
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
        self.life().resolve_within(ticket, timeout)
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
        self.life().register(algorithm, trust)
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
        self.life().subgroup_with(ranks, options)
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
        self.life().duplicate()
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
        self.life().shrink()
    }

    /// The logical AND of the survivors' flags, the same on all. It works while ranks fail, and on a revoked
    /// communicator. Collective over the survivors.
    ///
    /// # Errors
    /// As [`Communicator::shrink`].
    fn agree(&self, flag: bool) -> Result<bool> {
        self.life().agree(flag)
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
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
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
        self.life().monitored_barrier(timeout)
    }

    /// Opens a scope for the collectives that make up `parent`. It first waits for the asynchronous calls that were
    /// submitted before. The timeout in `options` bounds all calls together, and the label belongs to the parent.
    /// Algorithm and determinism hold for calls that set none themselves. Opening sends nothing: other ranks notice
    /// only the scope's calls.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{
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
    /// assert_eq!(sum_and_largest(&unisono::Solo::new(), 3.0)?, [3.0, 3.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ConcurrentUse`] when another thread is inside a call or a scope; a scope with a label waits instead, at
    /// most for its timeout. [`Error::InvalidArgument`] for a name or label that is too long, and when this thread has
    /// a scope open. The first cause, on a revoked communicator. [`Error::Unsupported`] within a scope, and from a
    /// backend without scopes.
    fn scope(&self, parent: ParentCall, options: &CallOptions) -> Result<Scope> {
        self.life().scope(parent, options)
    }

    /// Ends every call on every rank. `cause` becomes the first cause, which all later calls return.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless the backend has it.
    fn revoke(&self, cause: Error) -> Result<()> {
        self.life().revoke(cause)
    }

    /// Ends every call on every rank with [`Error::Aborted`] as the first cause, unless there is a first cause already.
    /// Any thread may call it at any time. Blocked calls, waits for a turn and asynchronous calls of this process end
    /// at once; calls of other ranks end when the news reaches them, a few milliseconds later. A call whose bytes were
    /// all sent may still succeed. Later [`Communicator::shrink`] and [`Communicator::agree`] work as after any
    /// failure.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
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
        self.life().abort()
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
        self.life().close()
    }
}

impl<E: Executor + ?Sized> Communicator for E {}

/// The result of [`Communicator::shrink`].
pub struct Shrunk {
    /// The survivors.
    pub communicator: Arc<dyn Communicator>,
    /// The new rank of each old rank; `None` for failed ranks.
    pub new_ranks: Vec<Option<u32>>,
    /// The number of collectives that every survivor has completed without a gap. Some survivors may have completed
    /// more: at most one more after calls that need data from every rank (all_reduce, all_gather, reduce_scatter,
    /// all_to_all, barrier), any number more after rooted calls, scan and exscan.
    pub last_common_call: u64,
}
