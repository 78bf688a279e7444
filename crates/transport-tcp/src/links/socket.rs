//! One byte stream to one peer: nonblocking calls on sockets, and the options that make loopback fast.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use unisono_engine::Link;

use super::Report;

/// Connections the kernel completes for us before the control thread has accepted them.
pub(crate) const LISTEN_BACKLOG: i32 = 4096;

/// A socket before `connect` or `listen`; buffer sizes must be set by then to take part in window scaling. What is
/// accepted inherits them.
pub(crate) fn new_socket(address: SocketAddr, buffer_bytes: u32) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    socket.set_send_buffer_size(buffer_bytes as usize)?;
    socket.set_recv_buffer_size(buffer_bytes as usize)?;
    Ok(socket)
}

/// A listening socket at `address`, without blocking.
pub(crate) fn listen(address: SocketAddr, buffer_bytes: u32) -> io::Result<TcpListener> {
    let socket = new_socket(address, buffer_bytes)?;
    socket.bind(&address.into())?;
    socket.listen(LISTEN_BACKLOG)?;
    Ok(socket.into())
}

/// Within a host nothing is ever lost, and a controller that paces by measured bandwidth is 1.3x to 1.8x slower
/// there. Fails for controllers that are not there, or that need a privilege.
pub(crate) fn set_congestion_control(socket: &impl AsFd, name: &str) -> io::Result<()> {
    SockRef::from(socket).set_tcp_congestion(name.as_bytes())
}

/// One stream between two ranks. Both directions may share a socket.
///
/// A closed or reset socket is never an error here: it is reported to the control plane, which knows why it closed,
/// and the direction stays silent. The control plane then revokes the communicator with the first cause, so that
/// "connection closed" never hides the reason for the closing.
pub struct TcpLink {
    sender: Direction,
    receiver: Direction,
    report: Report,
}

struct Direction {
    socket: Arc<OwnedFd>,
    lost: bool,
}

impl TcpLink {
    pub(super) fn new(sender: Arc<OwnedFd>, receiver: Arc<OwnedFd>, report: Report) -> TcpLink {
        let direction = |socket| Direction { socket, lost: false };
        TcpLink { sender: direction(sender), receiver: direction(receiver), report }
    }

    /// The socket to poll before sending; `None` when it is lost, since a lost socket is always ready.
    pub(super) fn send_fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.sender.lost).then(|| self.sender.socket.as_fd())
    }

    /// The socket to poll before receiving; `None` when it is lost.
    pub(super) fn recv_fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.receiver.lost).then(|| self.receiver.socket.as_fd())
    }
}

impl Link for TcpLink {
    fn try_send(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.sender.lost {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let sent = match bytes {
            // The vectored call costs more to set up.
            [one] => rustix::net::send(&*self.sender.socket, one, SendFlags::NOSIGNAL),
            many => {
                let mut control = SendAncillaryBuffer::default();
                rustix::net::sendmsg(&*self.sender.socket, many, &mut control, SendFlags::NOSIGNAL)
            }
        };
        self.sender.settle(sent, false, &self.report)
    }

    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if self.receiver.lost {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let wanted = into.iter().any(|slice| !slice.is_empty());
        let received = match into {
            [one] => {
                rustix::net::recv(&*self.receiver.socket, &mut **one, RecvFlags::empty()).map(|(_, n)| n)
            }
            many => rustix::io::readv(&*self.receiver.socket, many),
        };
        self.receiver.settle(received, wanted, &self.report)
    }
}

impl Direction {
    /// Nothing received though something was asked for is the end of the stream.
    fn settle(
        &mut self,
        moved: Result<usize, Errno>,
        zero_is_end: bool,
        report: &Report,
    ) -> io::Result<usize> {
        let reason = match moved {
            Ok(0) if zero_is_end => "closed",
            Ok(bytes) => return Ok(bytes),
            Err(Errno::INTR | Errno::AGAIN) => return Err(io::ErrorKind::WouldBlock.into()),
            // The kernel is short of memory for the moment; the socket is well.
            Err(Errno::NOBUFS | Errno::NOMEM) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(Errno::CONNRESET | Errno::PIPE) => "reset",
            Err(_) => "broken",
        };
        self.lost = true;
        report.lost(reason);
        Err(io::ErrorKind::WouldBlock.into())
    }
}
