//! Issues calls: admits them, takes their turn, and queues asynchronous ones.

use std::sync::Arc;

use unisono_backend::{Entered, Survivors, Turn};
use unisono_communicator::{
    Call, CallOptions, Collective, Descriptor, Error, MemoryKind, Operation, OwnedCall, Result, Sizes, Work,
    check_request,
};

use crate::drive::Shared;
use crate::drive::call::enter;
use crate::drive::handle::RequestHandle;
use crate::drive::queue::QueuedCollective;
use crate::drive::request::Request;
use crate::links::Links;
use crate::lock;
use crate::plan::header::{CallHeader, hash_named};

impl<L: Links + 'static> Shared<L> {
    /// Starts a call.
    pub(crate) fn submit(self: &Arc<Self>, mut call: OwnedCall) -> Work {
        let request = match self.turn_to_submit(&mut call) {
            Ok(Some((collective, turn))) => self.queue_collective(collective, call, &turn),
            Ok(None) => self.submit_message(call),
            Err(error) => return Work::refused(call, error),
        };
        Work::new(RequestHandle::new(request, self))
    }

    /// Admits an asynchronous call, and gives a collective its turn.
    fn turn_to_submit(&self, call: &mut OwnedCall) -> Result<Option<(Collective, Turn<'_>)>> {
        let gate = &self.gate;
        self.admit(call)?;
        self.refuse_device(call.memory())?;
        if call.buffers.has_keeper() {
            // It drops the keeper.
            self.monitor.callbacks().start().map_err(|error| self.end_everywhere(error))?;
        }
        match call.descriptor.operation {
            Operation::Collective(collective) => {
                let turn = gate.take_turn(call.scope, &call.descriptor, call.site, &mut call.options)?;
                Ok(Some((collective, turn)))
            }
            Operation::Send | Operation::Recv => {
                call.options = gate.order_of(call.scope)?.options(&call.options, gate.timeout());
                Ok(None)
            }
        }
    }

    /// Queues an asynchronous collective, whose turn it is, for the holder of the links.
    fn queue_collective(
        self: &Arc<Self>,
        collective: Collective,
        call: OwnedCall,
        turn: &Turn<'_>,
    ) -> Arc<Request> {
        let (monitor, enclosing) = (self.monitor.clone(), turn.enclosing().cloned());
        let request = Request::collective(call, monitor, enclosing, self.gate.board());
        self.queue.push(QueuedCollective { collective, request: request.clone() });
        self.nudge_holder();
        if let Err(error) = self.ask_for_progress() {
            self.gate.fail(error);
        }
        request
    }

    /// Gives a collective its turn and its number, for a caller that runs it by `name`.
    ///
    /// # Errors
    /// As [`unisono_backend::Companion::enter`].
    pub(crate) fn enter(&self, named: (&'static str, u32), call: &mut Call<'_>) -> Result<Entered<'_>> {
        self.admit(call)?;
        let turn = self.gate.take_turn(call.scope, &call.descriptor, call.site, &mut call.options)?;
        if !self.queue.is_empty() {
            self.finish_queue(&mut self.lock_links())?;
        }
        let sizes = Sizes::of(call.descriptor.dtype, &call.counts, call.buffers.segment_ends()).map(Arc::new);
        let header = CallHeader::new(&call.descriptor, 0, hash_named(named), 0);
        let number = enter(&self.gate, call, named, sizes.as_ref(), turn.enclosing(), header, drop);
        Ok(Entered { number, turn })
    }

    /// Posts an asynchronous send or receive.
    fn submit_message(self: &Arc<Self>, call: OwnedCall) -> Arc<Request> {
        let timeout = call.options.timeout.unwrap_or(self.gate.timeout());
        let request = Request::message(call, self.monitor.clone(), self.gate.board());
        self.post_message(request.clone(), timeout);
        request
    }

    #[inline]
    pub(crate) fn refuse_device(&self, memory: MemoryKind) -> Result<()> {
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
