//! The options of sockets, and the meanings of their failures.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;

use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// Connections the kernel completes for us before the control thread has accepted them.
pub(crate) const LISTEN_BACKLOG: i32 = 4096;

/// The options of sockets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketOptions {
    /// Send and receive buffer; `None` leaves them to the system.
    pub(crate) buffer_bytes: Option<u32>,
    /// The bytes that may wait in a socket and that the kernel has not sent. They are sent when an acknowledgement
    /// comes, within a host by the processor of the receiver, while the sender's own sends the next bytes: segments
    /// overtake each other, look lost, are sent again, and the window shrinks. With little waiting, a rank sends its
    /// bytes itself.
    pub(crate) unsent_bytes: u32,
}

/// A socket before `connect` or `listen`; buffer sizes must be set by then to take part in window scaling.
/// Accepted connections inherit all options.
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

/// Whether this host, or the resources or rights of this process on it, keep it from connecting: the other side was not
/// even asked.
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

/// A listening socket with the system's options at an address where another one may have listened a moment ago, without
/// blocking. Its queue holds the ranks of a large job, which come all at once.
pub(crate) fn listen_again(address: SocketAddr) -> io::Result<TcpListener> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(LISTEN_BACKLOG)?;
    Ok(socket.into())
}

/// Within a host nothing is ever lost, and a controller that paces by measured bandwidth is 1.3x to 1.8x slower
/// there. Fails for controllers that are not there, or that need a privilege.
pub(crate) fn set_congestion_control(socket: &impl AsFd, name: &str) -> io::Result<()> {
    SockRef::from(socket).set_tcp_congestion(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    /// Linux cuts the queue at net.core.somaxconn, and without this length at 128.
    #[test]
    #[cfg(target_os = "linux")]
    fn many_may_come_before_the_first_is_accepted() {
        const MANY: usize = 300;
        let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn");
        if allowed.is_ok_and(|most| most.trim().parse().is_ok_and(|most: usize| most < MANY)) {
            return;
        }
        let listener = listen_again(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let long = std::time::Duration::from_secs(30);
        let dialled: Vec<_> =
            (0..MANY).map(|_| std::net::TcpStream::connect_timeout(&address, long).unwrap()).collect();
        drop(listener);
        assert!(listen_again(address).is_ok(), "{} connections are still there", dialled.len());
    }

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
