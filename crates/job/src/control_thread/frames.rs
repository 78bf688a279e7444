//! The writing side of a control connection: frames wait here until the other side's kernel takes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, JoinSet};

use super::command::HandedOver;
use super::tasks::until;
use crate::sockets::is_acknowledged;

/// Most bytes that wait for one rank. A rank that shows that it lives and reads less is connected anew: the kept news
/// goes out again, and no more.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// Most bytes that are collected for one write.
const WRITE_BYTES_MAX: usize = 64 * 1024;

/// A frame, or a mark in their order.
struct Outgoing {
    bytes: Vec<u8>,
    /// Dropped when everything up to here has been written.
    handed_over: Option<HandedOver>,
}

/// Sends frames on one control connection. The writing side ends when this is dropped and everything has been written.
pub(super) struct FrameSender {
    frames: UnboundedSender<Outgoing>,
    waiting_bytes: Arc<AtomicUsize>,
    writer: AbortHandle,
}

/// The other side does not read.
#[derive(Debug)]
pub(super) struct DoesNotRead;

impl FrameSender {
    /// Writes to this connection from now on, among the tasks that write. At the end, the writer waits for `patience`
    /// at most until the other side's kernel has everything.
    pub(super) fn start(
        connection: OwnedWriteHalf,
        writing: &mut JoinSet<()>,
        patience: Duration,
    ) -> FrameSender {
        let (frames, queue) = unbounded_channel();
        let waiting_bytes = Arc::new(AtomicUsize::new(0));
        let writer = writing.spawn(write_frames(connection, (queue, waiting_bytes.clone()), patience));
        FrameSender { frames, waiting_bytes, writer }
    }

    /// Sends a frame. A connection that has ended reports itself.
    ///
    /// # Errors
    /// Too much waits already: nothing more is written.
    pub(super) fn send(&self, bytes: Vec<u8>) -> Result<(), DoesNotRead> {
        let waiting = self.waiting_bytes.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len();
        if waiting > WAITING_BYTES_MAX {
            self.writer.abort();
            return Err(DoesNotRead);
        }
        let _ = self.frames.send(Outgoing { bytes, handed_over: None });
        Ok(())
    }

    /// Drops this when everything up to here has been written. The writer of a connection that has ended takes nothing
    /// any more.
    pub(super) fn mark(&self, handed_over: HandedOver) {
        let _ = self.frames.send(Outgoing { bytes: Vec::new(), handed_over: Some(handed_over) });
    }
}

/// Writes frames until the sender is dropped; all that wait go in one write. At last it waits until the other side's
/// kernel has them: closing a socket with unread bytes in it resets the connection, and the bytes under way are lost.
async fn write_frames(
    mut stream: OwnedWriteHalf,
    (mut frames, waiting_bytes): (UnboundedReceiver<Outgoing>, Arc<AtomicUsize>),
    patience: Duration,
) {
    while let Some(first) = frames.recv().await {
        let (mut bytes, mut handed_over) = (first.bytes, Vec::from_iter(first.handed_over));
        while bytes.len() < WRITE_BYTES_MAX
            && let Ok(more) = frames.try_recv()
        {
            bytes.extend_from_slice(&more.bytes);
            handed_over.extend(more.handed_over);
        }
        // The reading half sees the end too, and reports it.
        if stream.write_all(&bytes).await.is_err() {
            return;
        }
        waiting_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
    }
    if stream.shutdown().await.is_ok() {
        until(|| is_acknowledged(stream.as_ref()), patience).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const FRAME_BYTES: usize = 1 << 16;
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Sends frames to a side that reads or does not, until that fails or so many were sent.
    async fn send_to(reads: bool, frames: usize) -> (usize, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut held = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (_reader, connection) = listener.accept().await.unwrap().0.into_split();
        let mut writing = JoinSet::new();
        let sender = FrameSender::start(connection, &mut writing, PATIENCE);
        let mut sent = 0;
        let mut piece = vec![0; FRAME_BYTES];
        while sent < frames && sender.send(vec![7; FRAME_BYTES]).is_ok() {
            sent += 1;
            if reads {
                held.read_exact(&mut piece).await.unwrap();
            }
            tokio::task::yield_now().await;
        }
        drop(sender);
        if !reads {
            assert!(tokio::time::timeout(PATIENCE, writing.join_next()).await.is_ok_and(|end| end.is_some()));
        }
        (sent, writing)
    }

    #[test]
    fn a_side_that_does_not_read_takes_bounded_memory_and_one_that_reads_takes_all() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (most, many) = (WAITING_BYTES_MAX / FRAME_BYTES, 3 * WAITING_BYTES_MAX / FRAME_BYTES);
            let (sent, _) = send_to(false, many).await;
            assert!(sent >= most && sent < many, "{sent}: the kernel takes some, and no more wait");
            assert_eq!(send_to(true, many).await.0, many);
        });
    }
}
