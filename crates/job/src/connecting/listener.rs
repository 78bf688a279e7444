//! Where a rank listens: over TCP, and within its host.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;

use super::local;
use crate::sockets::{self, SocketOptions};

/// The listening sockets of one rank. The name of the Unix socket is made of the TCP address, and they are bound
/// together: the other ranks may dial as soon as they know the address.
#[derive(Debug)]
pub struct Listener {
    pub(crate) tcp: TcpListener,
    /// `None` where the system has none, or another process has the name: the other ranks come over TCP then.
    pub(crate) unix: Option<UnixListener>,
}

impl Listener {
    /// Listens at this address.
    pub(crate) fn bind(address: SocketAddr, options: SocketOptions) -> io::Result<Listener> {
        let tcp = sockets::listen(address, options)?;
        let unix = tcp.local_addr().and_then(local::listen).ok();
        Ok(Listener { tcp, unix })
    }

    /// Its TCP address.
    ///
    /// # Errors
    /// Those of getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}
