//! What every backend keeps of a scope: its turn, the deadline of its calls, and the larger call that they belong to.

use std::ops::Range;
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use unisono_communicator::{CallOptions, OpenScope, ParentCall, ScopeId};

use crate::board::Board;
use crate::fork::ForkGuard;
use crate::lock;
use crate::turnstile::{Pass, Turnstile};

/// What a call within a scope has from it.
#[derive(Clone)]
pub struct Enclosing {
    /// The call that it is a part of.
    pub parent: Arc<ParentCall>,
    /// What ranks compare of that, never 0: a plain call has 0.
    pub context: u32,
    deadline: Instant,
}

impl Enclosing {
    /// The time that a call has which may take `own`.
    pub fn timeout(&self, own: Duration) -> Duration {
        own.min(self.deadline.saturating_duration_since(Instant::now()))
    }
}

/// The order of the calls within one scope, and what they have from it.
pub struct ScopeOrder {
    id: ScopeId,
    pub(crate) order: Turnstile,
    pub(crate) enclosing: Enclosing,
    options: CallOptions,
    /// The thread that opened it.
    opener: ThreadId,
    /// Whether it was opened with a timeout, and not with that of the communicator.
    pub(crate) has_deadline: bool,
}

impl ScopeOrder {
    /// The options of a call within the scope that has `own`, and of whose timeout `default` is the default.
    pub(crate) fn options(&self, own: &CallOptions, default: Duration) -> CallOptions {
        let timeout = Some(self.enclosing.timeout(own.timeout.unwrap_or(default)));
        CallOptions { timeout, ..own.or(&self.options) }
    }
}

/// The scope that is open on a communicator: one at most, since it has the turn.
#[derive(Default)]
pub(crate) struct OpenScopeSlot(Mutex<Weak<ScopeOrder>>);

impl OpenScopeSlot {
    /// This scope is open now.
    pub(crate) fn set(&self, turn: &ScopeTurn) {
        *lock(&self.0) = Arc::downgrade(&turn.scope);
    }

    /// The scope of this name, if it is open.
    pub(crate) fn find(&self, id: ScopeId) -> Option<Arc<ScopeOrder>> {
        lock(&self.0).upgrade().filter(|scope| scope.id == id)
    }

    /// Why a call of this thread that is not within the scope waits, if one is open.
    pub(crate) fn status(&self) -> Option<String> {
        let scope = lock(&self.0).upgrade()?;
        let by = if scope.opener == thread::current().id() { "this thread" } else { "another thread" };
        let parent = &scope.enclosing.parent;
        Some(format!("is within a scope of {parent} that {by} has opened, behind which this call waits"))
    }
}

/// The turn of a scope, held until this is dropped.
pub struct ScopeTurn {
    scope: Arc<ScopeOrder>,
    board: Arc<Board>,
    first: u64,
    pass: Option<Pass<Arc<Turnstile>>>,
    owner: ForkGuard,
}

impl Drop for ScopeTurn {
    fn drop(&mut self) {
        // In a forked child, the lock that a pass may need can be held by a thread that the child does not have.
        if self.owner.check().is_err() {
            std::mem::forget(self.pass.take());
        }
    }
}

impl ScopeTurn {
    /// Holds the turn for the calls within a scope of `parent`, of which ranks compare `context`. They end by
    /// `deadline`.
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
            has_deadline: options.timeout.is_some(),
        });
        let (first, owner) = (board.calls().entered(), ForkGuard::new());
        ScopeTurn { scope, board: board.clone(), first, pass: Some(pass), owner }
    }

    /// The collectives before it have all got their numbers: its own come from here on.
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
}
