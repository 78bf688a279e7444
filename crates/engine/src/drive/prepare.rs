//! Prepared calls: plans that are made once and kept for their calls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use unisono_communicator::{
    CallOptions, Descriptor, Error, MemoryKind, Operation, PreparedCall, PreparedNumber, Result,
};

use crate::drive::Shared;
use crate::links::Links;
use crate::lock;

/// The number of the next prepared call of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Prepared calls that were dropped. The next preparation forgets their plans, since a running call may have the lock
/// on the links.
pub(crate) type Unprepared = Arc<Mutex<Vec<PreparedNumber>>>;

/// Keeps the plan of a prepared call.
struct KeptPlan {
    unprepared: Unprepared,
    number: PreparedNumber,
}

impl Drop for KeptPlan {
    fn drop(&mut self) {
        lock(&self.unprepared).push(self.number);
    }
}

impl<L: Links + 'static> Shared<L> {
    /// Makes and keeps the plan of a collective.
    ///
    /// # Errors
    /// As [`unisono_communicator::Life::prepare`].
    pub(crate) fn prepare(
        &self,
        descriptor: &Descriptor,
        options: &CallOptions,
        memory: MemoryKind,
    ) -> Result<PreparedCall> {
        self.admit(descriptor)?;
        self.supports(descriptor, options, memory)?;
        let prepared = PreparedCall::checked(*descriptor, *options);
        let (mut descriptor, mut options) = (*descriptor, *options);
        self.gate.group().options().complete(&mut descriptor, &mut options);
        let Operation::Collective(collective) = descriptor.operation else {
            return Err(Error::invalid("operation", "a message has no plan"));
        };
        if descriptor.uneven {
            return Err(Error::invalid("counts", "a prepared call has even counts"));
        }
        let number = PreparedNumber(NEXT.fetch_add(1, Ordering::Relaxed));
        let mut guard = self.lock_links();
        for unprepared in lock(&self.unprepared).drain(..) {
            guard.planner.forget(unprepared);
        }
        guard.planner.prepare(number, collective, &descriptor, &options)?;
        Ok(prepared.planned(number, KeptPlan { unprepared: self.unprepared.clone(), number }))
    }
}
