//! The sockets on which a rank listens: over TCP, and within its host.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;

use unisono_control::roster::message::RankProcess;
use unisono_control::secret::Secret;

use super::local::{self, LocalRank};
use crate::sockets::{self, SocketOptions};

/// The listening sockets of a rank that knows its secret. The other ranks may dial both as soon as they know the
/// address.
#[derive(Debug)]
pub struct Listener {
    pub(crate) tcp: TcpListener,
    /// `None` where the system has none, or no descriptor is left: the other ranks come over TCP then.
    pub(crate) unix: Option<UnixListener>,
}

impl Listener {
    /// Listens at this address, as this process of a job with this secret.
    pub(crate) fn bind(
        address: SocketAddr,
        (secret, process): (&Secret, Option<&RankProcess>),
        options: SocketOptions,
    ) -> io::Result<Listener> {
        let tcp = sockets::listen(address, options)?;
        let address = tcp.local_addr()?;
        let rank = LocalRank { secret: secret.clone(), address, process: process.cloned() };
        Ok(Listener { tcp, unix: local::listen(&rank).ok() })
    }

    /// Its TCP address.
    ///
    /// # Errors
    /// The errors of getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}
