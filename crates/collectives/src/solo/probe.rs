//! Messages that a probe has found in the world of one rank.

use std::sync::Arc;

use unisono_communicator::{Call, Error, Finished, FoundMessage, OwnedCall, Probed, Result, Work};

use crate::solo::messages::{Message, OWN};
use crate::solo::world::World;

impl World {
    /// Takes a message for a probe.
    pub(crate) fn probe(self: &Arc<Self>, call: &Call<'_>, waits: bool) -> Result<Option<Probed>> {
        let message = self.take(call, waits)?;
        Ok(message.map(|message| {
            let (size, tag) = ((message.dtype, message.bytes.len() as u64), message.tag);
            let found = Found { world: self.clone(), message: Some(message) };
            Probed::new((OWN.get(), tag), size, Box::new(found))
        }))
    }
}

/// A message that a probe has found. Dropped before it is received, it goes back to its place.
struct Found {
    world: Arc<World>,
    message: Option<Message>,
}

impl FoundMessage for Found {
    fn receive(mut self: Box<Self>, mut call: OwnedCall) -> Work {
        let Some(message) = self.message.take() else { return Work::refused(call, Error::closed()) };
        let result = message.deliver_owned(&mut call).map_err(|error| error.in_call(&call));
        Work::finished(Finished { result, buffers: Some(call.buffers) })
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        if let Some(message) = self.message.take() {
            // An error is the first cause, which the next call returns.
            let _ = self.world.give(self.world.lock(), message);
        }
    }
}
