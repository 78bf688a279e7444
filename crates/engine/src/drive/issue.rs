//! Issues calls: admits them, takes their turn, and queues asynchronous ones.

use std::sync::Arc;

use unisono_backend::Turn;
use unisono_communicator::{
    CallOptions, Collective, Descriptor, Error, MemoryKind, Operation, OwnedCall, Result, Work, check_request,
};

use crate::calls::queue::QueuedCollective;
use crate::calls::request::Request;
use crate::drive::Shared;
use crate::drive::handle::RequestHandle;
use crate::links::Links;
use crate::point_to_point::Posted;

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
        gate.group().options().complete(&mut call.descriptor, &mut call.options);
        self.admit(call)?;
        self.refuse_device(call.memory())?;
        if call.buffers.has_keeper() {
            // It drops the keeper.
            self.monitor.pool().start().map_err(|error| self.end_everywhere(error))?;
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

    /// Posts an asynchronous send or receive.
    fn submit_message(self: &Arc<Self>, call: OwnedCall) -> Arc<Request> {
        let timeout = call.options.timeout.unwrap_or(self.gate.timeout());
        let request = Request::message(call, self.monitor.clone(), self.gate.board());
        self.post_message(Posted::Transfer { request: request.clone(), timeout });
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
        let (mut descriptor, mut options) = (*descriptor, *options);
        self.gate.group().options().complete(&mut descriptor, &mut options);
        let (descriptor, options) = (&descriptor, &options);
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
