//! A socket that carries data, and the rank on its other side.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// An authenticated, nonblocking socket to one rank. The engine's links use it; the control thread ends it in good
/// order.
#[derive(Debug)]
pub(crate) struct DataSocket {
    /// The other side's rank in the job.
    peer: u32,
    socket: OwnedFd,
}

impl DataSocket {
    /// A socket to the rank `peer` of the job.
    pub(crate) fn new(peer: u32, socket: OwnedFd) -> Arc<DataSocket> {
        Arc::new(DataSocket { peer, socket })
    }

    /// The other side's rank in the job.
    pub(crate) fn peer(&self) -> u32 {
        self.peer
    }
}

impl AsFd for DataSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
