//! What is done with an admitted call, whether the communicator itself or one of its scopes issues it.

use std::sync::Arc;

use unisono_backend::{Companion, Enclosing, Entered, Executor, ScopeTurn, Survivors};
use unisono_communicator::{
    Call, CallInfo, CallOptions, Collective, Descriptor, Error, MemoryKind, Operation, Outcome, OwnedCall,
    Result, Site, Sizes, Work, check_request,
};

use crate::drive::Shared;
use crate::drive::call::{ActiveCall, enter, timeout_within};
use crate::drive::executed::{copied, write_back};
use crate::drive::handle::RequestHandle;
use crate::drive::pending::OneCollective;
use crate::drive::progress::Progress;
use crate::drive::queue::QueuedCollective;
use crate::drive::request::Request;
use crate::links::Links;
use crate::lock;
use crate::plan::header::{CallHeader, hash_named};

impl<L: Links + 'static> Shared<L> {
    /// Runs a call to its end, a collective by `executor` if there is one, within `scope` if there is one.
    ///
    /// # Errors
    /// As [`unisono_communicator::Communicator::execute`].
    pub(crate) fn execute(
        self: &Arc<Self>,
        call: &mut Call<'_>,
        executor: Option<&Arc<dyn Executor>>,
        scope: Option<&ScopeTurn>,
    ) -> Result<Outcome> {
        self.admit(call)?;
        self.refuse_device(call.memory())?;
        let Operation::Collective(collective) = call.descriptor.operation else {
            self.bound_by(scope, &mut call.options);
            return self.run_point_to_point(call);
        };
        let (shared, gate) = (&**self, &self.gate);
        if let Some(scope) = scope {
            call.options = scope.options(&call.options);
        }
        self.bound_by(scope, &mut call.options);
        let order = scope.map_or(&**gate.order(), ScopeTurn::order);
        let patience = gate.patience(call.descriptor.label, &call.options);
        let info = || uncounted(&call.descriptor, call.site);
        let turn = gate.take_turn(order, &call.descriptor, info, patience)?;
        call.options.timeout = Some(turn.time_left(call.options.timeout.unwrap_or(gate.timeout())));
        let mut guard = shared.lock_links();
        shared.finish_queue(&mut guard)?;
        let enclosing = scope.map(ScopeTurn::enclosing);
        let mut active = match executor {
            Some(executor) => {
                let met = (copied(&call.buffers, gate.backend()), ActiveCall::plan_meeting(&mut guard)?);
                let ends = call.buffers.segment_ends();
                ActiveCall::begin_meeting(executor, met, call, ends, &mut guard, gate, enclosing)
            }
            None => {
                let planned = ActiveCall::plan(collective, call, &mut guard)?;
                ActiveCall::begin(collective, planned, call, &mut guard, gate, enclosing)
            }
        };
        let mut task = OneCollective { shared, active: &mut active, buffers: &mut call.buffers };
        if let Err(error) = guard.drive(&mut task) {
            return Err(gate.settle(&mut guard, error));
        }
        gate.board().progress().leave(active.number);
        if let Some(Some(copy)) = active.executed_buffers() {
            write_back(copy, &mut call.buffers);
        }
        let bytes = call.buffers.bytes_max();
        Ok(active.finish(&mut guard, gate.group(), bytes))
    }

    /// Starts a call, within `scope` if there is one.
    pub(crate) fn submit(
        self: &Arc<Self>,
        mut call: OwnedCall,
        executor: Option<&Arc<dyn Executor>>,
        scope: Option<&ScopeTurn>,
    ) -> Work {
        let admitted = self.admit(&call).and_then(|()| {
            self.refuse_device(call.memory())?;
            // It drops the keeper.
            let started =
                if call.buffers.has_keeper() { self.completions.callbacks().start() } else { Ok(()) };
            started.map_err(|error| self.end_everywhere(error))
        });
        if let Err(error) = admitted {
            return Work::refused(call, error);
        }
        match call.descriptor.operation {
            Operation::Collective(collective) => self.queue_collective(collective, call, executor, scope),
            Operation::Send | Operation::Recv => {
                self.bound_by(scope, &mut call.options);
                self.submit_message(call)
            }
        }
    }

    /// Queues an asynchronous collective, for whoever holds the links.
    fn queue_collective(
        self: &Arc<Self>,
        collective: Collective,
        mut call: OwnedCall,
        executor: Option<&Arc<dyn Executor>>,
        scope: Option<&ScopeTurn>,
    ) -> Work {
        if let Some(scope) = scope {
            call.options = scope.options(&call.options);
        }
        self.bound_by(scope, &mut call.options);
        let order = scope.map_or(&**self.gate.order(), ScopeTurn::order);
        let patience = self.gate.patience(call.descriptor.label, &call.options);
        let info = || uncounted(&call.descriptor, call.site);
        let request = match self.gate.take_turn(order, &call.descriptor, info, patience) {
            Ok(turn) => {
                let timeout = call.options.timeout.unwrap_or(self.gate.timeout());
                call.options.timeout = Some(turn.time_left(timeout));
                let enclosing: Option<Enclosing> = scope.map(|scope| scope.enclosing().clone());
                let completions = self.completions.clone();
                let request = Request::collective(call, completions, enclosing, self.gate.board());
                let queued =
                    QueuedCollective { collective, request: request.clone(), executor: executor.cloned() };
                self.queue.push(queued);
                request
            }
            Err(error) => return Work::refused(call, error),
        };
        self.nudge_holder();
        if let Err(error) = Progress::notify(self) {
            self.gate.fail(error);
        }
        self.handle(request)
    }

    /// Gives a collective its turn and its number, for a caller that runs it by `name`.
    ///
    /// # Errors
    /// As [`unisono_backend::Companion::enter`].
    pub(crate) fn enter<'a>(
        &'a self,
        named: (&'static str, u32),
        call: &Call<'_>,
        scope: Option<&'a ScopeTurn>,
    ) -> Result<Entered<'a>> {
        self.admit(call)?;
        let options = scope.map_or(call.options, |scope| scope.options(&call.options));
        let order = scope.map_or(&**self.gate.order(), ScopeTurn::order);
        let patience = self.gate.patience(call.descriptor.label, &options);
        let turn = self.gate.take_turn(
            order,
            &call.descriptor,
            || uncounted(&call.descriptor, call.site),
            patience,
        )?;
        if !self.queue.is_empty() {
            self.finish_queue(&mut self.lock_links())?;
        }
        let sizes = Sizes::of(call.descriptor.dtype, &call.counts, call.buffers.segment_ends()).map(Arc::new);
        let header = CallHeader::new(&call.descriptor, 0, hash_named(named), 0);
        let enclosing = scope.map(ScopeTurn::enclosing);
        let number = enter(&self.gate, call, named, sizes.as_ref(), enclosing, header, drop);
        Ok(Entered { number, turn })
    }

    /// Posts an asynchronous send or receive.
    fn submit_message(self: &Arc<Self>, call: OwnedCall) -> Work {
        let timeout = call.options.timeout.unwrap_or(self.gate.timeout());
        let request = Request::message(call, self.completions.clone(), self.gate.board());
        self.post_message(request.clone(), timeout);
        self.handle(request)
    }

    fn handle(self: &Arc<Self>, request: Arc<Request>) -> Work {
        Work::new(RequestHandle::new(request, self))
    }

    /// A call within a scope ends with it, also one that waits for its turn.
    fn bound_by(&self, scope: Option<&ScopeTurn>, options: &mut CallOptions) {
        if scope.is_some() {
            options.timeout = Some(timeout_within(scope.map(ScopeTurn::enclosing), options, &self.gate));
        }
    }

    #[inline]
    fn refuse_device(&self, memory: MemoryKind) -> Result<()> {
        match memory {
            MemoryKind::Host => Ok(()),
            MemoryKind::Device => Err(Error::no_device(self.gate.backend())),
        }
    }

    /// Whether there is an algorithm for such a call.
    ///
    /// # Errors
    /// As [`unisono_communicator::Communicator::supports`].
    pub(crate) fn supports(
        &self,
        descriptor: &Descriptor,
        options: &CallOptions,
        memory: MemoryKind,
    ) -> Result<()> {
        self.gate.check_caller(descriptor)?;
        check_request(descriptor, options, self.gate.group())?;
        self.refuse_device(memory)?;
        match descriptor.operation {
            Operation::Collective(collective) => self.selector().supports(collective, descriptor, options),
            Operation::Send | Operation::Recv => Ok(()),
        }
    }

    /// The flags of all survivors.
    ///
    /// # Errors
    /// As [`unisono_communicator::Communicator::agree`].
    pub(crate) fn agree(&self, flag: bool) -> Result<bool> {
        self.gate.check_caller(&"agree")?;
        self.gate.agree(flag, self.now())
    }

    /// A communicator of the same ranks.
    ///
    /// # Errors
    /// As [`unisono_communicator::Communicator::duplicate`].
    pub(crate) fn duplicate(&self) -> Result<Arc<dyn Companion>> {
        let ranks: Vec<u32> = (0..self.gate.group().size()).collect();
        // INVARIANT: a group contains its own rank, so the list of all ranks does.
        self.gate.subgroup(&ranks).map(|copy| copy.expect("every rank is a member"))
    }

    /// The communicator of the survivors.
    ///
    /// # Errors
    /// As [`unisono_communicator::Communicator::shrink`].
    pub(crate) fn shrink(&self) -> Result<Survivors> {
        let gate = &self.gate;
        gate.check_caller(&"shrink")?;
        let shrunk = gate.shrink(self.now())?;
        if gate.board().first_cause().is_revoked() {
            // No thread may use the streams of an epoch that has ended.
            let mut guard = self.lock_links();
            guard.links.close();
            lock(&self.messages).fail(&Error::closed());
        }
        Ok(shrunk)
    }

    /// Ends every call on every rank.
    ///
    /// # Errors
    /// As [`unisono_communicator::Communicator::revoke`].
    pub(crate) fn revoke(&self, cause: Error) -> Result<()> {
        self.gate.check_caller(&"revoke")?;
        let seen = self.gate.revoke(cause);
        self.give_up(&seen);
        Ok(())
    }

    /// Ends every call on every rank, because this one cannot make a call that the others wait for. Gives the error of
    /// that call.
    pub(crate) fn end_everywhere(&self, error: Error) -> Error {
        let seen = self.gate.fail(error);
        self.give_up(&seen);
        seen
    }

    /// Ends every call on every rank, for no other cause.
    ///
    /// # Errors
    /// As [`unisono_communicator::Communicator::abort`].
    pub(crate) fn abort(&self) -> Result<()> {
        self.gate.check_caller(&"abort")?;
        let seen = self.gate.abort();
        self.give_up(&seen);
        Ok(())
    }
}

/// A call that has no number, as errors show it.
fn uncounted(descriptor: &Descriptor, site: Site) -> CallInfo {
    CallInfo { site: Some(site.into()), ..CallInfo::new(0, *descriptor) }
}
