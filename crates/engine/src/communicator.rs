//! The communicator over any links: admits calls, gives them their order, drives them.

use std::sync::Arc;

use unisono_backend::{Board, CallGate, Control};
use unisono_communicator::{
    Call, CallOptions, Collective, Communicator, Descriptor, Error, Finished, Group, Operation, Outcome,
    OwnedCall, Result, Shrunk, Work, check_request,
};
use unisono_schedule::{Algorithm, Trust};

use crate::drive::Shared;
use crate::drive::call::{ActiveCall, Engine, buffers_bytes};
use crate::drive::handle::RequestHandle;
use crate::drive::pending::OneCollective;
use crate::drive::progress::Progress;
use crate::drive::queue::QueuedCollective;
use crate::drive::request::Request;
use crate::links::Links;
use crate::lock;
use crate::options::EngineOptions;
use crate::plan::planner::Planner;
use crate::point_to_point::PointToPoint;
use crate::registration;

/// What a transport hands over for one communicator.
pub struct Parts<L> {
    /// The group.
    pub group: Group,
    /// The streams to them.
    pub links: L,
    /// The control plane.
    pub control: Arc<dyn Control>,
    /// The notice board, which the control plane reads too.
    pub board: Arc<Board>,
    /// Settings.
    pub options: EngineOptions,
    /// The transport's name.
    pub backend: &'static str,
}

/// A communicator that runs schedules over a transport's links.
pub struct EngineCommunicator<L: Links + 'static> {
    shared: Arc<Shared<L>>,
}

impl<L: Links + 'static> EngineCommunicator<L> {
    /// A communicator over a transport.
    pub fn new(parts: Parts<L>) -> Arc<EngineCommunicator<L>> {
        let Parts { group, links, control, board, options, backend } = parts;
        let planner = Planner::new(&group, &options);
        let selector = planner.selector().clone();
        let gate = CallGate::new(group, board, control, backend, options.timeout);
        let messages = PointToPoint::new(gate.peers().clone());
        let engine = Engine::new(links, planner, gate.board().heard().clone(), gate.group().size());
        Arc::new(EngineCommunicator { shared: Shared::new(gate, options, selector, messages, engine) })
    }

    /// Registers algorithms one after the other, with proofs.
    ///
    /// # Errors
    /// Those of [`Communicator::register`].
    pub fn register_all(&self, algorithms: &[Arc<Algorithm>]) -> Result<()> {
        algorithms.iter().try_for_each(|algorithm| self.register(algorithm.clone(), Trust::Prove))
    }

    fn run_collective(&self, collective: Collective, call: &mut Call<'_>) -> Result<Outcome> {
        let (shared, gate) = (&*self.shared, &self.shared.gate);
        let turn = gate.issue(&call.descriptor, &call.options, call.site.into())?;
        call.options.timeout = Some(turn.time_left(call.options.timeout.unwrap_or(gate.timeout())));
        let mut guard = shared.lock_links();
        shared.finish_queue(&mut guard)?;
        let active = ActiveCall::start(collective, call, &mut guard, gate)?;
        let mut task = OneCollective { shared, active, buffers: &mut call.buffers };
        if let Err(error) = guard.drive(&mut task) {
            return Err(gate.settle(&mut guard, error));
        }
        let active = task.active;
        gate.board().leave(active.number);
        let bytes = buffers_bytes(&call.buffers);
        Ok(active.finish(&mut guard, bytes))
    }

    /// Queues an asynchronous collective, for whoever holds the links.
    fn queue_collective(&self, collective: Collective, mut call: OwnedCall) -> Work {
        let gate = &self.shared.gate;
        let request = match gate.issue(&call.descriptor, &call.options, call.site.into()) {
            Ok(turn) => {
                call.options.timeout = Some(turn.time_left(call.options.timeout.unwrap_or(gate.timeout())));
                let request = Request::new(call, self.shared.completions.clone());
                self.shared.queue.push(QueuedCollective { collective, request: request.clone() });
                request
            }
            Err(error) => return refused(call, error),
        };
        self.shared.nudge_holder();
        if let Err(error) = Progress::notify(&self.shared) {
            gate.fail(error);
        }
        self.handle(request)
    }

    /// Posts an asynchronous send or receive.
    fn post_message(&self, call: OwnedCall) -> Work {
        let gate = &self.shared.gate;
        let timeout = call.options.timeout.unwrap_or(gate.timeout());
        let request = Request::message(call, self.shared.completions.clone(), gate.board());
        self.shared.post_message(request.clone(), timeout);
        self.handle(request)
    }

    fn handle(&self, request: Arc<Request>) -> Work {
        Work::new(RequestHandle { request, shared: self.shared.clone() })
    }
}

/// The handle of a call that has not begun, with its memory.
fn refused(call: OwnedCall, error: Error) -> Work {
    Work::finished(Finished { result: Err(error), buffers: Some(call.buffers) })
}

impl<L: Links + 'static> Drop for EngineCommunicator<L> {
    fn drop(&mut self) {
        if std::thread::panicking() && self.shared.gate.is_owner() {
            self.shared.gate.control().abandon();
        }
    }
}

fn device_unsupported(backend: &'static str) -> Error {
    let instead = Some("a vendor's backend, or copy to the host".to_owned());
    Error::Unsupported { what: "device memory".to_owned(), backend, instead }
}

impl<L: Links + 'static> Communicator for EngineCommunicator<L> {
    fn group(&self) -> &Group {
        self.shared.gate.group()
    }

    fn execute(&self, mut call: Call<'_>) -> Result<Outcome> {
        self.shared.admit(&call.descriptor)?;
        if call.buffers.on_device() {
            return Err(device_unsupported(self.backend()));
        }
        match call.descriptor.operation {
            Operation::Collective(collective) => self.run_collective(collective, &mut call),
            Operation::Send | Operation::Recv => self.shared.run_point_to_point(call),
        }
    }

    fn submit(&self, call: OwnedCall) -> Work {
        let admitted = self.shared.admit(&call.descriptor).and_then(|()| {
            if call.buffers.on_device() {
                return Err(device_unsupported(self.backend()));
            }
            // It drops the keeper.
            if call.buffers.has_keeper() { self.shared.completions.callbacks().start() } else { Ok(()) }
        });
        if let Err(error) = admitted {
            return refused(call, error);
        }
        match call.descriptor.operation {
            Operation::Collective(collective) => self.queue_collective(collective, call),
            Operation::Send | Operation::Recv => self.post_message(call),
        }
    }

    fn backend(&self) -> &'static str {
        self.shared.gate.backend()
    }

    fn supports(&self, descriptor: &Descriptor, options: &CallOptions) -> Result<()> {
        self.shared.gate.check_caller(descriptor)?;
        check_request(descriptor, options, self.group())?;
        match descriptor.operation {
            Operation::Collective(collective) => {
                self.shared.selector().supports(collective, descriptor, options)
            }
            Operation::Send | Operation::Recv => Ok(()),
        }
    }

    fn register(&self, algorithm: Arc<Algorithm>, trust: Trust) -> Result<()> {
        self.shared.gate.admit(&"register")?;
        let (selector, registry) = (self.shared.selector(), &self.shared.options.registry);
        let extended = registration::register(self, registry.snapshot(), selector.shape(), algorithm, trust)?;
        let selector = Arc::new(selector.among(extended.clone()));
        registry.set(extended);
        self.shared.set_selector(selector.clone());
        self.shared.lock_links().planner.set_selector(selector);
        Ok(())
    }

    fn subgroup(&self, ranks: &[u32]) -> Result<Option<Arc<dyn Communicator>>> {
        self.shared.gate.subgroup(ranks)
    }

    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        let ranks: Vec<u32> = (0..self.group().size()).collect();
        // INVARIANT: a group contains its own rank, so the list of all ranks does.
        self.subgroup(&ranks).map(|copy| copy.expect("every rank is a member"))
    }

    fn agree(&self, flag: bool) -> Result<bool> {
        self.shared.gate.check_caller(&"agree")?;
        self.shared.gate.agree(flag, self.shared.now())
    }

    fn shrink(&self) -> Result<Shrunk> {
        let gate = &self.shared.gate;
        gate.check_caller(&"shrink")?;
        let shrunk = gate.shrink(self.shared.now())?;
        if gate.board().is_revoked() {
            // No thread may use the streams of an epoch that has ended.
            let mut guard = self.shared.lock_links();
            guard.links.close();
            lock(&self.shared.messages).fail(&Error::Closed);
        }
        Ok(shrunk)
    }

    fn revoke(&self, cause: Error) -> Result<()> {
        self.shared.gate.check_caller(&"revoke")?;
        let seen = self.shared.gate.revoke(cause);
        self.shared.give_up(&seen);
        Ok(())
    }

    fn close(&self) -> Result<()> {
        let (shared, gate) = (&*self.shared, &self.shared.gate);
        gate.check_caller(&"close")?;
        if !gate.begin_close() {
            return Ok(());
        }
        let _turn = gate.wait_for_turn();
        let mut guard = shared.lock_links();
        let finished = shared.finish_queue(&mut guard).and_then(|()| shared.finish_sends(&mut guard));
        let finished = finished.and_then(|()| shared.say_goodbye(&mut guard));
        let now = guard.links.now();
        drop(guard);
        // The other ranks read what was sent when they learn that this rank has closed.
        let closed = gate.close(now);
        finished.and(closed)?;
        shared.await_goodbyes(&mut shared.lock_links())
    }
}
