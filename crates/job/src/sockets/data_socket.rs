//! A socket that carries data, and the rank on its other side.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::ioctl_fionread;
use unisono_communicator::JobRank;
use unisono_control::wire::ConnectionRole;

/// A goodbye and a credit, 32 bytes each, may lie unread when a rank leaves.
const FRAMES_WITHOUT_MESSAGE_BYTES: u64 = 64;

/// An authenticated, nonblocking socket to one rank. The engine's links use it; the control thread ends it in good
/// order.
#[derive(Debug)]
pub struct DataSocket {
    /// The other side.
    peer: JobRank,
    role: ConnectionRole,
    socket: OwnedFd,
}

impl DataSocket {
    /// A socket to `peer`, for what `role` says.
    pub(crate) fn new(peer: JobRank, role: ConnectionRole, socket: OwnedFd) -> Arc<DataSocket> {
        Arc::new(DataSocket { peer, role, socket })
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
