//! The communicator over any links: admits calls, gives them their order, drives them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use unisono_backend::{Board, CallGate, Companion, Control, StallOptions, Survivors};
use unisono_communicator::{
    Call, CallOptions, Communicator, Descriptor, Error, Executor, Group, GroupOptions, Life, MemoryKind,
    Observations, Operation, Outcome, OwnedCall, ParentCall, PreparedCall, Probed, RecordedEnd, Result,
    Scope, Shrunk, Work,
};
use unisono_schedule::{Algorithm, CostModel, Trust};

use crate::calls::call::{ActiveCall, Engine};
use crate::calls::idling::Idling;
use crate::drive::Shared;
use crate::drive::pending::OneCollective;
use crate::links::Links;
use crate::options::EngineOptions;
use crate::plan::planner::Planner;
use crate::point_to_point::PointToPoint;
use crate::registration;

/// The parts of one communicator, as a transport provides them.
pub struct Parts<L> {
    /// The group.
    pub group: Group,
    /// The streams to the ranks of the group.
    pub links: L,
    /// The control plane.
    pub control: Arc<dyn Control>,
    /// The notice board; the control plane reads it too.
    pub board: Arc<Board>,
    /// Settings.
    pub options: EngineOptions,
    /// The transport's name.
    pub backend: &'static str,
}

/// A communicator that runs schedules over a transport's links.
pub struct EngineCommunicator<L: Links + 'static> {
    /// This value, for scopes.
    own: Weak<EngineCommunicator<L>>,
    shared: Arc<Shared<L>>,
}

impl<L: Links + 'static> EngineCommunicator<L> {
    /// A communicator over a transport.
    pub fn new(parts: Parts<L>) -> Arc<EngineCommunicator<L>> {
        let Parts { group, links, control, board, options, backend } = parts;
        let planner = Planner::new(&group, &options);
        let selector = planner.selector().clone();
        let EngineOptions { probe_after, warn_after, drop_timeout, .. } = options;
        let stall_options = StallOptions { probe_after, warn_after, drop_timeout };
        let gate = CallGate::new(group, board, control, backend, options.timeout, stall_options);
        let messages = PointToPoint::new(gate.peers().clone());
        let (heard, ranks, idling) =
            (gate.board().heard().clone(), gate.group().size(), Idling::new(&options));
        let engine = Engine::new(links, planner, heard, (ranks, idling));
        let shared = Shared::new(gate, options, selector, messages, engine);
        Arc::new_cyclic(|own| EngineCommunicator { own: own.clone(), shared })
    }

    /// Rank, size, members.
    pub fn group(&self) -> &Group {
        self.shared.gate.group()
    }

    /// This communicator, beneath a vendor's.
    pub fn as_companion(&self) -> Companion {
        Companion::new(self.own(), self.shared.clone())
    }

    fn own(&self) -> Arc<EngineCommunicator<L>> {
        #[expect(clippy::expect_used, reason = "`new` is the only way to one, and gives an `Arc`")]
        self.own.upgrade().expect("a communicator is in an Arc")
    }

    /// Registers algorithms one after the other, with proofs.
    ///
    /// # Errors
    /// As [`Communicator::register`].
    pub fn register_all(&self, algorithms: &[Arc<Algorithm>]) -> Result<()> {
        algorithms.iter().try_for_each(|algorithm| Life::register(self, algorithm.clone(), Trust::Prove))
    }
}

impl<L: Links + 'static> Drop for EngineCommunicator<L> {
    fn drop(&mut self) {
        if !self.shared.gate.is_owner() {
            return;
        }
        if std::thread::panicking() {
            self.shared.gate.control().abandon();
        } else {
            self.shared.drop_handle();
        }
    }
}

impl<L: Links + 'static> Executor for EngineCommunicator<L> {
    fn group(&self) -> &Group {
        self.group()
    }

    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
        let shared = &self.shared;
        self.group().options().complete(&mut call.descriptor, &mut call.options);
        shared.admit(call)?;
        shared.refuse_device(call.memory())?;
        let gate = &shared.gate;
        let Operation::Collective(collective) = call.descriptor.operation else {
            let order = gate.order_of(call.scope)?;
            if let Some(outcome) = shared.message_at_once(call) {
                return Ok(outcome);
            }
            call.options = order.options(&call.options, gate.timeout());
            let entered = gate.board().enter_message(&call.descriptor, &call.options, call.site);
            let (timeout, mut result) = (call.options.timeout.unwrap_or(gate.timeout()), [None]);
            let ended = shared.exchange(std::slice::from_mut(call), timeout, &mut result);
            let result = ended.and_then(|()| result[0].take().unwrap_or_else(|| Err(Error::closed())));
            gate.board().leave_message(entered, (&call.descriptor, call.site), RecordedEnd::from(&result));
            return result;
        };
        let turn = gate.take_turn(call.scope, &call.descriptor, call.site, &mut call.options)?;
        let mut guard = shared.lock_links();
        shared.finish_queue(&mut guard)?;
        let mut active = None;
        if turn.enclosing().is_none()
            && let Some(outcome) = shared.begin_short(collective, call, &mut guard, &mut active)?
        {
            return Ok(outcome);
        }
        let mut active = match active {
            Some(active) => active,
            None => {
                let planned = ActiveCall::plan(collective, call, &mut guard)?;
                let enclosing = turn.enclosing();
                let mut active = ActiveCall::begin(collective, planned, call, &mut guard, gate, enclosing);
                active.copy_in(&call.buffers);
                active
            }
        };
        let mut task = OneCollective { shared, active: &mut active, buffers: &mut call.buffers };
        if let Err(error) = guard.drive(&mut task) {
            return Err(gate.settle(&mut guard, error));
        }
        gate.board().leave(active.number, active.course());
        active.copy_out(&mut call.buffers);
        let bytes = call.buffers.bytes_max();
        Ok(active.finish(&mut guard, gate.group(), bytes))
    }

    fn submit(&self, call: OwnedCall) -> Work {
        self.shared.submit(call)
    }

    fn life(&self) -> &dyn Life {
        self
    }
}

impl<L: Links + 'static> Life for EngineCommunicator<L> {
    fn backend(&self) -> &'static str {
        self.shared.gate.backend()
    }

    fn cost_model(&self) -> CostModel {
        self.shared.options.cost_model
    }

    fn observations(&self) -> Observations {
        self.shared.gate.observations()
    }

    fn supports(
        &self,
        _: &Group,
        descriptor: &Descriptor,
        options: &CallOptions,
        memory: MemoryKind,
    ) -> Result<()> {
        self.shared.supports(descriptor, options, memory)
    }

    fn prepare(
        &self,
        _: &Group,
        descriptor: &Descriptor,
        options: &CallOptions,
        memory: MemoryKind,
    ) -> Result<PreparedCall> {
        self.shared.prepare(descriptor, options, memory)
    }

    fn exchange(&self, calls: &mut [Call<'_>], results: &mut [Option<Result<Outcome>>]) -> Result<()> {
        self.shared.exchange_batch(calls, results)
    }

    fn probe(&self, call: &mut Call<'_>, waits: bool) -> Result<Option<Probed>> {
        self.shared.probe(call, waits)
    }

    fn register(&self, algorithm: Arc<Algorithm>, trust: Trust) -> Result<()> {
        self.shared.gate.admit(&"register")?;
        self.shared.gate.check_own_scope().map_err(|error| error.in_call(&"register"))?;
        let (selector, registry) = (self.shared.selector(), &self.shared.options.registry);
        let extended = registration::register(self, registry.snapshot(), selector.shape(), algorithm, trust)?;
        let selector = Arc::new(selector.among(extended.clone()));
        registry.set(extended);
        self.shared.set_selector(selector.clone());
        self.shared.lock_links().planner.set_selector(selector);
        Ok(())
    }

    fn subgroup_with(&self, ranks: &[u32], options: &GroupOptions) -> Result<Option<Arc<dyn Communicator>>> {
        Ok(self.as_companion().part(ranks, options)?.map(|group| group.communicator()))
    }

    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        Ok(self.shared.gate.duplicate()?.communicator())
    }

    fn agree(&self, flag: bool) -> Result<bool> {
        self.shared.agree(flag)
    }

    fn monitored_barrier(&self, timeout: Duration) -> Result<()> {
        self.shared.gate.monitored_barrier(timeout, self.shared.now())
    }

    fn shrink(&self) -> Result<Shrunk> {
        self.as_companion().survivors().map(Survivors::shrunk)
    }

    fn scope(&self, parent: ParentCall, options: &CallOptions) -> Result<Scope> {
        Ok(Scope::new(self.own(), Box::new(self.shared.open_scope(parent, options)?)))
    }

    fn revoke(&self, cause: Error) -> Result<()> {
        self.shared.revoke(cause)
    }

    fn abort(&self) -> Result<()> {
        self.shared.abort()
    }

    fn close(&self) -> Result<()> {
        let (shared, gate) = (&*self.shared, &self.shared.gate);
        gate.check_caller(&"close")?;
        if gate.is_closed() {
            return Ok(());
        }
        gate.check_own_scope().map_err(|error| error.in_call(&"close"))?;
        let turn = gate.wait_for_turn(&**gate.order(), gate.timeout());
        if let Ok(None) = turn {
            return Err(Error::ConcurrentUse { call: "close".to_owned() });
        }
        if !gate.begin_close() {
            return Ok(());
        }
        let mut guard = shared.lock_links();
        let finished = shared.finish_queue(&mut guard).and_then(|()| shared.finish_sends(&mut guard));
        let finished = finished.and_then(|()| shared.say_goodbye(&mut guard));
        let now = guard.links.now();
        drop(guard);
        // The other ranks read the remaining messages when they learn that this rank has closed.
        let closed = gate.close(now);
        if finished.is_err() && gate.board().is_survived() {
            return Ok(());
        }
        finished.and(closed)?;
        shared.await_goodbyes(&mut shared.lock_links())
    }
}

#[cfg(all(test, target_os = "linux"))]
#[path = "communicator_tests.rs"]
mod tests;
