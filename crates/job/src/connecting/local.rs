//! Unix sockets between the ranks of one host: the name under which a rank listens, and dials to it.
//!
//! The name is an abstract one (unix(7)): it belongs to the network namespace, like the address of the rank, and goes
//! with the listening socket. So there is no file that a crash could leave, no folder that a logout removes, and no
//! limit on the length of a path. Only holders of the job's secret can tell a name before the rank has it, and no two
//! processes have one, so nobody else can take it. Anyone on the host may dial it: both sides ask the kernel for the
//! other's user, before the handshake, and a dial does not wait long where nobody accepts.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;

use unisono_control::roster::message::RankProcess;
use unisono_control::secret::Secret;

#[cfg(target_os = "linux")]
pub(crate) use linux::{connect, listen};

/// A rank of this host, as the others know it before they dial.
#[derive(Clone, Debug)]
pub(crate) struct LocalRank {
    /// The secret of its job.
    pub(crate) secret: Secret,
    /// The address at which it listens over TCP.
    pub(crate) address: SocketAddr,
    /// Its process; `None` where nobody knows the processes of the job.
    pub(crate) process: Option<RankProcess>,
}

/// The time that a dial waits for room among the connections that the other side has not accepted yet.
#[cfg(target_os = "linux")]
const FULL_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);

/// The number of such waits. The queue of a rank holds thousands and is full for a moment at most. Another user can
/// keep it full for ever.
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

    /// The number of bytes of the tag in the name: too many to be guessed, and nobody can try.
    const TAG_PART_BYTES: usize = 8;

    const NAME_LABEL: &[u8] = b"unisono local name 1";

    impl LocalRank {
        /// The name under which it listens. The scope of a link-local address differs between ranks.
        fn name(&self) -> io::Result<SocketAddrUnix> {
            let place = format!("unisono/{}/{}", self.address.ip(), self.address.port());
            let pid = self.process.as_ref().map_or(0, |known| known.process.pid);
            let birth = self.process.as_ref().and_then(|known| known.birth);
            let (namespace, ticks) = birth.map_or((0, 0), |birth| (birth.pid_namespace, birth.start_ticks));
            // The last parts have fixed lengths, so that no two ranks give the same bytes.
            let process = [&pid.to_le_bytes()[..], &namespace.to_le_bytes(), &ticks.to_le_bytes()].concat();
            let tag = self.secret.tag(&[NAME_LABEL, place.as_bytes(), &process]);
            let part = tag[..TAG_PART_BYTES].iter().fold(0u64, |part, byte| part << 8 | u64::from(*byte));
            Ok(SocketAddrUnix::new_abstract_name(format!("{place}/{part:016x}").as_bytes())?)
        }
    }

    fn socket() -> io::Result<std::os::fd::OwnedFd> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
    }

    /// Listens as this rank.
    pub(crate) fn listen(rank: &LocalRank) -> io::Result<UnixListener> {
        listen_with(rank, LISTEN_BACKLOG)
    }

    /// The same, with room for so many connections that are not accepted yet.
    pub(super) fn listen_with(rank: &LocalRank, backlog: i32) -> io::Result<UnixListener> {
        let socket = socket()?;
        rustix::net::bind(&socket, &rank.name()?)?;
        rustix::net::listen(&socket, backlog)?;
        Ok(socket.into())
    }

    /// Connects to this rank.
    pub(crate) async fn connect(rank: &LocalRank) -> io::Result<UnixStream> {
        let (socket, name) = (socket()?, rank.name()?);
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
pub(crate) fn listen(_rank: &LocalRank) -> io::Result<UnixListener> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub(crate) async fn connect(_rank: &LocalRank) -> io::Result<tokio::net::UnixStream> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::Duration;

    use unisono_communicator::Process;

    use super::*;
    use crate::rendezvous::own_process;
    use crate::task_thread::TaskThread;

    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    fn rank(address: SocketAddr) -> LocalRank {
        LocalRank { secret: Secret::random().expect("random bytes"), address, process: Some(own_process()) }
    }

    #[test]
    fn a_name_belongs_to_one_secret_one_address_and_one_process() {
        let one = rank("[fe80::1%1]:4711".parse().unwrap());
        let process = one.process.clone().unwrap();
        let reused = Process { pid: process.process.pid + 1, ..process.process.clone() };
        let others = [
            LocalRank { secret: Secret::random().unwrap(), ..one.clone() },
            LocalRank { address: "[fe80::1]:4712".parse().unwrap(), ..one.clone() },
            LocalRank { process: Some(RankProcess { process: reused, ..process.clone() }), ..one.clone() },
            LocalRank { process: Some(RankProcess { birth: None, ..process }), ..one.clone() },
            LocalRank { process: None, ..one.clone() },
        ];
        let taken = listen(&one).unwrap();
        let seen_from_another = LocalRank { address: "[fe80::1%2]:4711".parse().unwrap(), ..one };
        assert_eq!(listen(&seen_from_another).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let names: Vec<_> = others.iter().map(|other| listen(other).unwrap()).collect();
        drop((taken, names));
    }

    #[test]
    fn a_queue_that_stays_full_holds_no_dial_for_long() {
        let address = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        let rank = rank(address);
        let taken = linux::listen_with(&rank, 0).unwrap();
        let ended = TaskThread::start("test").unwrap().wait_for(async {
            // Some find room in the queue.
            let dials = async {
                let mut kept = Vec::new();
                while let Ok(stream) = connect(&rank).await {
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
