//! A scope: the communicator as the calls of which another call is made see it.

use std::ops::Range;
use std::sync::Arc;

use unisono_backend::{ScopeTurn, Survivors};
use unisono_communicator::{
    Call, CallOptions, Communicator, CostModel, Descriptor, Error, Group, MemoryKind, Outcome, OwnedCall,
    ParentCall, Result, Scope, Shrunk, Work,
};

use crate::drive::Shared;
use crate::links::Links;
use crate::plan::header::context_of;

/// A scope of a communicator over links.
pub(crate) struct EngineScope<L: Links + 'static> {
    shared: Arc<Shared<L>>,
    turn: ScopeTurn,
}

impl<L: Links + 'static> Shared<L> {
    /// The turn of a scope for the calls that `parent` is made of.
    ///
    /// # Errors
    /// As [`Communicator::scope`].
    pub(crate) fn open_scope(&self, parent: &ParentCall, options: &CallOptions) -> Result<ScopeTurn> {
        let parent = parent.labelled(options)?;
        self.admit(&parent)?;
        let mut turn = self.gate.open_scope(parent, context_of(&parent), options)?;
        self.finish_queue(&mut self.lock_links())?;
        turn.begin();
        Ok(turn)
    }
}

impl<L: Links + 'static> EngineScope<L> {
    /// Takes the communicator's turn for the calls that `parent` is made of.
    ///
    /// # Errors
    /// As [`Communicator::scope`].
    pub(crate) fn open(
        shared: &Arc<Shared<L>>,
        parent: &ParentCall,
        options: &CallOptions,
    ) -> Result<EngineScope<L>> {
        Ok(EngineScope { shared: shared.clone(), turn: shared.open_scope(parent, options)? })
    }

    fn unsupported(&self, what: &str) -> Error {
        let instead = Some("end the scope first".to_owned());
        Error::Unsupported { what: format!("{what} within a scope"), backend: self.backend(), instead }
    }
}

impl<L: Links + 'static> Scope for EngineScope<L> {
    fn parent(&self) -> &Arc<ParentCall> {
        &self.turn.enclosing().parent
    }

    fn numbers(&self) -> Range<u64> {
        self.turn.numbers()
    }
}

impl<L: Links + 'static> Communicator for EngineScope<L> {
    fn group(&self) -> &Group {
        self.shared.gate.group()
    }

    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
        self.shared.execute(call, None, Some(&self.turn))
    }

    fn submit(&self, call: OwnedCall) -> Work {
        self.shared.submit(call, None, Some(&self.turn))
    }

    fn backend(&self) -> &'static str {
        self.shared.gate.backend()
    }

    fn cost_model(&self) -> CostModel {
        self.shared.options.cost_model
    }

    fn supports(&self, descriptor: &Descriptor, options: &CallOptions, memory: MemoryKind) -> Result<()> {
        self.shared.supports(descriptor, options, memory)
    }

    fn subgroup(&self, ranks: &[u32]) -> Result<Option<Arc<dyn Communicator>>> {
        Ok(self.shared.gate.subgroup(ranks)?.map(|companion| companion as Arc<dyn Communicator>))
    }

    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        Ok(self.shared.duplicate()?)
    }

    fn shrink(&self) -> Result<Shrunk> {
        self.shared.shrink().map(Survivors::shrunk)
    }

    fn agree(&self, flag: bool) -> Result<bool> {
        self.shared.agree(flag)
    }

    fn scope(&self, _: ParentCall, _: &CallOptions) -> Result<Box<dyn Scope>> {
        Err(self.unsupported("scope"))
    }

    fn revoke(&self, cause: Error) -> Result<()> {
        self.shared.revoke(cause)
    }

    fn abort(&self) -> Result<()> {
        self.shared.abort()
    }

    fn close(&self) -> Result<()> {
        Err(self.unsupported("close"))
    }
}
