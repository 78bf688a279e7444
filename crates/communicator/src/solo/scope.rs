//! A scope in the world of one: it has nobody to keep an order with, and counts its calls.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::call::descriptor::Descriptor;
use crate::call::operation::Operation;
use crate::call::parent::{ParentCall, Scope};
use crate::call::{CALL_TIMEOUT_DEFAULT, Call, CallOptions, Outcome, OwnedCall, deadline_after};
use crate::communicator::{Communicator, Shrunk};
use crate::error::{Error, Result};
use crate::group::Group;
use crate::memory::MemoryKind;
use crate::solo::{Solo, refuse_device};
use crate::work::Work;

/// A scope of [`Solo`].
pub(crate) struct SoloScope {
    solo: Solo,
    parent: Arc<ParentCall>,
    deadline: Instant,
    options: CallOptions,
    calls: AtomicU64,
}

impl SoloScope {
    pub(crate) fn open(solo: Solo, parent: ParentCall, options: &CallOptions) -> Result<SoloScope> {
        Ok(SoloScope {
            solo,
            parent: Arc::new(parent.labelled(options)?),
            deadline: deadline_after(Instant::now(), options.timeout.unwrap_or(CALL_TIMEOUT_DEFAULT)),
            options: CallOptions { timeout: None, label: None, ..*options },
            calls: AtomicU64::new(0),
        })
    }

    /// Notes a call, and gives the options that it has within the scope.
    fn enter(&self, operation: Operation, own: &CallOptions) -> CallOptions {
        if operation.collective().is_some() {
            self.calls.fetch_add(1, Ordering::Relaxed);
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        let timeout = own.timeout.unwrap_or(left).min(left);
        CallOptions { timeout: Some(timeout), ..own.or(&self.options) }
    }

    fn unsupported(&self, what: &str) -> Error {
        let instead = Some("end the scope first".to_owned());
        Error::Unsupported { what: format!("{what} within a scope"), backend: self.backend(), instead }
    }
}

impl Scope for SoloScope {
    fn parent(&self) -> &Arc<ParentCall> {
        &self.parent
    }

    fn numbers(&self) -> Range<u64> {
        0..self.calls.load(Ordering::Relaxed)
    }
}

impl Communicator for SoloScope {
    fn group(&self) -> &Group {
        self.solo.group()
    }

    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
        refuse_device(call.memory())?;
        call.options = self.enter(call.descriptor.operation, &call.options);
        self.solo.execute(call)
    }

    fn submit(&self, mut call: OwnedCall) -> Work {
        if call.memory() == MemoryKind::Host {
            call.options = self.enter(call.descriptor.operation, &call.options);
        }
        self.solo.submit(call)
    }

    fn backend(&self) -> &'static str {
        self.solo.backend()
    }

    fn supports(&self, descriptor: &Descriptor, options: &CallOptions, memory: MemoryKind) -> Result<()> {
        self.solo.supports(descriptor, options, memory)
    }

    fn subgroup(&self, ranks: &[u32]) -> Result<Option<Arc<dyn Communicator>>> {
        self.solo.subgroup(ranks)
    }

    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        self.solo.duplicate()
    }

    fn shrink(&self) -> Result<Shrunk> {
        self.solo.shrink()
    }

    fn agree(&self, flag: bool) -> Result<bool> {
        self.solo.agree(flag)
    }

    fn scope(&self, _: ParentCall, _: &CallOptions) -> Result<Box<dyn Scope>> {
        Err(self.unsupported("scope"))
    }

    fn revoke(&self, cause: Error) -> Result<()> {
        self.solo.revoke(cause)
    }

    fn abort(&self) -> Result<()> {
        self.solo.abort()
    }

    fn close(&self) -> Result<()> {
        Err(self.unsupported("close"))
    }
}
