//! One byte stream to one peer: nonblocking calls on sockets, and the options that make loopback fast.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use unisono_engine::Link;

use super::DataSocket;
use super::acknowledgement::unacknowledged_bytes;
use super::records;

/// Connections the kernel completes for us before the control thread has accepted them.
pub(crate) const LISTEN_BACKLOG: i32 = 4096;

/// What sockets are made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketOptions {
    /// Send and receive buffer; `None` leaves them to the system.
    pub(crate) buffer_bytes: Option<u32>,
    /// What may wait in a socket that the kernel has not sent. What waits there is sent when an acknowledgement
    /// comes, within a host by the processor of the receiver, while the sender's own sends what follows: segments
    /// overtake each other, look lost, are sent again, and the window shrinks. With little waiting, a rank sends its
    /// bytes itself.
    pub(crate) unsent_bytes: u32,
}

/// A socket before `connect` or `listen`; buffer sizes must be set by then to take part in window scaling. What is
/// accepted inherits all options.
pub(crate) fn new_socket(address: SocketAddr, options: SocketOptions) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    if let Some(bytes) = options.buffer_bytes {
        socket.set_send_buffer_size(bytes as usize)?;
        socket.set_recv_buffer_size(bytes as usize)?;
    }
    #[cfg(target_os = "linux")]
    socket.set_tcp_notsent_lowat(options.unsent_bytes)?;
    Ok(socket)
}

/// Whether this process or this system has no descriptors or memory left.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let known = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    Errno::from_io_error(error).is_some_and(|error| known.contains(&error))
}

/// Whether TCP has connected a socket with itself. A dial to a free port of the own host takes that port as its own
/// sooner or later, and then finds itself there.
pub(crate) fn is_connected_to_itself(stream: &tokio::net::TcpStream) -> bool {
    stream.local_addr().is_ok_and(|own| stream.peer_addr().is_ok_and(|peer| own == peer))
}

/// Whether it is this host, or what this process has or may do on it, that keeps it from connecting: the other side was
/// not even asked.
pub(crate) fn is_own_failure(error: &io::Error) -> bool {
    let known = [Errno::ADDRNOTAVAIL, Errno::ACCESS, Errno::PERM, Errno::NETUNREACH, Errno::NETDOWN];
    is_shortage(error) || Errno::from_io_error(error).is_some_and(|error| known.contains(&error))
}

/// A listening socket at `address`, without blocking.
pub(crate) fn listen(address: SocketAddr, options: SocketOptions) -> io::Result<TcpListener> {
    let socket = new_socket(address, options)?;
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
pub struct TcpLink {
    sender: Direction,
    receiver: Direction,
    /// On a checked stream.
    records: Option<Box<Records>>,
}

struct Records {
    sender: records::Sender,
    receiver: records::Receiver,
}

struct Direction {
    socket: Arc<DataSocket>,
    is_lost: bool,
}

impl TcpLink {
    pub(super) fn new(sender: Arc<DataSocket>, receiver: Arc<DataSocket>, is_checked: bool) -> TcpLink {
        let direction = |socket| Direction { socket, is_lost: false };
        let records = is_checked.then(|| {
            Box::new(Records { sender: records::Sender::default(), receiver: records::Receiver::new() })
        });
        TcpLink { sender: direction(sender), receiver: direction(receiver), records }
    }

    /// Whether bytes that have been read from the socket wait here.
    pub(super) fn holds_bytes(&self) -> bool {
        self.records.as_ref().is_some_and(|records| records.receiver.holds_bytes())
    }

    /// The socket to poll before sending. `None` when it is lost: a lost socket is always ready, so a thread that polls
    /// it together with others would never sleep.
    pub(super) fn send_fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.sender.is_lost).then(|| self.sender.socket.as_fd())
    }

    /// The socket to poll before receiving; `None` when it is lost.
    pub(super) fn recv_fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.receiver.is_lost).then(|| self.receiver.socket.as_fd())
    }
}

impl Link for TcpLink {
    fn try_send(&mut self, bytes: &[IoSlice<'_>], _copied_bytes: usize) -> io::Result<usize> {
        let socket = &mut self.sender;
        match &mut self.records {
            None => socket.send(bytes),
            Some(records) => records.sender.send(bytes, |slices| socket.send(slices)),
        }
    }

    fn unreleased_bytes(&mut self) -> io::Result<u64> {
        Ok(0)
    }

    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let socket = &mut self.receiver;
        match &mut self.records {
            None => socket.recv(into),
            Some(records) => {
                let received = records.receiver.recv(into, |room| socket.recv(&mut [IoSliceMut::new(room)]));
                socket.is_lost |= matches!(&received, Err(error) if error.kind() == ErrorKind::InvalidData);
                received
            }
        }
    }

    fn is_delivered(&mut self) -> bool {
        unacknowledged_bytes(&*self.sender.socket) == Some(0)
    }
}

impl Direction {
    fn send(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        let socket = &*self.socket;
        let sent = match bytes {
            // The vectored call costs more to set up.
            [one] => rustix::net::send(socket, one, SendFlags::NOSIGNAL),
            many => {
                let mut control = SendAncillaryBuffer::default();
                rustix::net::sendmsg(socket, many, &mut control, SendFlags::NOSIGNAL)
            }
        };
        self.settle(sent)
    }

    fn recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let socket = &*self.socket;
        let received = match &mut *into {
            [one] => rustix::net::recv(socket, &mut **one, RecvFlags::empty()).map(|(_, bytes)| bytes),
            many => rustix::io::readv(socket, many),
        };
        let bytes = self.settle(received)?;
        self.is_lost |= bytes == 0 && into.iter().any(|slice| !slice.is_empty());
        Ok(bytes)
    }

    fn settle(&mut self, moved: Result<usize, Errno>) -> io::Result<usize> {
        match moved {
            Ok(bytes) => Ok(bytes),
            // The kernel may be short of memory for a moment, or a signal may come: the socket still works.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => {
                Err(ErrorKind::WouldBlock.into())
            }
            Err(error) => {
                self.is_lost = true;
                Err(error.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_host_refuses_is_told_from_what_others_do() {
        let own = [libc::EMFILE, libc::ENOBUFS, libc::EADDRNOTAVAIL, libc::EACCES, libc::EPERM];
        for number in own.into_iter().chain([libc::ENETUNREACH, libc::ENETDOWN]) {
            assert!(is_own_failure(&io::Error::from_raw_os_error(number)), "{number}");
        }
        for number in [libc::ECONNREFUSED, libc::ECONNRESET, libc::EHOSTUNREACH, libc::ETIMEDOUT] {
            assert!(!is_own_failure(&io::Error::from_raw_os_error(number)), "{number}");
        }
        assert!(!is_own_failure(&ErrorKind::PermissionDenied.into()), "not of the system");
    }
}
