//! A connection that carries data, and the rank on its other side.

use std::fmt::{self, Display, Formatter};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::{Errno, ioctl_fionread};
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use unisono_communicator::JobRank;
use unisono_control::wire::ConnectionRole;
use unisono_shared_memory::{Bell, Segments};

use super::acknowledgement::unacknowledged_bytes;

/// A goodbye and a credit, 32 bytes each, may lie unread when a rank leaves.
const FRAMES_WITHOUT_MESSAGE_BYTES: u64 = 64;

/// The way of the data on a connection. Both sides have agreed on it.
#[derive(Clone, Debug)]
pub enum Way {
    /// Over the socket, which is a TCP socket.
    Tcp,
    /// Over the socket, which is a Unix socket within a host.
    Unix,
    /// Through this memory, within a host. The Unix socket wakes the other side, and shows its end.
    Memory(Arc<Segments>),
}

impl Display for Way {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Tcp => "over TCP",
            Way::Unix => "over a Unix socket",
            Way::Memory(_) => "through memory",
        })
    }
}

/// An authenticated connection to one rank, with a nonblocking socket. The engine's links use it; the control thread
/// ends it in good order.
#[derive(Debug)]
pub struct DataSocket {
    /// The other side.
    peer: JobRank,
    role: ConnectionRole,
    way: Way,
    socket: OwnedFd,
}

impl DataSocket {
    /// A connection to `peer`, for the purpose of `role`.
    pub(crate) fn new(peer: JobRank, role: ConnectionRole, (socket, way): (OwnedFd, Way)) -> Arc<DataSocket> {
        Arc::new(DataSocket { peer, role, way, socket })
    }

    /// The way of its data.
    pub fn way(&self) -> &Way {
        &self.way
    }

    /// Whether everything that was sent on it will arrive even if this process ends now.
    pub fn is_delivered(&self) -> bool {
        match &self.way {
            Way::Tcp => unacknowledged_bytes(self) == Some(0),
            // Sent bytes lie with the receiver at once.
            Way::Unix | Way::Memory(_) => true,
        }
    }

    /// Ends the outgoing half: the other side gets the sent bytes, and then the end.
    pub fn end(&self) {
        if let Way::Memory(segments) = &self.way {
            segments.end();
        }
        // A socket that has no other side any more has nothing to end.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
    }

    /// Whether the other side is still there, after its bell has rung: with [`Way::Memory`] nothing but the ringing
    /// comes over the socket.
    pub fn is_there(&self) -> bool {
        // Once: a rank that rings without end must not keep this one here, and the next sleep ends at once.
        match rustix::net::recv(&self.socket, &mut [0u8; 256], RecvFlags::DONTWAIT) {
            Ok((_, bytes)) => bytes > 0,
            Err(error) => matches!(error, Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM),
        }
    }

    /// Whether messages lie in it that have arrived, and that this rank has not looked at.
    pub(crate) fn has_unread_messages(&self) -> bool {
        let unread = || match &self.way {
            Way::Tcp | Way::Unix => ioctl_fionread(&self.socket).unwrap_or(0),
            Way::Memory(segments) => segments.unread_bytes(),
        };
        self.role == ConnectionRole::PointToPoint && unread() > FRAMES_WITHOUT_MESSAGE_BYTES
    }

    /// The other side.
    pub(crate) fn peer(&self) -> JobRank {
        self.peer
    }
}

impl Bell for DataSocket {
    fn ring(&self) {
        // It fails when the socket is full, and then the bell has rung; or when the other side has gone.
        let _ = rustix::net::send(&self.socket, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

impl AsFd for DataSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
