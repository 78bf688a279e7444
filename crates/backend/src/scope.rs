//! What a scope is on any backend: the turn that it holds, the deadline of its calls, the call that they are parts of.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_communicator::{CallInfo, CallOptions, ParentCall, Result, deadline_after};

use crate::board::Board;
use crate::fork::ForkGuard;
use crate::gate::CallGate;
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

/// The turn of a scope, held until this is dropped.
pub struct ScopeTurn {
    /// Of the scope's own calls.
    order: Turnstile,
    enclosing: Enclosing,
    options: CallOptions,
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

impl CallGate {
    /// Takes the turn for a scope of `parent`, of which ranks compare `context`.
    ///
    /// # Errors
    /// As [`CallGate::take_turn`].
    pub fn open_scope(&self, parent: ParentCall, context: u32, options: &CallOptions) -> Result<ScopeTurn> {
        let deadline = deadline_after(Instant::now(), options.timeout.unwrap_or(self.timeout()));
        let patience = self.patience(parent.descriptor.label, options);
        let info = || CallInfo { parent: Some(Arc::new(parent)), ..CallInfo::new(0, parent.descriptor) };
        let turn = self.take_turn(self.order().clone(), &parent, info, patience)?;
        Ok(ScopeTurn {
            order: Turnstile::new(),
            enclosing: Enclosing { parent: Arc::new(parent), context, deadline },
            options: CallOptions { timeout: None, label: None, ..*options },
            board: self.board().clone(),
            first: self.board().calls().entered(),
            pass: Some(turn.pass),
            owner: ForkGuard::new(),
        })
    }
}

impl ScopeTurn {
    /// Who issues the next of the scope's calls.
    pub fn order(&self) -> &Turnstile {
        &self.order
    }

    /// What its calls have from it.
    pub fn enclosing(&self) -> &Enclosing {
        &self.enclosing
    }

    /// The options of a call within it that has `own`.
    pub fn options(&self, own: &CallOptions) -> CallOptions {
        own.or(&self.options)
    }

    /// The collectives before it have all got their numbers: its own come from here on.
    pub fn begin(&mut self) {
        self.first = self.board.calls().entered();
    }

    /// The numbers of its collectives.
    pub fn numbers(&self) -> Range<u64> {
        self.first..self.board.calls().entered()
    }
}
