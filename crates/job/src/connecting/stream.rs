//! A connection of either kind: over TCP, or over a Unix socket between two ranks of one host.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::sockets::SocketKind;

/// A connection.
#[derive(Debug)]
pub(crate) enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Within a host.
    Unix(UnixStream),
}

impl Stream {
    /// Its kind.
    pub(crate) fn kind(&self) -> SocketKind {
        match self {
            Stream::Tcp(_) => SocketKind::Tcp,
            Stream::Unix(_) => SocketKind::Unix,
        }
    }

    /// The address of the other side.
    ///
    /// # Errors
    /// When the connection has ended, and for a Unix socket, which has none.
    pub(crate) fn peer_address(&self) -> io::Result<SocketAddr> {
        match self {
            Stream::Tcp(stream) => stream.peer_addr(),
            Stream::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Writes as much as fits now.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.try_write(bytes),
            Stream::Unix(stream) => stream.try_write(bytes),
        }
    }

    /// Its socket, which does not block, without the runtime.
    pub(crate) fn into_socket(self) -> io::Result<OwnedFd> {
        match self {
            Stream::Tcp(stream) => stream.into_std().map(OwnedFd::from),
            Stream::Unix(stream) => stream.into_std().map(OwnedFd::from),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(context, into),
            Stream::Unix(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
