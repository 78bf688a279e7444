//! The communicator of a rank, in the test: everything is asked of the process of the rank.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use unisono_communicator::{
    Algorithm, Call, CallOptions, Collective, Communicator, CostModel, Descriptor, DeviceStream, Error,
    Executor, FoundMessage, Group, GroupOptions, Life, MemoryKind, OpenScope, Outcome, OwnedCall, ParentCall,
    PreparedCall, Probed, Result, Scope, ScopeId, Shrunk, Ticket, Trust, Work,
};

use super::memory::{message, owned_message, restore};
use super::messages::{
    CallMessage, CommunicatorInfo, Executed, Id, ProbedMessage, Request, ScopeInfo, ShrunkMessage,
};
use super::remote::Remote;
use super::work::{ProxyWork, WorkState};
use crate::backend::MakeGroup;

/// A communicator, or what a scope issues its calls on.
pub(super) struct Proxy {
    remote: Arc<Remote>,
    info: CommunicatorInfo,
}

/// An open scope: its [`Proxy`] holds it open.
struct ProxyScope {
    remote: Arc<Remote>,
    on: Id,
    id: ScopeId,
    parent: Arc<ParentCall>,
}

impl Proxy {
    pub(super) fn shared(remote: &Arc<Remote>, info: CommunicatorInfo) -> Arc<dyn Communicator> {
        Arc::new(Proxy { remote: remote.clone(), info })
    }

    fn id(&self) -> Id {
        self.info.id
    }
}

/// A message that a probe has found, in the process of the rank.
struct ProxyFound {
    remote: Arc<Remote>,
    id: Option<Id>,
}

impl FoundMessage for ProxyFound {
    fn receive(mut self: Box<Self>, mut call: OwnedCall) -> Work {
        let (remote, probed) = (self.remote.clone(), self.id.take().unwrap());
        let asked = owned_call_message(&remote, &mut call, None);
        match remote.ask::<Id>(&Request::ReceiveProbed { probed, call: asked }) {
            Ok(id) => Work::new(ProxyWork(WorkState::new(remote, id, None, call.buffers))),
            Err(gone) => Work::refused(call, gone),
        }
    }
}

impl Drop for ProxyFound {
    fn drop(&mut self) {
        if let Some(probed) = self.id.take() {
            // As for the drop of a proxy.
            let _ = self.remote.ask::<()>(&Request::DropProbed { probed });
        }
    }
}

fn call_message(call: &Call<'_>, function: Option<Id>) -> CallMessage {
    CallMessage {
        descriptor: call.descriptor,
        buffers: message(&call.buffers, call.descriptor.dtype),
        stream: call.stream.map(stream_message),
        counts: call.counts.clone(),
        options: call.options,
        function,
        site: call.site,
    }
}

fn owned_call_message(remote: &Remote, call: &mut OwnedCall, function: Option<Id>) -> CallMessage {
    CallMessage {
        descriptor: call.descriptor,
        buffers: owned_message(&mut call.buffers, &mut |lent| remote.keep_lent(lent)),
        stream: call.stream.map(stream_message),
        counts: call.counts.clone(),
        options: call.options,
        function,
        site: call.site,
    }
}

fn stream_message(stream: DeviceStream) -> (u64, u32) {
    (stream.handle() as u64, stream.device())
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // When the process has ended it is gone already.
        let _ = self.remote.ask::<()>(&Request::Drop { on: self.id() });
    }
}

impl OpenScope for ProxyScope {
    fn id(&self) -> ScopeId {
        self.id
    }

    fn parent(&self) -> &Arc<ParentCall> {
        &self.parent
    }

    fn numbers(&self) -> Range<u64> {
        let (start, end) = self.remote.ask(&Request::Numbers { on: self.on }).unwrap_or((0, 0));
        start..end
    }

    fn hand_over(&self) {
        // As for the drop.
        let _ = self.remote.ask::<()>(&Request::HandOver { on: self.on });
    }

    fn note_size(&self, bytes: u64) {
        // As for the drop.
        let _ = self.remote.ask::<()>(&Request::NoteSize { on: self.on, bytes });
    }
}

impl Executor for Proxy {
    fn group(&self) -> &Group {
        &self.info.group
    }

    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
        let function = call.user_function.as_ref().map(|function| self.remote.keep_function(function));
        let asked = call_message(call, function);
        let executed = self.remote.ask::<Executed>(&Request::Execute { on: self.id(), call: asked });
        if let Some(function) = function {
            self.remote.drop_function(function);
        }
        let Executed { result, is_input_intact, output } = executed?;
        assert!(is_input_intact, "{} has written to its input", call.descriptor);
        restore(&mut call.buffers, &output);
        result
    }

    fn submit(&self, mut call: OwnedCall) -> Work {
        let function = call.user_function.as_ref().map(|function| self.remote.keep_function(function));
        let asked = owned_call_message(&self.remote, &mut call, function);
        match self.remote.ask::<Id>(&Request::Submit { on: self.id(), call: asked }) {
            Ok(id) => Work::new(ProxyWork(WorkState::new(self.remote.clone(), id, function, call.buffers))),
            Err(gone) => Work::refused(call, gone),
        }
    }

    fn life(&self) -> &dyn Life {
        self
    }
}

impl Life for Proxy {
    fn backend(&self) -> &'static str {
        self.info.backend
    }

    fn native_collectives(&self) -> Vec<Collective> {
        self.info.natives.clone()
    }

    fn cost_model(&self) -> CostModel {
        self.info.cost_model
    }

    fn supports(
        &self,
        _: &Group,
        descriptor: &Descriptor,
        options: &CallOptions,
        memory: MemoryKind,
    ) -> Result<()> {
        let (on, descriptor, options) = (self.id(), *descriptor, *options);
        self.remote.result(&Request::Supports { on, descriptor, options, memory })
    }

    fn resolve_within(&self, ticket: Ticket, timeout: Duration) -> Result<Option<Outcome>> {
        self.remote.result(&Request::ResolveWithin { on: self.id(), ticket, timeout })
    }

    /// The plan of a prepared call stays with the rank, so this one keeps none.
    fn prepare(
        &self,
        group: &Group,
        descriptor: &Descriptor,
        options: &CallOptions,
        memory: MemoryKind,
    ) -> Result<PreparedCall> {
        Life::supports(self, group, descriptor, options, memory)?;
        Ok(PreparedCall::checked(*descriptor, *options))
    }

    fn exchange(&self, calls: &mut [Call<'_>], results: &mut [Option<Result<Outcome>>]) -> Result<()> {
        let open = results.iter().enumerate().filter(|(_, result)| result.is_none());
        let open: Vec<usize> = open.map(|(index, _)| index).collect();
        let asked = open.iter().map(|index| call_message(&calls[*index], None)).collect();
        let executed: Vec<Executed> =
            self.remote.result(&Request::Exchange { on: self.id(), calls: asked })?;
        for (index, Executed { result, is_input_intact, output }) in open.into_iter().zip(executed) {
            assert!(is_input_intact, "{} has written to its input", calls[index].descriptor);
            restore(&mut calls[index].buffers, &output);
            results[index] = Some(result);
        }
        Ok(())
    }

    fn probe(&self, call: &mut Call<'_>, waits: bool) -> Result<Option<Probed>> {
        let request = Request::Probe { on: self.id(), call: call_message(call, None), waits };
        let found: Option<ProbedMessage> = self.remote.result(&request)?;
        Ok(found.map(|ProbedMessage { id, source, tag, dtype, bytes }| {
            let found = ProxyFound { remote: self.remote.clone(), id: Some(id) };
            Probed::new((source, tag), (dtype, bytes), Box::new(found))
        }))
    }

    /// The functions of an algorithm stay here: what the rank registers has its name, and is refused where any could be
    /// registered.
    fn register(&self, algorithm: Arc<Algorithm>, trust: Trust) -> Result<()> {
        let (on, name, collective) = (self.id(), algorithm.name, algorithm.collective);
        let is_proved = trust == Trust::Prove;
        self.remote.result(&Request::Register { on, name, collective, is_proved })
    }

    fn subgroup_with(&self, ranks: &[u32], options: &GroupOptions) -> Result<Option<Arc<dyn Communicator>>> {
        let request = Request::Subgroup { on: self.id(), ranks: ranks.to_vec(), options: *options };
        let made = self.remote.result(&request);
        made.map(|made: Option<CommunicatorInfo>| made.map(|info| Proxy::shared(&self.remote, info)))
    }

    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        self.remote
            .result(&Request::Duplicate { on: self.id() })
            .map(|info| Proxy::shared(&self.remote, info))
    }

    fn shrink(&self) -> Result<Shrunk> {
        let ShrunkMessage { communicator, new_ranks, last_common_call } =
            self.remote.result(&Request::Shrink { on: self.id() })?;
        Ok(Shrunk { communicator: Proxy::shared(&self.remote, communicator), new_ranks, last_common_call })
    }

    fn agree(&self, flag: bool) -> Result<bool> {
        self.remote.result(&Request::Agree { on: self.id(), flag })
    }

    fn monitored_barrier(&self, timeout: Duration) -> Result<()> {
        self.remote.result(&Request::MonitoredBarrier { on: self.id(), timeout })
    }

    fn scope(&self, parent: ParentCall, options: &CallOptions) -> Result<Scope> {
        let ScopeInfo { communicator, parent } =
            self.remote.result(&Request::Scope { on: self.id(), parent, options: *options })?;
        let (on, id) = (communicator.id, ScopeId::new_unique());
        let open = ProxyScope { remote: self.remote.clone(), on, id, parent: Arc::new(parent) };
        Ok(Scope::new(Proxy::shared(&self.remote, communicator), Box::new(open)))
    }

    fn revoke(&self, cause: Error) -> Result<()> {
        self.remote.result(&Request::Revoke { on: self.id(), cause })
    }

    fn abort(&self) -> Result<()> {
        self.remote.result(&Request::Abort { on: self.id() })
    }

    fn close(&self) -> Result<()> {
        self.remote.result(&Request::Close { on: self.id() })
    }
}

/// A rank's way to groups that only their members make.
pub(super) struct ProxyGroups(pub(super) Arc<Remote>);

impl MakeGroup for ProxyGroups {
    fn make_group(&self, key: &str, ranks: &[u32]) -> Result<Arc<dyn Communicator>> {
        let made = self.0.result(&Request::MakeGroup { key: key.to_owned(), ranks: ranks.to_vec() });
        made.map(|info| Proxy::shared(&self.0, info))
    }
}
