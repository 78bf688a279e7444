//! A stream of bytes in both directions.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use crate::indices::{FOR_BYTES, FOR_ROOM, Impossible, Next, Reader, Writer};
use crate::memory::{OtherSegment, Segment, copy_out};
use crate::short::{HEADER_BYTES, Key, PAYLOAD_BYTES_MAX};

/// The number of bytes that are copied before the other side learns of them: it copies out while this side copies in.
const PUBLISHED_BYTES: usize = 64 << 10;

/// The most bytes behind a header of [`Stream::try_write_whole`].
pub const WHOLE_BYTES_MAX: usize = 4096;

/// Wakes the other side, which sleeps.
pub trait Bell {
    /// Ends the sleep of the other side: its present sleep, or its next one.
    fn ring(&self);
}

impl<B: Bell + ?Sized> Bell for Arc<B> {
    fn ring(&self) {
        (**self).ring();
    }
}

/// The memory of both sides.
#[derive(Debug)]
pub struct Segments {
    own: Segment,
    other: OtherSegment,
}

impl Segments {
    /// An own segment, and the other side's in the file that it has passed.
    ///
    /// # Errors
    /// `InvalidData` for a file that is no segment; when no memory is left.
    pub fn new(own: Segment, file: &OwnedFd) -> io::Result<Segments> {
        Ok(Segments { own, other: OtherSegment::open(file)? })
    }

    /// Nothing is written any more: the other side reads the end behind the bytes. It must be woken afterwards.
    pub fn end(&self) {
        self.own.page().end();
    }

    /// The number of bytes that have come and that this side has not read.
    pub fn unread_bytes(&self) -> u64 {
        self.other.page().unread_by(self.own.page()).min(self.other.capacity() as u64)
    }
}

/// One stream of bytes in both directions; `B` wakes the other side.
#[derive(Debug)]
pub struct Stream<B> {
    segments: Arc<Segments>,
    writer: Writer,
    reader: Reader,
    bell: B,
    /// The events that this side waits for in its sleep: [`FOR_BYTES`], [`FOR_ROOM`].
    awaited: u32,
    /// The events for the other side of which it has not been told, should it sleep.
    untold: u32,
    /// The other side's process has ended, or its connection.
    has_hung_up: bool,
}

impl<B: Bell> Stream<B> {
    /// The one stream in this memory.
    pub fn new(segments: Arc<Segments>, bell: B) -> Stream<B> {
        let writer = Writer::new(segments.own.capacity() as u64);
        let reader = Reader::new(segments.other.capacity() as u64);
        Stream { segments, writer, reader, bell, awaited: 0, untold: 0, has_hung_up: false }
    }

    /// Takes as many bytes as fit, from the first slice on.
    ///
    /// # Errors
    /// `WouldBlock` when none fits. `BrokenPipe` when the other side has gone; `InvalidData` when it has written an
    /// impossible index.
    pub fn try_write(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.has_hung_up {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let (mut taken, mut unpublished) = (0, 0);
        'slices: for slice in bytes {
            let mut rest: &[u8] = slice;
            while !rest.is_empty() {
                let room = self.room(rest.len() + unpublished)? - unpublished;
                let count = rest.len().min(room).min(PUBLISHED_BYTES - unpublished);
                if count == 0 {
                    break 'slices;
                }
                self.segments.own.store(self.writer.next() + unpublished as u64, &rest[..count]);
                (taken, unpublished, rest) = (taken + count, unpublished + count, &rest[count..]);
                if unpublished == PUBLISHED_BYTES {
                    self.publish(std::mem::take(&mut unpublished));
                }
            }
        }
        if unpublished > 0 {
            self.publish(unpublished);
        }
        let is_asked = bytes.iter().any(|slice| !slice.is_empty());
        if taken == 0 && is_asked { Err(ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    /// Takes a header and the bytes behind it, or nothing: more than [`WHOLE_BYTES_MAX`], or no room. `key` stands for
    /// the header. The other side may sleep on until [`Stream::notify`].
    ///
    /// # Errors
    /// As [`Stream::try_write`], but for `WouldBlock`.
    pub fn try_write_whole(
        &mut self,
        header: &[u8; HEADER_BYTES],
        key: Key,
        payload: &[u8],
    ) -> io::Result<bool> {
        if self.has_hung_up {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let length = HEADER_BYTES + payload.len();
        let (own, other) = (&self.segments.own, self.segments.other.page());
        if payload.len() <= PAYLOAD_BYTES_MAX
            && let Some(place) = self.writer.place(length as u64, own.page(), other).map_err(lost)?
        {
            own.store_message(place, header, key, payload);
            self.writer.publish_message(length as u32, own.page());
            self.untold |= FOR_BYTES;
            return Ok(true);
        }
        self.try_write_all([IoSlice::new(header), IoSlice::new(payload)])
    }

    /// Takes all bytes, or nothing: more than [`WHOLE_BYTES_MAX`] in the second slice, or no room. The other side may
    /// sleep on until [`Stream::notify`].
    ///
    /// # Errors
    /// As [`Stream::try_write`], but for `WouldBlock`.
    pub fn try_write_all(&mut self, [first, second]: [IoSlice<'_>; 2]) -> io::Result<bool> {
        if self.has_hung_up {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let (own, length) = (&self.segments.own, (first.len() + second.len()) as u64);
        let room = self.writer.room(self.segments.other.page(), length).map_err(lost)?;
        if second.len() > WHOLE_BYTES_MAX || room < length {
            return Ok(false);
        }
        own.store(self.writer.next(), &first);
        own.store(self.writer.next() + first.len() as u64, &second);
        self.writer.publish(length, own.page());
        self.untold |= FOR_BYTES;
        Ok(true)
    }

    /// Wakes the other side if it sleeps and waits for an event of which it has not been told. A call that does so last
    /// does not wait for its stores to reach the memory.
    #[inline]
    pub fn notify(&mut self) {
        let untold = std::mem::take(&mut self.untold);
        if untold != 0 && self.segments.other.page().must_be_woken(untold) {
            self.bell.ring();
        }
    }

    fn room(&mut self, wanted: usize) -> io::Result<usize> {
        let wanted = wanted.min(self.segments.own.capacity()) as u64;
        Ok(self.writer.room(self.segments.other.page(), wanted).map_err(lost)? as usize)
    }

    fn publish(&mut self, count: usize) {
        self.writer.publish(count as u64, self.segments.own.page());
        self.untold |= FOR_BYTES;
        self.notify();
    }

    /// Fills the slices in order with bytes that have come.
    ///
    /// # Errors
    /// `WouldBlock` when none has come. `Ok(0)` at the end of the stream. `UnexpectedEof` when the other side has gone
    /// without having ended the stream; `InvalidData` when it has written an impossible index.
    pub fn try_read(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut read = 0;
        'slices: for slice in into.iter_mut() {
            let mut rest: &mut [u8] = slice;
            while !rest.is_empty() {
                let next = self.available(rest.len().min(PUBLISHED_BYTES))?;
                let bytes = self.bytes(next, rest.len());
                let count = bytes.len();
                if count == 0 {
                    break 'slices;
                }
                let (now, later) = rest.split_at_mut(count);
                copy_out(bytes, now);
                self.release(count);
                self.notify();
                (read, rest) = (read + count, later);
            }
        }
        let is_asked = into.iter().any(|slice| !slice.is_empty());
        if read == 0 && is_asked { self.ended().map(|()| 0) } else { Ok(read) }
    }

    /// Bytes that have come, where they lie: at most `most`, and few enough that the other side gets room again while
    /// this side works. They need not stay the same: the other side can write there. If a short message is next with a
    /// header for which this key stands, the header is skipped: true, with the bytes behind it, which may be none.
    ///
    /// # Errors
    /// As [`Stream::try_read`]; false without a byte is the end of the stream.
    pub fn peek(&mut self, most: usize, header: Option<Key>) -> io::Result<(bool, &[AtomicU8])> {
        let next = self.available(most.min(PUBLISHED_BYTES))?;
        match next {
            Next::Message { place, from: 0, to }
                if header.is_some_and(|key| self.segments.other.page().short.key(place) == key) =>
            {
                self.reader.skip(HEADER_BYTES as u64);
                let behind = Next::Message { place, from: HEADER_BYTES, to };
                return Ok((true, self.bytes(behind, most.saturating_sub(HEADER_BYTES))));
            }
            next if next.count() == 0 => self.ended()?,
            Next::Message { .. } | Next::Ring(_) => {}
        }
        Ok((false, self.bytes(next, most)))
    }

    /// The first `count` of the bytes that [`Stream::peek`] has given are needed no more. The other side may sleep on
    /// until [`Stream::notify`].
    ///
    /// # Panics
    /// When fewer have come.
    pub fn consume(&mut self, count: usize) {
        assert!(count as u64 <= self.reader.known(), "{count} bytes have not come");
        self.release(count);
    }

    /// The other side's index is looked at when fewer bytes than `wanted` are known to be there.
    fn available(&mut self, wanted: usize) -> io::Result<Next> {
        self.reader.available(self.segments.other.page(), wanted as u64).map_err(lost)
    }

    /// At most `most` of these bytes, where they lie, and few enough that the other side gets room again meanwhile.
    fn bytes(&self, next: Next, most: usize) -> &[AtomicU8] {
        let (other, most) = (&self.segments.other, most.min(PUBLISHED_BYTES));
        match next {
            Next::Ring(bytes) => other.bytes(self.reader.next(), most.min(bytes as usize)),
            Next::Message { place, from, to } => {
                let short = &other.page().short;
                let bytes = match from.checked_sub(HEADER_BYTES) {
                    Some(from) => &short.payload(place)[from..to - HEADER_BYTES],
                    None => &short.header(place)[from..],
                };
                &bytes[..most.min(bytes.len())]
            }
        }
    }

    fn release(&mut self, count: usize) {
        self.reader.release(count as u64, self.segments.own.page());
        self.untold |= FOR_ROOM;
    }

    /// No byte is there: the stream may have ended.
    fn ended(&mut self) -> io::Result<()> {
        let has_ended = self.segments.other.page().has_ended();
        if !has_ended && !self.has_hung_up {
            return Err(ErrorKind::WouldBlock.into());
        }
        // Both come behind the bytes, so there may be some by now.
        if self.available(1)?.count() > 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        if has_ended { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
    }

    /// The other side's process has ended, or its connection. Its earlier bytes can still be read. If it has ended the
    /// stream before, it may still read.
    pub fn hang_up(&mut self) {
        self.has_hung_up = !self.segments.other.page().has_ended();
    }

    /// Before a sleep: the other side rings from now on when one of these events comes ([`FOR_BYTES`], [`FOR_ROOM`], or
    /// both by `|`), or an event armed before. The thread arms all its streams, [looks again](crate::look_again), and
    /// asks each whether it [is ready](Stream::is_ready).
    pub fn arm(&mut self, events: u32) {
        self.notify();
        self.awaited |= events;
        self.segments.own.page().arm(self.awaited);
    }

    /// Whether there is something to do at once for which the stream is armed, or something to tell.
    pub fn is_ready(&mut self) -> bool {
        self.look(self.awaited)
    }

    /// Whether one of these events is there ([`Stream::arm`]), or something to tell.
    pub fn look(&mut self, events: u32) -> bool {
        self.has_hung_up
            || events & FOR_BYTES != 0
                && (self.available(1).map_or(true, |next| next.count() > 0)
                    || self.segments.other.page().has_ended())
            || events & FOR_ROOM != 0 && self.room(1).map_or(true, |room| room > 0)
    }

    /// After the sleep.
    pub fn disarm(&mut self) {
        self.awaited = 0;
        self.segments.own.page().arm(0);
    }
}

fn lost(impossible: Impossible) -> io::Error {
    let Impossible { index, possible: (low, high) } = impossible;
    let text = format!("the other side counts {index} bytes, and it can be {low} to {high}");
    io::Error::new(ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests;
