//! Probes: the search for a message, which then belongs to its finder.

use std::sync::{Arc, Weak};

use unisono_communicator::{
    Call, Descriptor, Error, FoundMessage, Operation, OwnedBuffers, OwnedCall, OwnedMemory, Probed, Result,
    Work,
};

use crate::calls::request::Request;
use crate::drive::Shared;
use crate::drive::handle::{RequestHandle, Upgraded};
use crate::links::Links;
use crate::lock;
use crate::point_to_point::{Posted, Unread};

/// A message that a probe has found. Dropped before it is received, it goes back to its place.
struct Found<L: Links + 'static> {
    /// Weak, as a handle's.
    shared: Weak<Shared<L>>,
    unread: Option<Unread>,
}

impl<L: Links + 'static> FoundMessage for Found<L> {
    fn receive(mut self: Box<Self>, call: OwnedCall) -> Work {
        let Some(shared) = Upgraded::of(&self.shared) else { return Work::refused(call, Error::closed()) };
        if let Err(error) = shared.admit(&call) {
            return Work::refused(call, error);
        }
        let Some(unread) = self.unread.take() else { return Work::refused(call, Error::closed()) };
        let timeout = call.options.timeout.unwrap_or(shared.gate.timeout());
        let request = Request::message(call, shared.monitor.clone(), shared.gate.board());
        shared.post_message(Posted::Found { request: request.clone(), timeout, unread });
        Work::new(RequestHandle::new(request, &shared))
    }
}

impl<L: Links + 'static> Drop for Found<L> {
    fn drop(&mut self) {
        if let Some(unread) = self.unread.take()
            && let Some(shared) = Upgraded::of(&self.shared)
            && shared.gate.is_owner()
        {
            shared.post_message(Posted::Returned(unread));
        }
    }
}

impl<L: Links + 'static> Shared<L> {
    /// The oldest message that the receive of `call` would get. If it `waits`, until there is one.
    ///
    /// # Errors
    /// As [`unisono_communicator::Life::probe`].
    pub(crate) fn probe(self: &Arc<Self>, call: &mut Call<'_>, waits: bool) -> Result<Option<Probed>> {
        self.gate.group().options().complete(&mut call.descriptor, &mut call.options);
        self.admit(call)?;
        call.options = self.gate.order_of(call.scope)?.options(&call.options, self.gate.timeout());
        let unread = if waits { self.await_message(call)? } else { self.arrived_message(&call.descriptor)? };
        Ok(unread.map(|unread| {
            let (from, size) = (unread.from(), unread.size());
            let found = Found { shared: Arc::downgrade(self), unread: Some(unread) };
            Probed::new(from, size, Box::new(found))
        }))
    }

    /// Waits for a message.
    fn await_message(self: &Arc<Self>, call: &Call<'_>) -> Result<Option<Unread>> {
        let empty = || OwnedMemory::of(Vec::<u8>::new());
        let buffers = OwnedBuffers::Separate { input: empty(), output: empty() };
        let timeout = call.options.timeout.unwrap_or(self.gate.timeout());
        let owned = OwnedCall { site: call.site, ..OwnedCall::new(call.descriptor, buffers) };
        let request = Request::new(owned, self.monitor.clone());
        let number = lock(&self.messages).next_probe();
        self.post_message(Posted::Probe { request: request.clone(), timeout, number });
        self.await_request(&request)?;
        Ok(lock(&self.messages).take_held(number))
    }

    /// A message that has arrived.
    fn arrived_message(self: &Arc<Self>, wanted: &Descriptor) -> Result<Option<Unread>> {
        debug_assert_eq!(wanted.operation, Operation::Recv, "a probe asks for the message of a receive");
        if let Some(mut guard) = self.try_lock_links() {
            self.hear_of_closing(&mut guard.links);
            let found = lock(&self.messages).probe_now(&mut guard.links, wanted);
            return found.map_err(|error| self.gate.settle(&mut guard, error));
        }
        // The thread that holds the links reads the streams of its own calls only.
        let mut messages = lock(&self.messages);
        if let Some(unread) = messages.take_arrived(wanted) {
            return Ok(Some(unread));
        }
        let is_news = messages.look();
        drop(messages);
        self.tell_of_messages(is_news);
        Ok(None)
    }
}
