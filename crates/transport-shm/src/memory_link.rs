//! A stream through memory, as a link. Its Unix socket wakes the other side, and shows its end.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use unisono_engine::Interest;
use unisono_job::sockets::DataSocket;
use unisono_shared_memory::{self as shared_memory, Segments, Stream};
use unisono_transport_tcp::{ByteStream, PollList, StreamLink};

/// One stream between two ranks through memory.
pub type MemoryLink = StreamLink<MemoryStream>;

/// The stream itself.
pub struct MemoryStream {
    socket: Arc<DataSocket>,
    stream: Stream<Arc<DataSocket>>,
    /// The socket has ended, and says nothing more.
    is_over: bool,
    /// A direction in which nothing more can happen. A thread that waited for it would never sleep.
    cannot_send: bool,
    cannot_receive: bool,
}

impl MemoryStream {
    /// The stream in the memory of this connection.
    pub(crate) fn new(socket: Arc<DataSocket>, segments: Arc<Segments>) -> MemoryStream {
        let stream = Stream::new(segments, socket.clone());
        MemoryStream { socket, stream, is_over: false, cannot_send: false, cannot_receive: false }
    }

    /// Before a sleep: from now on, the other side rings.
    pub(crate) fn arm(&mut self, interest: &Interest) {
        self.stream.arm(shared_memory::Interest {
            readable: interest.readable && !self.cannot_receive,
            writable: interest.writable && !self.cannot_send,
        });
    }

    /// After arming, and after looking again: whether there is something to do at once.
    pub(crate) fn is_ready(&mut self) -> bool {
        self.stream.is_ready()
    }

    /// Lists its socket for a sleep.
    pub(crate) fn list<'a>(&'a self, sleep: &mut PollList<'a>) {
        if !self.is_over {
            sleep.add_readable(self.socket.as_fd());
        }
    }

    /// After a sleep.
    pub(crate) fn disarm(&mut self) {
        self.stream.disarm();
        if !self.is_over && !self.socket.is_there() {
            self.is_over = true;
            self.stream.hang_up();
        }
    }
}

impl ByteStream for MemoryStream {
    fn send(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        let sent = self.stream.try_write(bytes);
        self.cannot_send |= matches!(&sent, Err(error) if error.kind() != ErrorKind::WouldBlock);
        sent
    }

    fn recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let received = self.stream.try_read(into);
        self.cannot_receive |= match &received {
            Ok(bytes) => *bytes == 0 && into.iter().any(|slice| !slice.is_empty()),
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        received
    }

    fn peek(&mut self, most: usize) -> Option<io::Result<&[AtomicU8]>> {
        let peeked = self.stream.peek(most);
        self.cannot_receive |= match &peeked {
            Ok(bytes) => bytes.is_empty(),
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        Some(peeked)
    }

    fn consume(&mut self, count: usize) {
        self.stream.consume(count);
    }

    fn distrust(&mut self) {
        self.cannot_receive = true;
    }

    fn is_delivered(&mut self) -> bool {
        self.socket.is_delivered()
    }
}
