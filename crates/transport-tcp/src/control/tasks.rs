//! The waiting that the control thread does beside its loop: dialling, verdicts, acknowledgements, and the two
//! directions of a control connection.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use unisono_communicator::Error;

use super::slots::Slot;
use crate::codec::Malformed;
use crate::handshake::{Hello, Refusal, VERDICT_BYTES, Verdict, initiate};
use crate::links::{SocketOptions, is_shortage, new_socket};
use crate::secret::Secret;
use crate::wire::{ACKNOWLEDGED, LENGTH_BYTES, Message, decode, frame_bytes};

/// Most bytes that are collected for one write.
const WRITE_BYTES_MAX: usize = 64 * 1024;

/// What a task has come to.
pub(super) enum Event {
    /// A dial has ended.
    Dialled { slot: Slot, result: Result<TcpStream, DialFailure> },
    /// The lower rank has decided on the connection of this number, or has closed it before.
    Judged { slot: Slot, number: u64, result: io::Result<(TcpStream, Verdict)> },
    /// The higher rank has acknowledged the connection of this number, or has not.
    Acknowledged { slot: Slot, number: u64, result: io::Result<TcpStream> },
    /// A message on a control connection.
    Message { peer: u32, message: Message },
    /// The control connection of this number has ended.
    Ended { peer: u32, number: u64, end: End },
}

/// How a control connection has ended.
pub(super) enum End {
    /// The other side's host has closed it, or something on the way.
    Closed(String),
    /// What came is no message.
    Nonsense(String),
}

/// Why a dial failed.
pub(super) enum DialFailure {
    /// Nobody listens there any more.
    Gone(String),
    /// It may succeed later.
    Transient(String),
    /// This process has no room for another socket, which says nothing about the other side.
    NoRoom(Error),
    /// It never will.
    Refused(Refusal),
}

/// How to dial.
#[derive(Clone)]
pub(super) struct Dialler {
    pub(super) secret: Secret,
    pub(super) socket_options: SocketOptions,
    /// For the connection, and again for the proof.
    pub(super) timeout: Duration,
}

impl Dialler {
    /// Connects and proves both sides, after a pause.
    pub(super) async fn dial(self, slot: Slot, address: SocketAddr, hello: Hello, pause: Duration) -> Event {
        // Even the shortest sleep takes a millisecond.
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        Event::Dialled { slot, result: self.attempt(address, &hello).await }
    }

    async fn attempt(&self, address: SocketAddr, hello: &Hello) -> Result<TcpStream, DialFailure> {
        let connecting = connect(address, self.socket_options);
        let connected = tokio::time::timeout(self.timeout, connecting).await;
        let mut stream = match connected {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Err(DialFailure::Gone(format!("nobody listens at {address}")));
            }
            Ok(Err(error)) if is_shortage(&error) => {
                return Err(DialFailure::NoRoom(Error::system(
                    format!("cannot connect to {address}"),
                    &error,
                )));
            }
            Ok(Err(error)) => {
                return Err(DialFailure::Transient(format!("cannot connect to {address}: {error}")));
            }
            Err(_) => return Err(DialFailure::Transient(format!("no answer from {address}"))),
        };
        match initiate(&mut stream, &self.secret, hello, self.timeout).await {
            Ok(_) => Ok(stream),
            Err(refusal) if refusal.is_transient() => Err(DialFailure::Transient(refusal.to_string())),
            Err(refusal) => Err(DialFailure::Refused(refusal)),
        }
    }
}

/// Connects a socket that has its buffers already.
async fn connect(address: SocketAddr, options: SocketOptions) -> io::Result<TcpStream> {
    let socket = new_socket(address, options)?;
    tokio::net::TcpSocket::from_std_stream(socket.into()).connect(address).await
}

/// Whether the other side has closed a connection, and nothing that it sent before is left to read.
pub(super) fn has_ended(stream: &TcpStream) -> bool {
    match rustix::net::recv(stream, &mut [0u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, bytes)) => bytes == 0,
        Err(error) => !matches!(error, Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM),
    }
}

/// The higher rank waits for the lower one's decision; without a timeout as long as it takes, since the communicator
/// may not exist there yet.
pub(super) async fn await_verdict(
    (slot, number): (Slot, u64),
    stream: TcpStream,
    timeout: Option<Duration>,
) -> Event {
    let verdict = read_verdict(stream);
    let result = match timeout {
        None => verdict.await,
        Some(timeout) => {
            let late = |_| Err(io::ErrorKind::TimedOut.into());
            tokio::time::timeout(timeout, verdict).await.unwrap_or_else(late)
        }
    };
    Event::Judged { slot, number, result }
}

async fn read_verdict(mut stream: TcpStream) -> io::Result<(TcpStream, Verdict)> {
    let mut bytes = [0; VERDICT_BYTES];
    stream.read_exact(&mut bytes).await?;
    let verdict = Verdict::decode(&bytes).map_err(io::Error::other)?;
    if verdict == Verdict::Keep {
        stream.write_all(&[ACKNOWLEDGED]).await?;
    }
    Ok((stream, verdict))
}

/// The lower rank says `Keep` and waits for the acknowledgement.
pub(super) async fn keep((slot, number): (Slot, u64), stream: TcpStream, timeout: Duration) -> Event {
    let kept = tokio::time::timeout(timeout, say_keep(stream)).await;
    let result = kept.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    Event::Acknowledged { slot, number, result }
}

async fn say_keep(mut stream: TcpStream) -> io::Result<TcpStream> {
    stream.write_all(&Verdict::Keep.encode()).await?;
    match stream.read_u8().await? {
        ACKNOWLEDGED => Ok(stream),
        _ => Err(io::Error::other("not an acknowledgement")),
    }
}

/// Reads messages until the connection ends.
pub(super) async fn read_messages(
    (peer, number): (u32, u64),
    mut stream: OwnedReadHalf,
    events: UnboundedSender<Event>,
) {
    loop {
        let event = match read_message(&mut stream).await {
            Ok(message) => Event::Message { peer, message },
            Err(end) => Event::Ended { peer, number, end },
        };
        let is_end = matches!(event, Event::Ended { .. });
        if events.send(event).is_err() || is_end {
            return;
        }
    }
}

/// Reads one message.
pub(super) async fn read_message(stream: &mut (impl AsyncRead + Unpin)) -> Result<Message, End> {
    let closed = |error: io::Error| End::Closed(format!("its control connection ended: {error}"));
    let nonsense =
        |error: Malformed| End::Nonsense(format!("its control connection gave no message: {error}"));
    let mut length = [0; LENGTH_BYTES];
    stream.read_exact(&mut length).await.map_err(closed)?;
    let mut frame = vec![0; frame_bytes(length).map_err(nonsense)?];
    stream.read_exact(&mut frame).await.map_err(closed)?;
    decode(&frame).map_err(nonsense)
}

/// Writes frames until there will be no more; what has collected goes in one write.
pub(super) async fn write_frames(mut stream: OwnedWriteHalf, mut frames: UnboundedReceiver<Vec<u8>>) {
    while let Some(mut bytes) = frames.recv().await {
        while bytes.len() < WRITE_BYTES_MAX
            && let Ok(more) = frames.try_recv()
        {
            bytes.extend_from_slice(&more);
        }
        // The reading half sees the end too, and reports it.
        if stream.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
