//! The waiting that the control thread does beside its loop: dialling, verdicts, acknowledgements, and the two
//! directions of a control connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio::sync::mpsc::Sender;
use unisono_communicator::{Error, JobRank};
use unisono_control::handshake::{Hello, VERDICT_BYTES, Verdict};
use unisono_control::secret::Secret;
use unisono_control::slots::Slot;
use unisono_control::wire::{ACKNOWLEDGED, Message, take_message};
use unisono_control::{ConnectionNumber, DialFailure, End};

use super::process_watch::ProcessWatch;
use crate::connecting::local::LocalRank;
use crate::connecting::{RingShare, Stream, initiate, local};
use crate::sockets::{
    DataSocket, SocketOptions, is_acknowledged, is_connected_to_itself, is_own_failure, new_socket,
};

/// The first pause between two attempts to find a listener that is about to be closed.
const ABSENCE_PAUSE_MIN: Duration = Duration::from_millis(5);

/// The number of bytes of a control connection that are usually read at once.
const PIECE_BYTES: usize = 4096;

/// The first pause between two checks whether the sent bytes have been acknowledged.
const ACKNOWLEDGEMENT_PAUSE_MIN: Duration = Duration::from_millis(1);
const ACKNOWLEDGEMENT_PAUSE_MAX: Duration = Duration::from_millis(20);

/// The result of a task.
pub(super) enum TaskResult {
    /// A dial has ended.
    Dialled { slot: Slot, result: Result<Stream, DialFailure> },
    /// The lower rank has decided on the connection of this number, or has closed it before.
    Judged { number: ConnectionNumber, result: io::Result<(Stream, Verdict)> },
    /// The higher rank has acknowledged the connection of this number, or has not.
    Acknowledged { number: ConnectionNumber, result: io::Result<Stream> },
    /// A message on a control connection.
    Message { peer: JobRank, number: ConnectionNumber, message: Box<Message> },
    /// The control connection of this number has ended.
    Ended { peer: JobRank, number: ConnectionNumber, end: End },
    /// The process of a rank on this host has ended.
    ProcessEnded { peer: JobRank, reason: String },
}

/// The means to dial.
#[derive(Clone)]
pub(super) struct Dialler {
    pub(super) secret: Secret,
    /// The rank, where a Unix socket is tried first. It is no failure if that does not come about: the other side may
    /// see other networks. TCP then decides.
    pub(super) within_host: Option<LocalRank>,
    pub(super) socket_options: SocketOptions,
    /// For the connection, and again for the handshake.
    pub(super) timeout: Duration,
}

impl Dialler {
    /// Connects and authenticates both sides, after a pause.
    pub(super) async fn dial(
        self,
        slot: Slot,
        address: SocketAddr,
        hello: Hello,
        pause: Duration,
    ) -> TaskResult {
        // Even the shortest sleep takes a millisecond.
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let over_unix = match &self.within_host {
            None => None,
            Some(rank) => tokio::time::timeout(self.timeout, self.attempt_unix(rank, &hello)).await.ok(),
        };
        let result = match over_unix.flatten() {
            Some(stream) => Ok(stream),
            None => self.attempt_tcp(address, &hello).await,
        };
        TaskResult::Dialled { slot, result }
    }

    async fn attempt_unix(&self, rank: &LocalRank, hello: &Hello) -> Option<Stream> {
        let mut stream: UnixStream = local::connect(rank).await.ok()?;
        initiate(&mut stream, &self.secret, hello, self.timeout).await.ok()?;
        Some(Stream::Unix(stream))
    }

    async fn attempt_tcp(&self, address: SocketAddr, hello: &Hello) -> Result<Stream, DialFailure> {
        let connecting = connect(address, self.socket_options);
        let connected = tokio::time::timeout(self.timeout, connecting).await;
        let mut stream = match connected {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Err(DialFailure::Absent(format!("nobody listens at {address}")));
            }
            Ok(Err(error)) if is_own_failure(&error) => {
                return Err(DialFailure::Own(Error::system(format!("cannot connect to {address}"), &error)));
            }
            Ok(Err(error)) => {
                return Err(DialFailure::Transient(format!("cannot connect to {address}: {error}")));
            }
            Err(_) => return Err(DialFailure::Transient(format!("no answer from {address}"))),
        };
        match initiate(&mut stream, &self.secret, hello, self.timeout).await {
            Ok(_) => Ok(Stream::Tcp(stream)),
            Err(refusal) if refusal.is_transient() => Err(DialFailure::Transient(refusal.to_string())),
            Err(refusal) => Err(DialFailure::Refused(refusal)),
        }
    }
}

/// Connects a socket that has its buffers already.
async fn connect(address: SocketAddr, options: SocketOptions) -> io::Result<TcpStream> {
    let socket = new_socket(address, options)?;
    connect_from(TcpSocket::from_std_stream(socket.into()), address).await
}

/// Connects this socket. Nobody listens at an address where the socket finds itself.
async fn connect_from(socket: TcpSocket, address: SocketAddr) -> io::Result<TcpStream> {
    let stream = socket.connect(address).await?;
    if is_connected_to_itself(&stream) {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}

/// Dials an address of this host until nobody listens there, and returns how to report that. A listener that is about
/// to be closed may accept once more, so it is dialled again for a while.
pub(super) async fn find_absent(
    address: SocketAddr,
    options: SocketOptions,
    patience: Duration,
) -> Option<String> {
    let mut pause = ABSENCE_PAUSE_MIN;
    let mut left = patience;
    loop {
        match tokio::time::timeout(patience, connect(address, options)).await {
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Some(format!("nobody listens at {address}"));
            }
            Ok(Ok(_) | Err(_)) | Err(_) if left.is_zero() => return None,
            Ok(Ok(_) | Err(_)) | Err(_) => {}
        }
        tokio::time::sleep(pause).await;
        left = left.saturating_sub(pause);
        pause = (pause * 4).min(left);
    }
}

/// Whether the other side has closed a connection, and nothing that it sent before is left to read.
pub(super) fn has_ended(stream: &Stream) -> bool {
    match rustix::net::recv(stream, &mut [0u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, bytes)) => bytes == 0,
        Err(error) => !matches!(error, Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM),
    }
}

/// The higher rank waits for the lower one's decision. Without a timeout it waits for as long as it takes, since the
/// communicator may not exist there yet.
pub(super) async fn await_verdict(
    number: ConnectionNumber,
    (stream, rings): (Stream, Rings),
    timeout: Option<Duration>,
) -> TaskResult {
    let verdict = read_verdict(stream, rings);
    let result = match timeout {
        None => verdict.await,
        Some(timeout) => {
            let late = |_| Err(io::ErrorKind::TimedOut.into());
            tokio::time::timeout(timeout, verdict).await.unwrap_or_else(late)
        }
    };
    TaskResult::Judged { number, result }
}

async fn read_verdict(mut stream: Stream, rings: Rings) -> io::Result<(Stream, Verdict)> {
    let mut bytes = [0; VERDICT_BYTES];
    stream.read_exact(&mut bytes).await?;
    let verdict = Verdict::decode(&bytes).map_err(io::Error::other)?;
    if verdict == Verdict::Keep {
        stream.write_all(&[ACKNOWLEDGED]).await?;
        stream = agree(stream, rings).await?;
    }
    Ok((stream, verdict))
}

/// The lower rank says `Keep` and waits for the acknowledgement.
pub(super) async fn keep(
    number: ConnectionNumber,
    (stream, rings): (Stream, Rings),
    timeout: Duration,
) -> TaskResult {
    let kept = tokio::time::timeout(timeout, say_keep(stream, rings)).await;
    let result = kept.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    TaskResult::Acknowledged { number, result }
}

async fn say_keep(mut stream: Stream, rings: Rings) -> io::Result<Stream> {
    stream.write_all(&Verdict::Keep.encode()).await?;
    match stream.read_u8().await? {
        ACKNOWLEDGED => agree(stream, rings).await,
        _ => Err(io::Error::other("not an acknowledgement")),
    }
}

/// Without rings for anybody, no connection lies within the host.
type Rings = Option<Arc<RingShare>>;

async fn agree(stream: Stream, rings: Rings) -> io::Result<Stream> {
    match rings {
        Some(rings) => stream.agree_on_memory(&rings).await,
        None => Ok(stream),
    }
}

/// Reads messages, as fast as the loop takes them, until the connection ends, or until the process on its other side
/// ends, if that is watched.
pub(super) async fn read_messages(
    (peer, number): (JobRank, ConnectionNumber),
    mut stream: OwnedReadHalf,
    process: Option<ProcessWatch>,
    events: Sender<TaskResult>,
) {
    let process_ended = async {
        match process {
            Some(process) => process.ended().await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(process_ended);
    let mut received = Vec::with_capacity(PIECE_BYTES);
    let end = loop {
        let read = tokio::select! {
            biased;
            read = read_message(&mut stream, &mut received) => read,
            reason = &mut process_ended => {
                let read = read_last_words(&stream, &mut received, (peer, number), &events).await;
                Err(read.err().unwrap_or(End::ProcessEnded(reason)))
            }
        };
        match read {
            Ok(message) => {
                let message = Box::new(message);
                if events.send(TaskResult::Message { peer, number, message }).await.is_err() {
                    return;
                }
            }
            Err(end) => break end,
        }
    };
    // If the loop has ended before this task, nothing needs the result.
    let _ = events.send(TaskResult::Ended { peer, number, end }).await;
}

/// Hands on the bytes that a process had sent before its end.
async fn read_last_words(
    stream: &OwnedReadHalf,
    received: &mut Vec<u8>,
    (peer, number): (JobRank, ConnectionNumber),
    events: &Sender<TaskResult>,
) -> Result<(), End> {
    // Asks the system and not the runtime, which may not know yet that there is something to read.
    let mut piece = [0; PIECE_BYTES];
    loop {
        match rustix::net::recv(stream.as_ref(), &mut piece, RecvFlags::DONTWAIT) {
            Ok((bytes @ 1.., _)) => received.extend_from_slice(&piece[..bytes]),
            Err(Errno::INTR) => {}
            // The end of the process is the end of the connection, for any report of the socket.
            Ok((0, _)) | Err(_) => return Ok(()),
        }
        while let Some(message) = take_message(received)? {
            let message = Box::new(message);
            let _ = events.send(TaskResult::Message { peer, number, message }).await;
        }
    }
}

/// Reads one message. `received` keeps the bytes of later messages, also when this future is dropped before its end.
pub(super) async fn read_message(
    stream: &mut (impl AsyncRead + Unpin),
    received: &mut Vec<u8>,
) -> Result<Message, End> {
    loop {
        if let Some(message) = take_message(received)? {
            return Ok(message);
        }
        let ended = match stream.read_buf(received).await {
            Ok(0) => io::ErrorKind::UnexpectedEof.into(),
            Ok(_) => continue,
            Err(error) => error,
        };
        return Err(End::Closed(format!("its control connection ended: {ended}")));
    }
}

/// Ends the outgoing halves of sockets, and holds them until the other sides' kernels have the sent bytes, at most for
/// `patience`.
pub(super) async fn linger(sockets: Vec<Arc<DataSocket>>, patience: Duration) {
    sockets.iter().for_each(|socket| socket.end());
    until(|| sockets.iter().all(is_acknowledged), patience).await;
}

/// Polls with growing pauses, since no event reports an acknowledgement.
pub(super) async fn until(is_over: impl Fn() -> bool, patience: Duration) {
    let start = tokio::time::Instant::now();
    let mut pause = ACKNOWLEDGEMENT_PAUSE_MIN;
    while !is_over() && start.elapsed() < patience {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(ACKNOWLEDGEMENT_PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use unisono_control::handshake::{JobId, Purpose};
    use unisono_control::wire::{CommunicatorKey, ConnectionRole};

    use super::*;

    #[test]
    fn a_socket_that_finds_itself_finds_nobody() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let own = socket.local_addr().unwrap();
            let error = connect_from(socket, own).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        });
    }

    /// Without pidfd, this finds the end of a rank that others have named.
    #[test]
    fn who_does_not_listen_is_absent_and_who_does_is_not() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let options = SocketOptions { buffer_bytes: None, unsent_bytes: 0 };
            let find = |patience_ms| find_absent(address, options, Duration::from_millis(patience_ms));
            assert_eq!(find(30).await, None, "it listens");
            // It goes while it is being looked for.
            let (found, ()) = tokio::join!(find(60_000), async { drop(listener) });
            assert_eq!(found, Some(format!("nobody listens at {address}")));
        });
    }

    /// As in two containers that look like one host: another process has the name of the rank.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_dial_goes_over_tcp_where_a_unix_socket_says_nothing_or_nonsense() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (secret, purpose) = (Secret::random().unwrap(), Purpose::Data);
        for says in [&b""[..], &[0x55; 4096]] {
            let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let rank = LocalRank { secret: secret.clone(), address, process: None };
            let listener = local::listen(&rank).unwrap();
            std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(says).unwrap();
                // The dialler closes it.
                while stream.read(&mut [0; 512]).is_ok_and(|bytes| bytes > 0) {}
            });
            let socket_options = SocketOptions { buffer_bytes: None, unsent_bytes: 0 };
            let timeout = Duration::from_millis(100);
            let dialler =
                Dialler { secret: secret.clone(), within_host: Some(rank), socket_options, timeout };
            let (job, role, peer) = (JobId::random().unwrap(), ConnectionRole::First, JobRank::new(1));
            let key = CommunicatorKey { id: 1, epoch: 0 };
            let hello =
                Hello { purpose, job, communicator: 1, epoch: 0, lane: 0, world_size: 2, from: 0, to: 1 };
            let dial = dialler.dial(Slot { key, role, peer }, address, hello, Duration::ZERO);
            let watchdog = Duration::from_secs(60);
            let ended = runtime.block_on(async { tokio::time::timeout(watchdog, dial).await });
            let Ok(TaskResult::Dialled { result: Err(failure), .. }) = ended else {
                panic!("nobody is there")
            };
            assert!(matches!(failure, DialFailure::Absent(_)), "TCP decides: {failure:?}");
        }
    }
}
