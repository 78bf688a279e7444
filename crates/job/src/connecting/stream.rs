//! A connection: over TCP, or within a host over a Unix socket, with memory for the data or without.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use unisono_shared_memory::Segments;

use super::memory::{self, RingShare};
use crate::sockets::Way;

/// A connection.
#[derive(Debug)]
pub(crate) enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Within a host.
    Unix(UnixStream),
    /// Within a host, with memory for the data.
    Memory(UnixStream, Arc<Segments>),
}

impl Stream {
    /// Whether it is over TCP.
    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self, Stream::Tcp(_))
    }

    /// Within a host: agrees with the other side whether data goes through memory. Both sides do it at the same place
    /// of the stream.
    ///
    /// # Errors
    /// When the other side has gone, or keeps no rule.
    pub(crate) async fn agree_on_memory(self, share: &RingShare) -> io::Result<Stream> {
        match self {
            Stream::Unix(stream) => memory::agree(stream, share).await,
            Stream::Tcp(_) | Stream::Memory(..) => Ok(self),
        }
    }

    /// The address of the other side.
    ///
    /// # Errors
    /// When the connection has ended, and for a Unix socket, which has none.
    pub(crate) fn peer_address(&self) -> io::Result<SocketAddr> {
        match self {
            Stream::Tcp(stream) => stream.peer_addr(),
            Stream::Unix(_) | Stream::Memory(..) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Writes as much as fits now.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.try_write(bytes),
            Stream::Unix(stream) | Stream::Memory(stream, _) => stream.try_write(bytes),
        }
    }

    /// Its socket, which does not block, without the runtime; and the way of its data.
    pub(crate) fn into_parts(self) -> io::Result<(OwnedFd, Way)> {
        Ok(match self {
            Stream::Tcp(stream) => (stream.into_std()?.into(), Way::Tcp),
            Stream::Unix(stream) => (stream.into_std()?.into(), Way::Unix),
            Stream::Memory(stream, segments) => (stream.into_std()?.into(), Way::Memory(segments)),
        })
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) | Stream::Memory(stream, _) => stream.as_fd(),
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
            Stream::Unix(stream) | Stream::Memory(stream, _) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Unix(stream) | Stream::Memory(stream, _) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Stream::Unix(stream) | Stream::Memory(stream, _) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Unix(stream) | Stream::Memory(stream, _) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
