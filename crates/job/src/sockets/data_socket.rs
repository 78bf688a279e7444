//! A socket that carries data, and the rank on its other side.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::ioctl_fionread;
use unisono_communicator::JobRank;
use unisono_control::wire::ConnectionRole;

use super::acknowledgement::unacknowledged_bytes;

/// A goodbye and a credit, 32 bytes each, may lie unread when a rank leaves.
const FRAMES_WITHOUT_MESSAGE_BYTES: u64 = 64;

/// The kind of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SocketKind {
    /// TCP.
    Tcp,
    /// A Unix stream socket, within a host. It can pass descriptors ([`DataSocket::send_descriptors`]).
    Unix,
}

/// An authenticated, nonblocking socket to one rank. The engine's links use it; the control thread ends it in good
/// order.
#[derive(Debug)]
pub struct DataSocket {
    /// The other side.
    peer: JobRank,
    role: ConnectionRole,
    kind: SocketKind,
    socket: OwnedFd,
}

impl DataSocket {
    /// A socket to `peer`, for what `role` says.
    pub(crate) fn new(
        peer: JobRank,
        (role, kind): (ConnectionRole, SocketKind),
        socket: OwnedFd,
    ) -> Arc<DataSocket> {
        Arc::new(DataSocket { peer, role, kind, socket })
    }

    /// Its kind, the same on both sides.
    pub fn kind(&self) -> SocketKind {
        self.kind
    }

    /// Whether everything that was sent on it will arrive even if this process ends now.
    pub fn is_delivered(&self) -> bool {
        match self.kind {
            SocketKind::Tcp => unacknowledged_bytes(self) == Some(0),
            // Sent bytes lie with the receiver at once.
            SocketKind::Unix => true,
        }
    }

    /// Whether messages lie in it that have arrived, and that this rank has not looked at.
    pub(crate) fn has_unread_messages(&self) -> bool {
        let unread = || ioctl_fionread(&self.socket).unwrap_or(0);
        self.role == ConnectionRole::PointToPoint && unread() > FRAMES_WITHOUT_MESSAGE_BYTES
    }

    /// The other side.
    pub(crate) fn peer(&self) -> JobRank {
        self.peer
    }
}

impl AsFd for DataSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
