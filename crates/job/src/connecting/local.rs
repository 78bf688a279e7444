//! Unix sockets between the ranks of one host: the name under which a rank listens, and dials to it.
//!
//! The name is an abstract one (unix(7)): it belongs to the network namespace, like the address of which it is made,
//! and goes with the listening socket. So there is no file that a crash could leave, no folder that a logout removes,
//! and no limit on the length of a path. Anyone on the host may dial it, or take it before the rank does. So both sides
//! ask the kernel for the other's user, before the handshake, and a dial does not wait long where nobody accepts.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;

#[cfg(target_os = "linux")]
pub(crate) use linux::{connect, listen};

/// How long a dial waits for room among the connections that the other side has not accepted yet.
#[cfg(target_os = "linux")]
const FULL_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);

/// How often it does so. The queue of a rank holds thousands and is full for a moment at most. Another user who has
/// taken the name can keep a queue full for ever.
#[cfg(target_os = "linux")]
const FULL_PAUSES_MAX: u32 = 50;

/// Whether a process of this user is on the other side.
pub(crate) fn is_of_this_user(stream: &tokio::net::UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == rustix::process::geteuid().as_raw())
}

#[cfg(target_os = "linux")]
mod linux {
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    use tokio::net::UnixStream;

    use super::*;
    use crate::sockets::LISTEN_BACKLOG;

    /// The name of the rank that listens at this address. The scope of a link-local address differs between ranks.
    fn name(address: SocketAddr) -> io::Result<SocketAddrUnix> {
        let name = format!("unisono/{}/{}", address.ip(), address.port());
        Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
    }

    fn socket() -> io::Result<std::os::fd::OwnedFd> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
    }

    /// Listens beside the listener at this address.
    pub(crate) fn listen(address: SocketAddr) -> io::Result<UnixListener> {
        listen_with(address, LISTEN_BACKLOG)
    }

    /// The same, with room for so many connections that are not accepted yet.
    pub(super) fn listen_with(address: SocketAddr, backlog: i32) -> io::Result<UnixListener> {
        let socket = socket()?;
        rustix::net::bind(&socket, &name(address)?)?;
        rustix::net::listen(&socket, backlog)?;
        Ok(socket.into())
    }

    /// Connects to the rank that listens at this address.
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<UnixStream> {
        let (socket, name) = (socket()?, name(address)?);
        let mut pauses = 0;
        loop {
            match rustix::net::connect(&socket, &name) {
                Ok(()) => break,
                Err(Errno::AGAIN | Errno::INTR) if pauses < FULL_PAUSES_MAX => {
                    pauses += 1;
                    tokio::time::sleep(FULL_PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let stream = UnixStream::from_std(socket.into())?;
        if is_of_this_user(&stream) { Ok(stream) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn listen(_address: SocketAddr) -> io::Result<UnixListener> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub(crate) async fn connect(_address: SocketAddr) -> io::Result<tokio::net::UnixStream> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::task_thread::TaskThread;

    #[test]
    fn a_queue_that_stays_full_holds_no_dial_for_long() {
        let address = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        let taken = linux::listen_with(address, 0).unwrap();
        let ended = TaskThread::start("test").unwrap().wait_for(async {
            // Some find room in the queue.
            let dials = async {
                let mut kept = Vec::new();
                while let Ok(stream) = connect(address).await {
                    kept.push(stream);
                }
                kept
            };
            tokio::time::timeout(Duration::from_secs(30), dials).await
        });
        assert!(ended.is_ok_and(|kept| !kept.is_empty()), "a dial waits for ever");
        drop(taken);
    }
}
