//! A stream through memory. Its Unix socket wakes the other side, and shows its end.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use unisono_engine::{HeaderBytes, HeaderKey, Interest};
use unisono_job::sockets::DataSocket;
use unisono_shared_memory::{FOR_BYTES, FOR_RETURN, Segments, Stream};

use crate::sleep::PollList;

/// One stream between two ranks.
pub(crate) struct MemoryStream {
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

    /// The events of the interest that can still come.
    fn possible(&self, interest: &Interest) -> u32 {
        let bytes = if interest.readable && !self.cannot_receive { FOR_BYTES } else { 0 };
        let place = if interest.writable && !self.cannot_send { self.stream.place_event() } else { 0 };
        bytes | place | if interest.releasable && !self.cannot_send { FOR_RETURN } else { 0 }
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

    /// Takes as many bytes as fit, from the first slice on. Errors are as for `Link::try_send`.
    pub(crate) fn send(&mut self, bytes: &[IoSlice<'_>], copied_bytes: usize) -> io::Result<usize> {
        let sent = self.stream.try_write(bytes, copied_bytes);
        self.cannot_send |= matches!(&sent, Err(error) if error.kind() != ErrorKind::WouldBlock);
        sent
    }

    /// As `Link::unreleased_bytes`.
    pub(crate) fn unreleased_bytes(&mut self) -> io::Result<u64> {
        let unreleased = self.stream.unreleased_bytes();
        self.cannot_send |= unreleased.is_err();
        unreleased
    }

    /// Fills the slices in order. Errors are as for `Link::try_recv`.
    pub(crate) fn recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let received = self.stream.try_read(into);
        self.cannot_receive |= match &received {
            Ok(bytes) => *bytes == 0 && into.iter().any(|slice| !slice.is_empty()),
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        received
    }

    /// As `Link::try_send_whole`.
    pub(crate) fn send_whole(
        &mut self,
        header: &HeaderBytes,
        key: HeaderKey,
        bytes: &[u8],
    ) -> io::Result<bool> {
        let sent = self.stream.try_write_whole(header, key, bytes);
        self.cannot_send |= sent.is_err();
        sent
    }

    /// As `Link::try_send_all`.
    pub(crate) fn send_all(&mut self, bytes: [IoSlice<'_>; 2]) -> io::Result<bool> {
        let sent = self.stream.try_write_all(bytes);
        self.cannot_send |= sent.is_err();
        sent
    }

    /// As `Link::peek`.
    pub(crate) fn peek(
        &mut self,
        most: usize,
        header: Option<HeaderKey>,
    ) -> Option<io::Result<(bool, &[AtomicU8])>> {
        let peeked = self.stream.peek(most, header);
        self.cannot_receive |= match &peeked {
            Ok(Some((is_behind_header, bytes))) => !is_behind_header && bytes.is_empty(),
            Ok(None) => false,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        peeked.transpose()
    }

    /// As `Link::consume`.
    pub(crate) fn consume(&mut self, count: usize) {
        self.stream.consume(count);
    }

    /// As `Link::notify`.
    pub(crate) fn notify(&mut self) {
        self.stream.notify();
    }

    /// Receives no more, since bytes were changed on their way.
    pub(crate) fn distrust(&mut self) {
        self.cannot_receive = true;
    }

    /// As `Link::is_delivered`.
    pub(crate) fn is_delivered(&mut self) -> bool {
        self.socket.is_delivered()
    }
}
