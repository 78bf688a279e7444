//! A stream of bytes in both directions.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use crate::indices::{FOR_BYTES, FOR_RETURN, FOR_ROOM, Impossible, Next, Reader, Writer};
use crate::memory::{OtherProcess, OtherSegment, Segment, copy_out, is_readable};
use crate::short::{HEADER_BYTES, Key, PAYLOAD_BYTES_MAX};

/// The number of bytes that are copied before the other side learns of them: it copies out while this side copies in.
/// With 64 KiB, a message of 64 KiB takes a sixth longer; with 16 KiB, one of 16 KiB a tenth.
const PUBLISHED_BYTES: usize = 32 << 10;

/// The most bytes behind a header of [`Stream::try_write_whole`]: with a header of 1 KiB, [`Stream::peek`] gives them
/// in one piece.
pub const WHOLE_BYTES_MAX: usize = PUBLISHED_BYTES - 1024;

/// As [`PUBLISHED_BYTES`], for [`Stream::try_write_all`]: the other side waits for these bytes alone.
const PUBLISHED_SOON_BYTES: usize = 4 << 10;

/// The fewest bytes of a loan: for fewer, copying them twice is faster than the system call.
const LOAN_BYTES_MIN: usize = 16 << 10;

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
    /// Whether the other side can read the memory of this process.
    may_lend: bool,
    /// The other side's process, if this one can read its memory.
    process: Option<OtherProcess>,
}

impl Segments {
    /// An own segment, and the other side's in the file that it has passed.
    ///
    /// # Errors
    /// `InvalidData` for a file that is no segment; when no memory is left.
    pub fn new(own: Segment, file: &OwnedFd) -> io::Result<Segments> {
        Ok(Segments { own, other: OtherSegment::open(file)?, may_lend: false, process: None })
    }

    /// The same, between sides that can read each other's memory: whether the other side can, and its process if this
    /// side can.
    pub fn with_loans(self, may_lend: bool, process: Option<OtherProcess>) -> Segments {
        Segments { may_lend, process, ..self }
    }

    /// Whether this side may lend bytes, and whether it can read lent ones.
    pub fn loans(&self) -> (bool, bool) {
        (self.may_lend, self.process.is_some())
    }

    /// Nothing is written any more: the other side reads the end behind the bytes. It must be woken afterwards. All
    /// loans are taken back, so bytes that were lent may change as soon as this returns.
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
    /// The addresses of bytes that could be read when they were lent before.
    readable: Range<usize>,
    /// Whether the next bytes wait for the return of a loan, and not for room.
    awaits_return: bool,
    /// The events that this side waits for in its sleep: [`FOR_BYTES`], [`FOR_ROOM`], [`FOR_RETURN`].
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
        Stream {
            segments,
            writer,
            reader,
            bell,
            readable: 0..0,
            awaits_return: false,
            awaited: 0,
            untold: 0,
            has_hung_up: false,
        }
    }

    /// Takes as many bytes as fit, from the first slice on. The first `copied_bytes` of them are copied; others may be
    /// lent to the other side, and must stay as they are until they are [released](Stream::unreleased_bytes), or until
    /// [`Segments::end`].
    ///
    /// # Errors
    /// `WouldBlock` when none fits. `BrokenPipe` when the other side has gone; `InvalidData` when it has written an
    /// impossible index.
    pub fn try_write(&mut self, bytes: &[IoSlice<'_>], copied_bytes: usize) -> io::Result<usize> {
        if self.has_hung_up {
            return Err(ErrorKind::BrokenPipe.into());
        }
        self.awaits_return = false;
        let (mut taken, mut unpublished) = (0, 0);
        for slice in bytes {
            let (copied, free) = slice.split_at(slice.len().min(copied_bytes.saturating_sub(taken)));
            let count = self.copy(copied, &mut unpublished)?;
            taken += count;
            if count < copied.len() {
                break;
            }
            let count = match self.is_lendable(free) {
                true => {
                    self.publish(std::mem::take(&mut unpublished));
                    self.lend(free)?
                }
                false => self.copy(free, &mut unpublished)?,
            };
            taken += count;
            if count < free.len() {
                break;
            }
        }
        self.publish(unpublished);
        let is_asked = bytes.iter().any(|slice| !slice.is_empty());
        if taken == 0 && is_asked { Err(ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    /// Copies as many bytes as fit into the ring. The other side does not know of the last ones, which are counted.
    fn copy(&mut self, bytes: &[u8], unpublished: &mut usize) -> io::Result<usize> {
        let mut taken = 0;
        while taken < bytes.len() {
            let rest = &bytes[taken..];
            let room = self.room(rest.len() + *unpublished)? - *unpublished;
            let count = rest.len().min(room).min(PUBLISHED_BYTES - *unpublished);
            if count == 0 {
                break;
            }
            self.segments.own.store(self.writer.next() + *unpublished as u64, &rest[..count]);
            (taken, *unpublished) = (taken + count, *unpublished + count);
            if *unpublished == PUBLISHED_BYTES {
                self.publish(std::mem::take(unpublished));
            }
        }
        Ok(taken)
    }

    /// Tells of so many copied bytes, and of loans.
    fn publish(&mut self, count: usize) {
        if count > 0 {
            self.writer.publish(count as u64, self.segments.own.page());
            self.untold |= FOR_BYTES;
        }
        self.notify();
    }

    /// Asks the kernel for a buffer once. If other memory comes to lie there, the other side says that it cannot read
    /// it.
    fn is_lendable(&mut self, bytes: &[u8]) -> bool {
        if !self.segments.may_lend || bytes.len() < LOAN_BYTES_MIN {
            return false;
        }
        let start = bytes.as_ptr().addr();
        let (new, known) = (start..start + bytes.len(), &mut self.readable);
        if known.start <= new.start && new.end <= known.end {
            return true;
        }
        let is_readable = is_readable(bytes);
        if is_readable {
            let touches = new.start <= known.end && known.start <= new.end;
            *known = if touches { known.start.min(new.start)..known.end.max(new.end) } else { new };
        }
        is_readable
    }

    /// Lends all bytes, or none.
    fn lend(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (own, other) = (self.segments.own.page(), self.segments.other.page());
        if !self.writer.may_lend(other).map_err(lost)? {
            self.awaits_return = true;
            return Ok(0);
        }
        self.writer.lend(bytes.as_ptr().addr() as u64, bytes.len() as u64, own);
        self.untold |= FOR_BYTES;
        Ok(bytes.len())
    }

    /// The number of taken bytes from the first one on that is lent and that the other side has not copied.
    ///
    /// # Errors
    /// `InvalidData` when the other side has written an impossible number.
    pub fn unreleased_bytes(&mut self) -> io::Result<u64> {
        self.writer.unreleased(self.segments.other.page()).map_err(lost)
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
            own.store_message(place, Some((header, key)), [&[], payload]);
            self.writer.publish_message(length as u32, false, own.page());
            self.untold |= FOR_BYTES;
            return Ok(true);
        }
        if payload.len() > WHOLE_BYTES_MAX || self.room(length)? < length {
            return Ok(false);
        }
        let (own, next) = (&self.segments.own, self.writer.next());
        own.store(next, header);
        own.store(next + HEADER_BYTES as u64, payload);
        self.writer.publish(length as u64, own.page());
        self.untold |= FOR_BYTES;
        Ok(true)
    }

    /// Takes all bytes, or nothing: more than [`WHOLE_BYTES_MAX`] in the second slice, or no room. A few bytes go into
    /// a place of their own. The other side may sleep on until [`Stream::notify`].
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
        if (1..=PAYLOAD_BYTES_MAX as u64).contains(&length)
            && let Some(place) =
                self.writer.place(length, own.page(), self.segments.other.page()).map_err(lost)?
        {
            own.store_message(place, None, [&first, &second]);
            self.writer.publish_message(length as u32, true, own.page());
            self.untold |= FOR_BYTES;
            return Ok(true);
        }
        own.store(self.writer.next(), &first);
        let mut unpublished = first.len() as u64;
        for part in second.chunks(PUBLISHED_SOON_BYTES) {
            own.store(self.writer.next() + unpublished, part);
            self.writer.publish(std::mem::take(&mut unpublished) + part.len() as u64, own.page());
        }
        if unpublished > 0 {
            self.writer.publish(unpublished, own.page());
        }
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
                let count = match next {
                    Next::Loan { address, bytes } => self.read_loan(address, bytes, rest)?,
                    Next::Ring(_) | Next::Message { .. } => {
                        let bytes = self.bytes(next, rest.len());
                        let count = bytes.len();
                        copy_out(bytes, &mut rest[..count]);
                        self.release(count);
                        count
                    }
                };
                if count == 0 {
                    break 'slices;
                }
                self.notify();
                (read, rest) = (read + count, &mut rest[count..]);
            }
        }
        let is_asked = into.iter().any(|slice| !slice.is_empty());
        if read == 0 && is_asked { self.ended().map(|()| 0) } else { Ok(read) }
    }

    /// Copies the next bytes of a loan, as many as there is room for. Bytes that the other side has taken back
    /// meanwhile were not received.
    fn read_loan(&mut self, address: u64, bytes: u64, into: &mut [u8]) -> io::Result<usize> {
        let (own, other) = (self.segments.own.page(), self.segments.other.page());
        let Some(process) = &self.segments.process else { return Err(ErrorKind::InvalidData.into()) };
        let count = into.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
        process.read(address, &mut into[..count])?;
        if other.has_taken_back() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.reader.take_from_loan(count as u64, own);
        self.untold |= FOR_RETURN;
        Ok(count)
    }

    /// Bytes that have come, where they lie: at most `most`, and few enough that the other side gets room again while
    /// this side works. They need not stay the same: the other side can write there. If a short message is next with a
    /// header for which this key stands, the header is skipped: true, with the bytes behind it, which may be none.
    /// `None` for lent bytes, which lie in the other process.
    ///
    /// # Errors
    /// As [`Stream::try_read`]; false without a byte is the end of the stream.
    pub fn peek(&mut self, most: usize, header: Option<Key>) -> io::Result<Option<(bool, &[AtomicU8])>> {
        let next = self.available(most.min(PUBLISHED_BYTES))?;
        match next {
            Next::Message { place, from: 0, to }
                if header.is_some_and(|key| self.segments.other.page().short.key(place) == key) =>
            {
                self.reader.skip(HEADER_BYTES as u64);
                let behind = Next::Message { place, from: HEADER_BYTES, to };
                return Ok(Some((true, self.bytes(behind, most.saturating_sub(HEADER_BYTES)))));
            }
            Next::Loan { .. } => return Ok(None),
            next if next.count() == 0 => self.ended()?,
            Next::Message { .. } | Next::Ring(_) => {}
        }
        Ok(Some((false, self.bytes(next, most))))
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
            Next::Loan { .. } => &[],
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

    /// The event that makes place for the bytes that [`Stream::try_write`] did not take.
    pub fn place_event(&self) -> u32 {
        if self.awaits_return { FOR_RETURN } else { FOR_ROOM }
    }

    /// Before a sleep: the other side rings from now on when one of these events comes ([`FOR_BYTES`], [`FOR_ROOM`],
    /// [`FOR_RETURN`], or several by `|`), or an event armed before. The thread arms all its streams,
    /// [looks again](crate::look_again), and asks each whether it [is ready](Stream::is_ready).
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
            || events & FOR_RETURN != 0 && self.writer.has_new_return(self.segments.other.page())
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
mod failing_jobs_tests;
#[cfg(test)]
mod loan_tests;
#[cfg(test)]
mod tests;
