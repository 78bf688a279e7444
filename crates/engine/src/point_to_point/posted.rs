//! Work of other threads for the holder of the links, which begins it at its next poll.

use std::sync::Arc;
use std::time::Duration;

use unisono_communicator::{Error, Operation};

use crate::calls::request::Request;

use super::unexpected::Unread;

/// Something that the holder of the links begins.
pub(crate) enum Posted {
    /// A send or a receive.
    Transfer { request: Arc<Request>, timeout: Duration },
    /// A probe that waits for its message.
    Probe { request: Arc<Request>, timeout: Duration, number: u64 },
    /// The receive of a message that a probe has found.
    Found { request: Arc<Request>, timeout: Duration, unread: Unread },
    /// A message that a probe has found and nobody has received.
    Returned(Unread),
    /// A look at every stream, for a probe that does not wait.
    Look,
}

impl Posted {
    fn request(&self) -> Option<&Request> {
        match self {
            Posted::Transfer { request, .. }
            | Posted::Probe { request, .. }
            | Posted::Found { request, .. } => Some(request),
            Posted::Returned(_) | Posted::Look => None,
        }
    }

    /// Whether it is a send.
    pub(super) fn is_send(&self) -> bool {
        self.request().is_some_and(|request| request.descriptor.operation == Operation::Send)
    }

    /// Whether it takes a message that has arrived.
    pub(super) fn is_receive(&self) -> bool {
        self.request().is_some_and(|request| request.descriptor.operation == Operation::Recv)
    }

    /// Ends its call with an error.
    pub(super) fn fail(&self, error: Error) {
        if let Some(request) = self.request() {
            request.fail(error);
        }
    }
}
