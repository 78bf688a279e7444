//! One byte stream to one peer, over sockets or through memory, with checksums or without. Bytes with checksums are
//! copied, as are all bytes over sockets.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::atomic::AtomicU8;

use unisono_engine::{COPY_ALL, HeaderBytes, HeaderKey, Interest, Link, WHOLE_BYTES_MAX};

use crate::memory_stream::MemoryStream;
use crate::records;
use crate::sleep::PollList;
use crate::socket_stream::SocketStream;

/// One stream between two ranks.
pub struct DataLink {
    stream: Stream,
    /// On a checked stream.
    records: Option<Box<Records>>,
}

/// The stream itself, which never blocks.
#[expect(
    clippy::large_enum_variant,
    reason = "short calls take the large variant, and a box is one more cache line"
)]
pub(crate) enum Stream {
    /// Over sockets.
    Sockets(SocketStream),
    /// Through memory.
    Memory(MemoryStream),
}

const _: () =
    assert!(unisono_shared_memory::WHOLE_BYTES_MAX == WHOLE_BYTES_MAX, "streams take what links promise");

struct Records {
    sender: records::Sender,
    receiver: records::Receiver,
}

impl DataLink {
    /// The link over this stream; `is_checked` says whether it carries checksums.
    pub(crate) fn new(stream: Stream, is_checked: bool) -> DataLink {
        let records = is_checked.then(|| {
            Box::new(Records { sender: records::Sender::default(), receiver: records::Receiver::new() })
        });
        DataLink { stream, records }
    }

    /// Its stream, if that goes through memory.
    pub(crate) fn memory(&self) -> Option<&MemoryStream> {
        match &self.stream {
            Stream::Memory(memory) => Some(memory),
            Stream::Sockets(_) => None,
        }
    }

    /// Before a sleep: from now on, the other side wakes this thread.
    pub(crate) fn arm(&mut self, interest: &Interest) {
        match &mut self.stream {
            Stream::Memory(memory) => memory.arm(interest),
            Stream::Sockets(_) => {}
        }
    }

    /// After arming, and after looking again: whether there is something to do at once.
    pub(crate) fn is_ready(&mut self, interest: &Interest) -> bool {
        let is_ready = match &mut self.stream {
            Stream::Memory(memory) => memory.is_ready(),
            Stream::Sockets(_) => false,
        };
        is_ready || interest.readable && self.holds_bytes()
    }

    /// Lists its sockets for a sleep.
    pub(crate) fn list<'a>(&'a self, interest: &Interest, sleep: &mut PollList<'a>) {
        match &self.stream {
            Stream::Memory(memory) => memory.list(sleep),
            Stream::Sockets(sockets) => sockets.list(interest, sleep),
        }
    }

    /// After a sleep.
    pub(crate) fn disarm(&mut self) {
        match &mut self.stream {
            Stream::Memory(memory) => memory.disarm(),
            Stream::Sockets(_) => {}
        }
    }

    /// Whether there is something to do at once; `None` where only the kernel can tell.
    pub(crate) fn look(&mut self, interest: &Interest) -> Option<bool> {
        let is_ready = match &mut self.stream {
            Stream::Memory(memory) => memory.look(interest),
            Stream::Sockets(_) => return None,
        };
        Some(is_ready || interest.readable && self.holds_bytes())
    }

    /// Whether bytes that have been taken from the stream wait here.
    fn holds_bytes(&self) -> bool {
        self.records.as_ref().is_some_and(|records| records.receiver.holds_bytes())
    }

    /// The stream through memory, where bytes lie as they were sent: checksums are of bytes that nobody can change any
    /// more.
    fn unchecked_memory(&mut self) -> Option<&mut MemoryStream> {
        match &mut self.stream {
            Stream::Memory(memory) if self.records.is_none() => Some(memory),
            Stream::Memory(_) | Stream::Sockets(_) => None,
        }
    }
}

impl Stream {
    fn send(&mut self, bytes: &[IoSlice<'_>], copied_bytes: usize) -> io::Result<usize> {
        match self {
            Stream::Sockets(sockets) => sockets.send(bytes),
            Stream::Memory(memory) => memory.send(bytes, copied_bytes),
        }
    }

    fn recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Stream::Sockets(sockets) => sockets.recv(into),
            Stream::Memory(memory) => memory.recv(into),
        }
    }

    /// Receives no more, since bytes were changed on their way.
    fn distrust(&mut self) {
        match self {
            Stream::Sockets(sockets) => sockets.distrust(),
            Stream::Memory(memory) => memory.distrust(),
        }
    }
}

impl Link for DataLink {
    fn try_send(&mut self, bytes: &[IoSlice<'_>], copied_bytes: usize) -> io::Result<usize> {
        match &mut self.records {
            None => self.stream.send(bytes, copied_bytes),
            Some(records) => records.sender.send(bytes, |slices| self.stream.send(slices, COPY_ALL)),
        }
    }

    fn takes_whole(&self, bytes: u64) -> bool {
        bytes <= WHOLE_BYTES_MAX as u64 && self.records.is_none() && self.memory().is_some()
    }

    fn try_send_whole(&mut self, header: &HeaderBytes, key: HeaderKey, bytes: &[u8]) -> io::Result<bool> {
        match self.unchecked_memory() {
            Some(memory) => memory.send_whole(header, key, bytes),
            None => Ok(false),
        }
    }

    fn try_send_all(&mut self, bytes: [IoSlice<'_>; 2]) -> io::Result<bool> {
        match self.unchecked_memory() {
            Some(memory) => memory.send_all(bytes),
            None => Ok(false),
        }
    }

    fn takes_in_place(&mut self, is_faster: bool) -> bool {
        is_faster
    }

    fn unreleased_bytes(&mut self) -> io::Result<u64> {
        self.unchecked_memory().map_or(Ok(0), MemoryStream::unreleased_bytes)
    }

    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let Some(records) = &mut self.records else { return self.stream.recv(into) };
        let received = records.receiver.recv(into, |room| self.stream.recv(&mut [IoSliceMut::new(room)]));
        if matches!(&received, Err(error) if error.kind() == ErrorKind::InvalidData) {
            self.stream.distrust();
        }
        received
    }

    fn peek(&mut self, most: usize, header: Option<HeaderKey>) -> Option<io::Result<(bool, &[AtomicU8])>> {
        self.unchecked_memory().and_then(|memory| memory.peek(most, header))
    }

    fn consume(&mut self, count: usize) {
        match self.unchecked_memory() {
            Some(memory) => memory.consume(count),
            None => assert_eq!(count, 0, "this link gives no bytes where they lie"),
        }
    }

    fn notify(&mut self) {
        if let Stream::Memory(memory) = &mut self.stream {
            memory.notify();
        }
    }

    fn is_delivered(&mut self) -> bool {
        match &mut self.stream {
            Stream::Sockets(sockets) => sockets.is_delivered(),
            Stream::Memory(memory) => memory.is_delivered(),
        }
    }
}
