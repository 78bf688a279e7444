//! A test double of a vendor's backend in what it refuses: few types and operators, no functions of the user's, no
//! order of reduction, no algorithms. It shows that the suite takes a refusal for what it is.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use unisono_communicator::{
    Algorithm, Call, CallOptions, Communicator, CostModel, DType, Descriptor, Determinism, Error, Finished,
    Group, Kind, MemoryKind, Outcome, OwnedCall, ParentCall, ReduceOp, Result, Scope, Shrunk, Ticket, Trust,
    Work,
};
use unisono_engine::EngineOptions;

use crate::backend::{Backend, InProcess, Job, MakeGroup, Member};
use crate::capabilities::Algorithms;

const BACKEND: &str = "limited";

/// [`InProcess`] that refuses as a vendor's library does.
pub struct Limited;

impl Backend for Limited {
    fn name(&self) -> &'static str {
        BACKEND
    }

    fn open(&self, ranks: u32, options: &EngineOptions) -> Box<dyn Job> {
        Box::new(LimitedJob(InProcess.open(ranks, options)))
    }

    fn rank_counts(&self) -> &'static [u32] {
        &[3]
    }

    fn large_rank_counts(&self) -> &'static [u32] {
        &[9]
    }

    fn algorithms(&self) -> Algorithms {
        Algorithms::None
    }
}

struct LimitedJob(Box<dyn Job>);

impl Job for LimitedJob {
    fn join(&self, rank: u32) -> Result<Member> {
        let Member { communicator, groups, keep } = self.0.join(rank)?;
        Ok(Member { communicator: limited(communicator), groups: Box::new(LimitedGroups(groups)), keep })
    }
}

struct LimitedGroups(Box<dyn MakeGroup>);

impl MakeGroup for LimitedGroups {
    fn make_group(&self, key: &str, ranks: &[u32]) -> Result<Arc<dyn Communicator>> {
        self.0.make_group(key, ranks).map(limited)
    }
}

fn limited(communicator: Arc<dyn Communicator>) -> Arc<dyn Communicator> {
    Arc::new(LimitedTo(communicator))
}

/// A communicator or a scope that refuses.
struct LimitedTo<C>(C);

fn unsupported(what: impl Into<String>) -> Error {
    Error::Unsupported { what: what.into(), backend: BACKEND, instead: None }
}

/// What is refused of what could be done.
fn refuse(descriptor: &Descriptor, options: &CallOptions) -> Result<()> {
    if descriptor.operation.collective().is_none() {
        return Ok(());
    }
    if options.algorithm.is_some() {
        return Err(unsupported("algorithms"));
    }
    let Some(op) = descriptor.op else { return Ok(()) };
    if options.determinism == Determinism::Fixed {
        return Err(unsupported("an order of reduction"));
    }
    let dtype = descriptor.dtype;
    let is_known_op = matches!(
        op,
        ReduceOp::Sum
            | ReduceOp::Prod
            | ReduceOp::Min
            | ReduceOp::Max
            | ReduceOp::Avg
            | ReduceOp::PreMulSum(_)
    );
    let is_known_type = match dtype.kind() {
        Kind::Float(format) => format.bytes > 1,
        Kind::Signed | Kind::Unsigned => dtype != DType::I16 && dtype != DType::U16,
        Kind::Complex(_) | Kind::Bool | Kind::Opaque => false,
    };
    if is_known_op && is_known_type { Ok(()) } else { Err(unsupported(format!("{op} of {dtype}"))) }
}

impl<C: AsCommunicator> LimitedTo<C> {
    /// What this refuses, unless the other refuses it for what is wrong with it.
    fn admit(&self, descriptor: &Descriptor, options: &CallOptions, memory: MemoryKind) -> Result<()> {
        let plain = CallOptions { algorithm: None, ..*options };
        self.0.get().supports(descriptor, &plain, memory)?;
        refuse(descriptor, options)
    }
}

/// What is a communicator.
trait AsCommunicator: Send + Sync {
    fn get(&self) -> &dyn Communicator;
}

impl AsCommunicator for Arc<dyn Communicator> {
    fn get(&self) -> &dyn Communicator {
        &**self
    }
}

impl AsCommunicator for Box<dyn Scope> {
    fn get(&self) -> &dyn Communicator {
        &**self
    }
}

impl Scope for LimitedTo<Box<dyn Scope>> {
    fn parent(&self) -> &Arc<ParentCall> {
        self.0.parent()
    }

    fn numbers(&self) -> Range<u64> {
        self.0.numbers()
    }
}

impl<C: AsCommunicator> Communicator for LimitedTo<C> {
    fn group(&self) -> &Group {
        self.0.get().group()
    }

    fn execute(&self, call: Call<'_>) -> Result<Outcome> {
        self.admit(&call.descriptor, &call.options, call.memory())?;
        self.0.get().execute(call)
    }

    fn submit(&self, call: OwnedCall) -> Work {
        match self.admit(&call.descriptor, &call.options, call.memory()) {
            Ok(()) => self.0.get().submit(call),
            Err(error) => Work::finished(Finished { result: Err(error), buffers: Some(call.buffers) }),
        }
    }

    fn backend(&self) -> &'static str {
        BACKEND
    }

    fn cost_model(&self) -> CostModel {
        self.0.get().cost_model()
    }

    fn supports(&self, descriptor: &Descriptor, options: &CallOptions, memory: MemoryKind) -> Result<()> {
        self.admit(descriptor, options, memory)
    }

    fn resolve_within(&self, ticket: Ticket, timeout: Duration) -> Result<Option<Outcome>> {
        self.0.get().resolve_within(ticket, timeout)
    }

    fn register(&self, _algorithm: Arc<Algorithm>, _trust: Trust) -> Result<()> {
        Err(unsupported("algorithms from outside"))
    }

    fn subgroup(&self, ranks: &[u32]) -> Result<Option<Arc<dyn Communicator>>> {
        Ok(self.0.get().subgroup(ranks)?.map(limited))
    }

    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        self.0.get().duplicate().map(limited)
    }

    fn shrink(&self) -> Result<Shrunk> {
        let shrunk = self.0.get().shrink()?;
        Ok(Shrunk { communicator: limited(shrunk.communicator), ..shrunk })
    }

    fn agree(&self, flag: bool) -> Result<bool> {
        self.0.get().agree(flag)
    }

    fn scope(&self, parent: ParentCall, options: &CallOptions) -> Result<Box<dyn Scope>> {
        Ok(Box::new(LimitedTo(self.0.get().scope(parent, options)?)))
    }

    fn revoke(&self, cause: Error) -> Result<()> {
        self.0.get().revoke(cause)
    }

    fn abort(&self) -> Result<()> {
        self.0.get().abort()
    }

    fn close(&self) -> Result<()> {
        self.0.get().close()
    }
}
