//! A socket that carries data, and the rank on its other side.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use unisono_communicator::JobRank;

/// An authenticated, nonblocking socket to one rank. The engine's links use it; the control thread ends it in good
/// order.
#[derive(Debug)]
pub(crate) struct DataSocket {
    /// The other side.
    peer: JobRank,
    socket: OwnedFd,
}

impl DataSocket {
    /// A socket to `peer`.
    pub(crate) fn new(peer: JobRank, socket: OwnedFd) -> Arc<DataSocket> {
        Arc::new(DataSocket { peer, socket })
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
