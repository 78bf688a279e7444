//! A link over a stream of bytes, with checksums or without.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};

use unisono_engine::{HeaderBytes, HeaderKey, Link, Peeked};

use super::records;

/// A duplex stream of bytes to one peer, which never blocks.
pub trait ByteStream {
    /// Takes as many bytes as fit, from the first slice on.
    ///
    /// # Errors
    /// As [`Link::try_send`].
    fn send(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Fills the slices in order.
    ///
    /// # Errors
    /// As [`Link::try_recv`].
    fn recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// As [`Link::short_bytes_max`].
    fn short_bytes_max(&self) -> Option<usize> {
        None
    }

    /// As [`Link::try_send_short`].
    ///
    /// # Errors
    /// As there.
    fn send_short(&mut self, header: &HeaderBytes, key: HeaderKey, bytes: &[u8]) -> io::Result<bool> {
        let _ = (header, key, bytes);
        Ok(false)
    }

    /// As [`Link::peek`].
    fn peek(&mut self, most: usize, header: Option<HeaderKey>) -> Option<io::Result<Peeked<'_>>> {
        let _ = (most, header);
        None
    }

    /// As [`Link::consume`].
    fn consume(&mut self, count: usize) {
        assert_eq!(count, 0, "this stream gives no bytes where they lie");
    }

    /// Receives no more, since bytes were changed on their way.
    fn distrust(&mut self);

    /// As [`Link::is_delivered`].
    fn is_delivered(&mut self) -> bool;
}

/// A link over a stream, which copies everything that it sends.
pub struct StreamLink<S> {
    stream: S,
    /// On a checked stream.
    records: Option<Box<Records>>,
}

struct Records {
    sender: records::Sender,
    receiver: records::Receiver,
}

impl<S> StreamLink<S> {
    /// The link over this stream; `is_checked` says whether it carries checksums.
    pub fn new(stream: S, is_checked: bool) -> StreamLink<S> {
        let records = is_checked.then(|| {
            Box::new(Records { sender: records::Sender::default(), receiver: records::Receiver::new() })
        });
        StreamLink { stream, records }
    }

    /// The stream.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// The stream, to wait for it.
    pub fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Whether bytes that have been taken from the stream wait here.
    pub fn holds_bytes(&self) -> bool {
        self.records.as_ref().is_some_and(|records| records.receiver.holds_bytes())
    }
}

impl<S: ByteStream> Link for StreamLink<S> {
    fn try_send(&mut self, bytes: &[IoSlice<'_>], _copied_bytes: usize) -> io::Result<usize> {
        match &mut self.records {
            None => self.stream.send(bytes),
            Some(records) => records.sender.send(bytes, |slices| self.stream.send(slices)),
        }
    }

    /// Checksums are of a stream of bytes.
    fn short_bytes_max(&self) -> Option<usize> {
        if self.records.is_some() { None } else { self.stream.short_bytes_max() }
    }

    fn try_send_short(&mut self, header: &HeaderBytes, key: HeaderKey, bytes: &[u8]) -> io::Result<bool> {
        if self.records.is_some() { Ok(false) } else { self.stream.send_short(header, key, bytes) }
    }

    fn unreleased_bytes(&mut self) -> io::Result<u64> {
        Ok(0)
    }

    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match &mut self.records {
            None => self.stream.recv(into),
            Some(records) => {
                let received =
                    records.receiver.recv(into, |room| self.stream.recv(&mut [IoSliceMut::new(room)]));
                if matches!(&received, Err(error) if error.kind() == ErrorKind::InvalidData) {
                    self.stream.distrust();
                }
                received
            }
        }
    }

    /// Checksums are of bytes that nobody can change any more.
    fn peek(&mut self, most: usize, header: Option<HeaderKey>) -> Option<io::Result<Peeked<'_>>> {
        if self.records.is_some() { None } else { self.stream.peek(most, header) }
    }

    fn consume(&mut self, count: usize) {
        self.stream.consume(count);
    }

    fn is_delivered(&mut self) -> bool {
        self.stream.is_delivered()
    }
}
