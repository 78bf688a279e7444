//! A scope of a vendor's communicator: the calls of which another call is made.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use unisono_backend::ScopeTurn;
use unisono_communicator::{
    Call, CallOptions, Communicator, CostModel, Descriptor, Error, Group, MemoryKind, Outcome, OwnedCall,
    ParentCall, Result, Scope, Shrunk, Ticket, Work,
};

use crate::offloaded::OffloadedShared;
use crate::vendor::Vendor;

/// A scope.
pub(crate) struct OffloadedScope<V: Vendor> {
    shared: Arc<OffloadedShared<V>>,
    turn: ScopeTurn,
    /// Whether it was opened with a deadline, which its calls have then.
    has_deadline: bool,
}

impl<V: Vendor> OffloadedScope<V> {
    pub(crate) fn new(
        shared: Arc<OffloadedShared<V>>,
        turn: ScopeTurn,
        has_deadline: bool,
    ) -> OffloadedScope<V> {
        OffloadedScope { shared, turn, has_deadline }
    }

    fn unsupported<T>(&self, what: &str) -> Result<T> {
        let (what, instead) = (format!("{what} within a scope"), Some("end the scope first".to_owned()));
        Err(Error::Unsupported { what, backend: V::BACKEND, instead })
    }
}

impl<V: Vendor> Scope for OffloadedScope<V> {
    fn parent(&self) -> &Arc<ParentCall> {
        &self.turn.enclosing().parent
    }

    fn numbers(&self) -> Range<u64> {
        self.turn.numbers()
    }
}

impl<V: Vendor> Communicator for OffloadedScope<V> {
    fn group(&self) -> &Group {
        self.shared.companion.group()
    }

    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
        self.shared.execute(call, Some(&self.turn), self.has_deadline)
    }

    fn submit(&self, call: OwnedCall) -> Work {
        self.shared.submit(call, Some(&self.turn))
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

    fn scope(&self, _: ParentCall, _: &CallOptions) -> Result<Box<dyn Scope>> {
        self.unsupported("scope")
    }

    fn resolve_within(&self, ticket: Ticket, timeout: Duration) -> Result<Option<Outcome>> {
        self.shared.thread.shared.resolve_within(ticket, timeout)
    }

    fn revoke(&self, cause: Error) -> Result<()> {
        self.shared.companion.revoke(cause)
    }

    fn abort(&self) -> Result<()> {
        self.shared.companion.abort()
    }

    fn close(&self) -> Result<()> {
        self.unsupported("close")
    }
}
