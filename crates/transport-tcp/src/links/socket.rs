//! One byte stream to one peer: nonblocking calls on sockets, and the options that make loopback fast.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use unisono_engine::Link;

use super::Report;

/// Connections the kernel completes for us before the control thread has accepted them.
pub(crate) const LISTEN_BACKLOG: i32 = 4096;

/// On loopback nothing is ever lost, and a controller that paces by measured bandwidth is 1.3x to 1.8x slower there.
const LOOPBACK_CONGESTION: &[u8] = b"reno";

/// How the sockets of a world are set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketOptions {
    /// Size of both kernel buffers; `None` leaves them to the kernel.
    pub(crate) buffer_bytes: Option<u32>,
    /// Whether every rank is on this host.
    pub(crate) loopback: bool,
}

/// A socket before `connect` or `listen`; buffer sizes must be set by then to take part in window scaling. What is
/// accepted inherits all of it.
pub(crate) fn new_socket(address: std::net::SocketAddr, options: SocketOptions) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    if let Some(bytes) = options.buffer_bytes {
        socket.set_send_buffer_size(bytes as usize)?;
        socket.set_recv_buffer_size(bytes as usize)?;
    }
    if options.loopback {
        set_congestion(&socket);
    }
    Ok(socket)
}

/// A listening socket at `address`, without blocking.
pub(crate) fn listen(address: std::net::SocketAddr, options: SocketOptions) -> io::Result<std::net::TcpListener> {
    let socket = new_socket(address, options)?;
    socket.bind(&address.into())?;
    socket.listen(LISTEN_BACKLOG)?;
    Ok(socket.into())
}

/// An accepted socket: `TCP_NODELAY` is the one option that is not inherited everywhere.
pub(crate) fn adopt_accepted(socket: impl AsFd) -> io::Result<()> {
    SockRef::from(&socket).set_tcp_nodelay(true)
}

/// Needs a privilege for controllers that the administrator has not allowed; the first refusal decides for all.
fn set_congestion(socket: &Socket) {
    static PERMITTED: OnceLock<bool> = OnceLock::new();
    if *PERMITTED.get().unwrap_or(&true) {
        let done = socket.set_tcp_congestion(LOOPBACK_CONGESTION).is_ok();
        let _ = PERMITTED.set(done);
    }
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
            [one] => rustix::net::recv(&*self.receiver.socket, &mut **one, RecvFlags::empty()).map(|(_, n)| n),
            many => rustix::io::readv(&*self.receiver.socket, many),
        };
        self.receiver.settle(received, wanted, &self.report)
    }
}

impl Direction {
    /// Nothing received though something was asked for is the end of the stream.
    fn settle(&mut self, moved: Result<usize, Errno>, zero_is_end: bool, report: &Report) -> io::Result<usize> {
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
