//! A stream through memory, as a link. Its Unix socket wakes the other side, and shows its end.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::sync::Arc;

use unisono_engine::{HeaderBytes, HeaderKey, Interest, Peeked};
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
        self.stream.arm(self.possible(interest));
    }

    /// What of it can still happen.
    fn possible(&self, interest: &Interest) -> shared_memory::Interest {
        shared_memory::Interest {
            readable: interest.readable && !self.cannot_receive,
            writable: interest.writable && !self.cannot_send,
        }
    }

    /// After arming, and after looking again: whether there is something to do at once.
    pub(crate) fn is_ready(&mut self) -> bool {
        self.stream.is_ready()
    }

    /// Whether there is something to do at once.
    pub(crate) fn look(&mut self, interest: &Interest) -> bool {
        self.stream.look(self.possible(interest))
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

    fn short_bytes_max(&self) -> Option<usize> {
        Some(shared_memory::SHORT_BYTES_MAX)
    }

    fn send_short(&mut self, header: &HeaderBytes, key: HeaderKey, bytes: &[u8]) -> io::Result<bool> {
        let sent = self.stream.try_write_short(header, key, bytes);
        self.cannot_send |= sent.is_err();
        sent
    }

    fn peek(&mut self, most: usize, header: Option<HeaderKey>) -> Option<io::Result<Peeked<'_>>> {
        let peeked = self.stream.peek(most, header);
        self.cannot_receive |= match &peeked {
            Ok(shared_memory::Peeked::Next(bytes)) => bytes.is_empty(),
            Ok(shared_memory::Peeked::Behind(_)) => false,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        Some(peeked.map(|peeked| match peeked {
            shared_memory::Peeked::Next(bytes) => Peeked::Next(bytes),
            shared_memory::Peeked::Behind(bytes) => Peeked::Behind(bytes),
        }))
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
