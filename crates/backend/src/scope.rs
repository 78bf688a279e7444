//! A backend's part of a scope: its turn, the deadline of its calls, and their parent call.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use unisono_communicator::{CallOptions, OpenScope, ParentCall, RecordedEnd, Recording, ScopeId};

use crate::board::Board;
use crate::fork::ForkGuard;
use crate::lock;
use crate::turnstile::{Pass, Turnstile};

/// The parent call and the deadline of a call in a scope.
#[derive(Clone)]
pub struct Enclosing {
    /// The call of which it is a part.
    pub parent: Arc<ParentCall>,
    /// A hash of the parent, which ranks compare; never 0, because a plain call has 0.
    pub context: u32,
    deadline: Instant,
}

impl Enclosing {
    /// The time for a call that asks for `own`: less if the scope ends earlier.
    pub fn timeout(&self, own: Duration) -> Duration {
        own.min(self.deadline.saturating_duration_since(Instant::now()))
    }
}

/// The order of the calls within one scope, and their options and deadline.
pub struct ScopeOrder {
    id: ScopeId,
    pub(crate) order: Turnstile,
    pub(crate) enclosing: Enclosing,
    options: CallOptions,
    opener: ThreadId,
    /// Whether the opener may wait for the scope, because another thread ends it or because it has ended.
    is_handed_over: AtomicBool,
    /// Whether the scope was opened with a timeout of its own.
    pub(crate) has_deadline: bool,
}

impl ScopeOrder {
    /// The options of a call within the scope: `own`, completed by the scope's. `default` is the timeout of a call that
    /// sets none.
    pub(crate) fn options(&self, own: &CallOptions, default: Duration) -> CallOptions {
        let timeout = Some(self.enclosing.timeout(own.timeout.unwrap_or(default)));
        CallOptions { timeout, ..own.or(&self.options) }
    }

    /// Whether this thread has opened the scope and is to end it.
    fn is_own(&self) -> bool {
        self.opener == thread::current().id() && !self.is_handed_over.load(Ordering::Relaxed)
    }
}

/// The scope that is open on a communicator. There is at most one, since it has the turn.
#[derive(Default)]
pub(crate) struct OpenScopeSlot(Mutex<Weak<ScopeOrder>>);

impl OpenScopeSlot {
    /// Notes that this scope is open.
    pub(crate) fn set(&self, turn: &ScopeTurn) {
        *lock(&self.0) = Arc::downgrade(&turn.scope);
    }

    /// The open scope of this name.
    pub(crate) fn find(&self, id: ScopeId) -> Option<Arc<ScopeOrder>> {
        lock(&self.0).upgrade().filter(|scope| scope.id == id)
    }

    /// The reason for a call outside the scope to wait, if a scope is open.
    pub(crate) fn status(&self) -> Option<String> {
        let scope = lock(&self.0).upgrade()?.enclosing.parent.with_site();
        Some(format!("is within the scope of {scope}, which has not ended, behind which this call waits"))
    }

    /// The parent of the open scope, if this thread has opened the scope and is to end it.
    pub(crate) fn own_parent(&self) -> Option<Arc<ParentCall>> {
        let scope = lock(&self.0).upgrade().filter(|scope| scope.is_own())?;
        Some(scope.enclosing.parent.clone())
    }
}

/// The turn of a scope, until it is dropped.
pub struct ScopeTurn {
    scope: Arc<ScopeOrder>,
    board: Arc<Board>,
    first: u64,
    pass: Option<Pass<Arc<Turnstile>>>,
    owner: ForkGuard,
    /// The parent call in the communication log.
    recording: Option<Recording>,
    /// The size of the parent there, unless it is the descriptor's.
    size: OnceLock<u64>,
}

impl Drop for ScopeTurn {
    fn drop(&mut self) {
        // Another thread's call within the scope may still hold the order.
        self.hand_over();
        // In a forked child, the lock that releases the pass may be held by a thread that the child does not have.
        if self.owner.check().is_err() {
            std::mem::forget((self.pass.take(), self.recording.take()));
        }
        if let Some(recording) = self.recording.take() {
            let has_failed = self.board.first_cause().is_revoked();
            recording.end(if has_failed {
                RecordedEnd::Failed
            } else {
                RecordedEnd::Done(self.size.get().copied())
            });
        }
    }
}

impl ScopeTurn {
    /// A scope of `parent` that holds `pass`. Ranks compare `context`. The calls end by `deadline`.
    pub(crate) fn new(
        pass: Pass<Arc<Turnstile>>,
        board: &Arc<Board>,
        parent: ParentCall,
        context: u32,
        options: &CallOptions,
        deadline: Instant,
    ) -> ScopeTurn {
        let scope = Arc::new(ScopeOrder {
            id: ScopeId::new_unique(),
            order: Turnstile::new(),
            enclosing: Enclosing { parent: Arc::new(parent), context, deadline },
            options: CallOptions { timeout: None, label: None, ..*options },
            opener: thread::current().id(),
            is_handed_over: AtomicBool::new(false),
            has_deadline: options.timeout.is_some(),
        });
        let (first, owner) = (board.calls().entered(), ForkGuard::new());
        let recording = board.record_parent(&scope.enclosing.parent, options);
        let size = OnceLock::new();
        ScopeTurn { scope, board: board.clone(), first, pass: Some(pass), owner, recording, size }
    }

    /// Notes that all collectives before the scope have their numbers. The numbers of the scope's own collectives start
    /// here.
    pub fn begin(&mut self) {
        self.first = self.board.calls().entered();
    }
}

impl OpenScope for ScopeTurn {
    fn id(&self) -> ScopeId {
        self.scope.id
    }

    fn parent(&self) -> &Arc<ParentCall> {
        &self.scope.enclosing.parent
    }

    fn numbers(&self) -> Range<u64> {
        self.first..self.board.calls().entered()
    }

    fn hand_over(&self) {
        self.scope.is_handed_over.store(true, Ordering::Relaxed);
    }

    fn note_size(&self, bytes: u64) {
        // A second size would be of another call.
        let _ = self.size.set(bytes);
    }
}
