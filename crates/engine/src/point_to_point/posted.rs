//! Work of other threads for the holder of the links, which begins it at its next poll.

use std::sync::Arc;
use std::time::Duration;

use unisono_communicator::{Descriptor, Error, Operation};

use crate::calls::request::Request;

use super::transfer::peer_of;
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

    /// Whether it is a receive or a probe that would get this message.
    pub(super) fn wants(&self, unread: &Unread) -> bool {
        match self {
            Posted::Transfer { request, .. } | Posted::Probe { request, .. } => {
                let Descriptor { operation, tag, .. } = request.descriptor;
                let fits_source = peer_of(&request.descriptor).is_none_or(|peer| peer == unread.source);
                operation == Operation::Recv && fits_source && tag.fits(unread.arrived.message().tag)
            }
            Posted::Found { .. } | Posted::Returned(_) | Posted::Look => false,
        }
    }

    /// Ends its call with an error.
    pub(super) fn fail(&self, error: Error) {
        if let Some(request) = self.request() {
            request.fail(error);
        }
    }
}
