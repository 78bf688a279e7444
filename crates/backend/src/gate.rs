//! The gate that every call passes on any backend: the threads that may issue it, the time when they may, and the
//! meaning of its failure.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use unisono_communicator::{
    Error, Group, GroupOptions, JobRank, Observations, Result, deadline_after, interrupt_check,
};

use crate::agreement::Agreements;
use crate::board::{Board, Revocation};
use crate::companion::Companion;
use crate::control::{Control, ask_for_the_call};
use crate::fork::ForkGuard;
use crate::group_keys::members;
use crate::peers::Peers;
use crate::scope::OpenScopeSlot;
use crate::turnstile::Turnstile;

/// The time that a failure waits for a better explanation: after a broken stream for the cause that another rank may be
/// spreading, after a mismatch for the description of the other rank's call. Each takes about a millisecond on an idle
/// machine, and may take more than 200 where ten processes share two cores.
const FIRST_CAUSE_WINDOW: Duration = Duration::from_secs(1);

/// The same for the error of a library, which fails where another rank has ended its communicator for a cause. That is
/// on its way before the end is; the others' deadlines run meanwhile.
const LIBRARY_WINDOW: Duration = Duration::from_millis(100);

/// The time for which a call goes on without a byte after another rank's failure; see [`CallGate::must_end`].
pub const IDLE_AFTER_CAUSE_MAX: Duration = Duration::from_millis(20);

/// When a communicator looks after calls that do not move.
#[derive(Clone, Copy, Debug)]
pub struct StallOptions {
    /// After how long without progress the other ranks are asked.
    pub probe_after: Duration,
    /// After how long without progress a line in the log names the ranks.
    pub warn_after: Duration,
    /// The time that the drop of a communicator may take.
    pub drop_timeout: Duration,
}

/// The gate of one communicator, on any backend.
pub struct CallGate {
    group: Group,
    peers: Peers,
    board: Arc<Board>,
    control: Arc<dyn Control>,
    backend: &'static str,
    timeout: Duration,
    stall_options: StallOptions,
    owner: ForkGuard,
    is_closed: AtomicBool,
    /// The number of communicators that have been made from this one.
    derived: AtomicU64,
    pub(crate) agreements: Agreements,
    /// Passed while a collective is issued; by a blocking one until it returns, by a scope until it ends.
    order: Arc<Turnstile>,
    pub(crate) open_scope: OpenScopeSlot,
}

/// The services that the gate needs from a backend whose call has failed.
pub trait Failing {
    /// The backend's clock.
    fn now(&self) -> Instant;

    /// Waits until there may be news on the board, at most until `until`.
    fn wait_for_news(&mut self, until: Instant);

    /// Ends with `error` everything that is queued and everything that is being sent to other ranks.
    fn fail_pending(&mut self, error: &Error);

    /// Closes the streams after [`CallGate::shrink`]: no thread may use the streams of an epoch that has ended.
    fn end_epoch(&mut self);
}

thread_local! {
    /// The number of user's functions that this thread is running inside calls. It has no destructor, so that the
    /// handler at the exit of the process can read it.
    static CALLBACKS: Cell<u32> = const { Cell::new(0) };

    /// The boards of the communicators in whose calls this thread is running a user's function.
    static IN_CALLBACK: RefCell<Vec<*const Board>> = const { RefCell::new(Vec::new()) };
}

/// Until it is dropped, this thread may not use the communicator, because it runs a user's function inside a call.
pub struct CallbackScope {
    board: *const Board,
}

/// Whether this thread is running a user's function inside a call.
pub fn is_in_call() -> bool {
    CALLBACKS.get() > 0
}

impl Drop for CallbackScope {
    fn drop(&mut self) {
        CALLBACKS.set(CALLBACKS.get() - 1);
        IN_CALLBACK.with_borrow_mut(|boards| {
            if let Some(position) = boards.iter().rposition(|board| *board == self.board) {
                boards.remove(position);
            }
        });
    }
}

/// The failure as all ranks see it: an error of the operating system says on which rank it happened.
pub fn on_rank(error: Error, rank: JobRank) -> Error {
    match error {
        Error::System { what, text } => Error::System { what: format!("{what} on rank {rank}"), text },
        other => other,
    }
}

impl CallGate {
    /// The gate of a communicator of `group` on this rank. Calls without their own deadline get `timeout`.
    pub fn new(
        group: Group,
        board: Arc<Board>,
        control: Arc<dyn Control>,
        backend: &'static str,
        timeout: Duration,
        stall_options: StallOptions,
    ) -> CallGate {
        let order = Arc::<Turnstile>::default();
        let waiting = order.clone();
        board.first_cause().on_revoke(Arc::new(move || waiting.recheck()));
        board.record_for(&group);
        CallGate {
            peers: Peers::new(group.clone(), board.clone()),
            group,
            board,
            control,
            backend,
            timeout,
            stall_options,
            owner: ForkGuard::new(),
            is_closed: AtomicBool::new(false),
            derived: AtomicU64::new(0),
            agreements: Agreements::default(),
            order,
            open_scope: OpenScopeSlot::default(),
        }
    }

    /// The ranks of the communicator, and which of them is this one.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The ranks of the communicator, as errors name them.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// The state that this communicator shows to the thread that answers questions about it.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// The control plane.
    pub fn control(&self) -> &dyn Control {
        &*self.control
    }

    /// The name of the backend that moves the bytes.
    pub fn backend(&self) -> &'static str {
        self.backend
    }

    /// The timeout of a call that sets none.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// When calls that do not move are looked after.
    pub fn stall_options(&self) -> StallOptions {
        self.stall_options
    }

    /// The records of the communicator's calls, and the measurements of the control plane.
    pub fn observations(&self) -> Observations {
        self.board.observations(self.control.clock_offsets(), self.control.link_times())
    }

    /// Refuses a forked child, and a user's function that runs inside a call of this communicator. The first would use
    /// its parent's sockets, the second would wait for itself.
    ///
    /// # Errors
    /// [`Error::Forked`], [`Error::ConcurrentUse`].
    #[inline]
    pub fn check_caller(&self, what: &dyn Display) -> Result<()> {
        self.owner.check()?;
        if self.is_in_callback() { Err(Error::ConcurrentUse { call: what.to_string() }) } else { Ok(()) }
    }

    /// Refuses a call that can be refused before anything happens.
    ///
    /// # Errors
    /// As [`CallGate::check_caller`]; the first cause; [`Error::Closed`].
    #[inline]
    pub fn admit(&self, what: &dyn Display) -> Result<()> {
        self.check_caller(what)?;
        self.check_revoked()?;
        self.check_open(what)
    }

    #[inline]
    pub(crate) fn check_open(&self, call: &dyn Display) -> Result<()> {
        if self.is_closed() { Err(Error::closed().in_call(call)) } else { Ok(()) }
    }

    /// Whether this process made the communicator. A forked child must not touch it.
    pub fn is_owner(&self) -> bool {
        self.owner.check().is_ok()
    }

    /// The first cause, if the communicator is revoked.
    ///
    /// # Errors
    /// That cause.
    #[inline]
    pub fn check_revoked(&self) -> Result<()> {
        self.board.first_cause().tell().map_or(Ok(()), Err)
    }

    /// Whether a running call must end, given that its last byte has moved `idle` ago. News of a failure overtakes the
    /// bytes that the failed rank had already sent, and a call that gets all its bytes must not fail. So after a
    /// failure elsewhere a call goes on until a stream that it waits for ends, or until no byte has moved for
    /// [`IDLE_AFTER_CAUSE_MAX`]. A failure of this rank itself ends its calls at once.
    #[inline]
    pub fn must_end(&self, idle: Duration) -> bool {
        self.board.first_cause().is_revoked() && (idle >= IDLE_AFTER_CAUSE_MAX || self.has_failed_here())
    }

    /// Whether the first cause is a failure of this rank, or the others have gone on without it.
    pub fn has_failed_here(&self) -> bool {
        let cause = self.board.first_cause();
        let is_own = |revocation: Revocation| revocation.by == self.group.own_job_rank();
        cause.eviction().is_some() || cause.revocation().is_some_and(is_own)
    }

    /// The order in which the communicator issues its collectives.
    pub fn order(&self) -> &Arc<Turnstile> {
        &self.order
    }

    /// Refuses calls of this thread on this communicator until the guard is dropped, because a user's function runs.
    pub fn begin_callback(&self) -> CallbackScope {
        let board = Arc::as_ptr(&self.board);
        CALLBACKS.set(CALLBACKS.get() + 1);
        IN_CALLBACK.with_borrow_mut(|boards| boards.push(board));
        CallbackScope { board }
    }

    /// Whether the calling thread, which waits in a call, is told to give up; see
    /// [`unisono_communicator::InterruptCheck`].
    #[inline]
    pub fn is_interrupted(&self, now: Instant) -> bool {
        interrupt_check(now).is_some_and(|must_end| {
            let _refused = self.begin_callback();
            must_end()
        })
    }

    #[inline]
    fn is_in_callback(&self) -> bool {
        let board = Arc::as_ptr(&self.board);
        IN_CALLBACK.with_borrow(|boards| boards.contains(&board))
    }

    /// Marks the communicator as closed. Returns true the first time.
    pub fn begin_close(&self) -> bool {
        !self.is_closed.swap(true, Ordering::SeqCst)
    }

    /// Whether it has been closed.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Says goodbye at `now`, and learns whether the other ranks made the same calls. Does so after a failure too:
    /// survivors would wait for this rank. A failure that others report from now on is not an error of this call.
    ///
    /// # Errors
    /// [`Error::Mismatch`]; [`Error::PeerLost`] of a rank that has left too early.
    pub fn close(&self, now: Instant) -> Result<()> {
        self.control.close(self.board.calls().history(), deadline_after(now, self.timeout))
    }

    /// A communicator of some of the ranks. `None` on the others. The engine has checked that it knows the algorithm.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank that does not exist or comes twice, and as [`GroupOptions::check`]; errors
    /// of the control plane.
    pub fn subgroup(&self, ranks: &[u32], options: &GroupOptions) -> Result<Option<Companion>> {
        self.admit(&"subgroup")?;
        options.check()?;
        let ranks = members(ranks, self.group.size())?;
        let counter = self.derived.fetch_add(1, Ordering::SeqCst);
        let derived = self.control.derive(&ranks, options, counter)?;
        Ok(derived.inspect(|derived| derived.gate().board().set_parent(&self.board)))
    }

    /// A communicator of the same ranks.
    ///
    /// # Errors
    /// As [`unisono_communicator::Communicator::duplicate`].
    pub fn duplicate(&self) -> Result<Companion> {
        let ranks: Vec<u32> = (0..self.group.size()).collect();
        #[expect(clippy::expect_used, reason = "a group contains its own rank, and so does the list")]
        self.subgroup(&ranks, &GroupOptions::new()).map(|copy| copy.expect("every rank is a member"))
    }

    /// Ends every call on every rank, for the caller's `cause`.
    pub fn revoke(&self, cause: Error) -> Error {
        self.fail(Error::Revoked { by: self.group.own_job_rank(), cause: Arc::new(cause) })
    }

    /// Ends every call on every rank.
    pub fn abort(&self) -> Error {
        self.fail(Error::Aborted { by: self.group.own_job_rank() })
    }

    /// Makes `error` the first cause, unless there is one already, and tells every rank. Returns the error for this
    /// rank's caller.
    pub fn fail(&self, error: Error) -> Error {
        let own = self.group.own_job_rank();
        let cause = Arc::new(on_rank(error, own));
        if self.board.first_cause().revoke(own, cause.clone()) {
            self.control.flood(cause.clone());
        }
        self.board.first_cause().tell().unwrap_or_else(|| (*cause).clone())
    }

    /// After the failure of a call: makes it the first cause unless a better cause is on its way, and ends all queued
    /// calls. Returns the error for the caller.
    pub fn settle(&self, backend: &mut (impl Failing + ?Sized), error: Error) -> Error {
        // The call has its number, so it has started: an error that says otherwise is the cause of a revocation.
        let error = if error.is_before_start() {
            Error::Revoked { by: self.group.own_job_rank(), cause: Arc::new(error) }
        } else {
            error
        };
        if matches!(error, Error::Mismatch { .. }) {
            ask_for_the_call(&*self.control, &self.peers, &error);
        }
        match &error {
            // These have left in good order, and a message needs no other explanation.
            Error::PeerLost { call: None, culprits, .. }
                if culprits.iter().all(|one| self.has_left(one.rank)) => {}
            Error::PeerLost { .. } => {
                if !self.board.first_cause().is_revoked() {
                    let lost =
                        error.lost_ranks().into_iter().filter_map(|lost| self.group.group_rank_of(lost));
                    lost.for_each(|peer| self.control.stream_ended(peer));
                }
                self.await_first_cause(backend, FIRST_CAUSE_WINDOW);
            }
            Error::Mismatch { .. } => self.await_first_cause(backend, FIRST_CAUSE_WINDOW),
            Error::Vendor { .. } => self.await_first_cause(backend, LIBRARY_WINDOW),
            _ => {}
        }
        let seen = self.fail(error);
        self.board.fail_running();
        backend.fail_pending(&seen);
        seen
    }

    fn has_left(&self, rank: JobRank) -> bool {
        self.group.group_rank_of(rank).is_some_and(|peer| self.board.closings().has_closed(peer))
    }

    /// Waits a short time for the cause that another rank may already be spreading.
    fn await_first_cause(&self, backend: &mut (impl Failing + ?Sized), window: Duration) {
        let until = backend.now() + window;
        while !self.board.first_cause().is_revoked() && backend.now() < until {
            backend.wait_for_news(until);
        }
    }
}
