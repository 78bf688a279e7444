//! The progress of each side of a ring, the time when a side sleeps, and the time when it must be woken.
//!
//! Indices count bytes from the start of the stream. Each side keeps its own in private memory, and publishes it on
//! its page; from the other side's page it reads, and believes an index only if it can be one.
//!
//! A side that finds nothing to do notes its wait on its page, and looks once more before it sleeps. A side that has
//! moved its index looks at the other's page. Between its store and its load each of the two has a fence. So of two
//! sides that do this at the same time, at least one sees the other's store: the sleeper finds something to do, or the
//! other side rings. This is Dekker's argument; the tests below try every order under loom.
//!
//! A short message (`short`) tells of itself, and of all bytes before it. A reader that has seen an index behind a
//! message sees the message too, because the writer published it before that index. So a reader looks for the next
//! message each time before it takes bytes of the ring, and takes none behind the message's start. The same holds for
//! a loan (`loans`), which lies between two bytes of the stream and comes before a message that begins there.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::loans::{LOAN_BYTES_MAX, LOANS_MAX, Lent, Loan, Loans};
use crate::short::{HEADER_BYTES, PAYLOAD_BYTES_MAX, PLACES, Placed, Places};

/// An event that a side waits for: bytes, or the end of the stream.
pub const FOR_BYTES: u32 = 1;
/// An event that a side waits for: room, or the end of the other side.
pub const FOR_ROOM: u32 = 2;
/// An event that a side waits for: the return of a loan, or the end of the other side.
pub const FOR_RETURN: u32 = 4;

/// The words that one side writes and the other one only reads. Each word has a cache line of its own, or the two sides
/// would take each other's.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Page {
    /// The number of bytes that this side has written into its ring.
    written: Line<AtomicU64>,
    /// The number of bytes that this side has read from the other side's ring.
    read: Line<AtomicU64>,
    /// The events that this side waits for in its sleep.
    awaited: Line<AtomicU32>,
    /// Not zero: this side writes no more.
    ended: Line<AtomicU32>,
    /// The number of lent bytes that this side has copied.
    returned: Line<AtomicU64>,
    /// The loans that this side makes.
    loans: Loans,
    /// The short messages that this side writes.
    pub(crate) short: Places,
}

#[derive(Debug)]
#[repr(C, align(128))]
struct Line<T>(T);

impl Page {
    #[cfg(any(test, loom))]
    pub(crate) fn new() -> Page {
        Page {
            written: Line(AtomicU64::new(0)),
            read: Line(AtomicU64::new(0)),
            awaited: Line(AtomicU32::new(0)),
            ended: Line(AtomicU32::new(0)),
            returned: Line(AtomicU64::new(0)),
            loans: Loans::new(),
            short: Places::new(),
        }
    }

    /// This side writes no more, and takes its loans back: their bytes may change from now on. The other side must be
    /// woken.
    pub(crate) fn end(&self) {
        self.ended.0.store(1, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Whether bytes that the other side has just copied out of a loan of this side may have changed meanwhile.
    #[inline]
    pub(crate) fn has_taken_back(&self) -> bool {
        fence(Ordering::Acquire);
        self.ended.0.load(Ordering::Relaxed) != 0
    }

    /// The number of bytes that this side has written and the other one has not read, if both keep the rules.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn unread_by(&self, other: &Page) -> u64 {
        let written = self.written.0.load(Ordering::Relaxed).max(self.short.end());
        written.saturating_sub(other.read.0.load(Ordering::Relaxed))
    }

    /// Whether this side writes no more. Its bytes from before are there.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.0.load(Ordering::Acquire) != 0
    }

    /// This side is about to sleep, and waits for this; if for nothing, it is awake. Before a sleep it calls
    /// [`look_again`] next, and then looks.
    #[inline]
    pub(crate) fn arm(&self, awaited: u32) {
        self.awaited.0.store(awaited, Ordering::Relaxed);
    }

    /// Whether this side sleeps and waits for one of these events, which the caller has stored before.
    #[inline]
    pub(crate) fn must_be_woken(&self, awaited: u32) -> bool {
        fence(Ordering::SeqCst);
        self.awaited.0.load(Ordering::Relaxed) & awaited != 0
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn forge_loan(&self, lent: u64, start: u64, address: u64, bytes: u64) {
        self.loans.publish(0, Loan { start, address, bytes });
        self.loans.publish(lent - 1, Loan { start, address, bytes });
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn forge_returned(&self, returned: u64) {
        self.returned.0.store(returned, Ordering::Relaxed);
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn forge(&self, written: u64, read: u64) {
        self.written.0.store(written, Ordering::Relaxed);
        self.read.0.store(read, Ordering::Relaxed);
    }
}

/// Between arming all streams and the last look at them before a sleep.
#[inline]
pub fn look_again() {
    fence(Ordering::SeqCst);
}

/// An index that the other side cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Impossible {
    /// The index.
    pub(crate) index: u64,
    /// The lowest and the highest that it could be.
    pub(crate) possible: (u64, u64),
}

#[inline]
fn checked(index: u64, possible: (u64, u64)) -> Result<u64, Impossible> {
    let is_possible = (possible.0..=possible.1).contains(&index);
    if is_possible { Ok(index) } else { Err(Impossible { index, possible }) }
}

/// The writing end of a ring.
#[derive(Debug)]
pub(crate) struct Writer {
    capacity: u64,
    written: u64,
    /// The bytes that the reader had read when this end looked last.
    read: u64,
    /// The number of short messages so far.
    messages: usize,
    loans: Lent,
}

impl Writer {
    pub(crate) fn new(capacity: u64) -> Writer {
        Writer { capacity, written: 0, read: 0, messages: 0, loans: Lent::default() }
    }

    /// Whether one more loan may be made. Looks at the reader's page only when all are out.
    pub(crate) fn may_lend(&mut self, reader: &Page) -> Result<bool, Impossible> {
        if !self.loans.has_place() {
            self.look_at_returned(reader)?;
        }
        Ok(self.loans.has_place())
    }

    /// Lends these bytes of this process, behind all bytes so far, as [`Writer::may_lend`] has allowed. A reader that
    /// sleeps [must be woken](Page::must_be_woken).
    pub(crate) fn lend(&mut self, address: u64, bytes: u64, own: &Page) {
        let loan = Loan { start: self.written, address, bytes };
        own.loans.publish(self.loans.note(loan), loan);
    }

    /// The number of bytes, copied or lent, from the first one on that is lent and that the reader has not copied.
    pub(crate) fn unreleased(&mut self, reader: &Page) -> Result<u64, Impossible> {
        if self.loans.oldest().is_some() {
            self.look_at_returned(reader)?;
        }
        Ok(self.loans.oldest().map_or(0, |start| self.written - start + self.loans.bytes_out()))
    }

    fn look_at_returned(&mut self, reader: &Page) -> Result<(), Impossible> {
        let bytes = checked(reader.returned.0.load(Ordering::Acquire), self.loans.returned_possible())?;
        self.loans.returned(bytes);
        Ok(())
    }

    /// Whether the reader has copied lent bytes since this end looked last.
    pub(crate) fn has_new_return(&self, reader: &Page) -> bool {
        self.loans.oldest().is_some()
            && reader.returned.0.load(Ordering::Acquire) != self.loans.returned_possible().0
    }

    /// The place for a short message of `length` bytes, if there is room for it.
    #[inline]
    pub(crate) fn place(
        &mut self,
        length: u64,
        own: &Page,
        reader: &Page,
    ) -> Result<Option<usize>, Impossible> {
        let place = self.messages % PLACES;
        if self.room(reader, length)? < length {
            return Ok(None);
        }
        let end = own.short.newest(place, 0).map_or(0, Placed::end);
        if end > self.read {
            self.look(reader)?;
        }
        Ok((end <= self.read).then_some(place))
    }

    /// A message of `length` bytes lies in the place that [`Writer::place`] has given; a bare one has no header. A
    /// reader that sleeps [must be woken](Page::must_be_woken).
    #[inline]
    pub(crate) fn publish_message(&mut self, length: u32, is_bare: bool, own: &Page) {
        let place = self.messages % PLACES;
        own.short.publish(place, self.written, length, is_bare);
        self.written += u64::from(length);
        self.messages = self.messages.wrapping_add(1);
    }

    #[inline]
    fn look(&mut self, reader: &Page) -> Result<(), Impossible> {
        self.read = checked(reader.read.0.load(Ordering::Acquire), (self.read, self.written))?;
        Ok(())
    }

    /// The number of bytes that fit. Looks at the reader's page only when its last index leaves room for less than
    /// `wanted`.
    #[inline]
    pub(crate) fn room(&mut self, reader: &Page, wanted: u64) -> Result<u64, Impossible> {
        let known = self.capacity - (self.written - self.read);
        if known >= wanted {
            return Ok(known);
        }
        self.look(reader)?;
        Ok(self.capacity - (self.written - self.read))
    }

    /// The index of the next byte.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.written
    }

    /// `count` more bytes are in the ring. A reader that sleeps [must be woken](Page::must_be_woken).
    #[inline]
    pub(crate) fn publish(&mut self, count: u64, own: &Page) {
        self.written += count;
        own.written.0.store(self.written, Ordering::Release);
    }
}

/// The bytes of a loan that are left.
fn rest_of_loan(loan: Loan) -> Next {
    Next::Loan { address: loan.address, bytes: loan.bytes }
}

/// The reading end of a ring.
#[derive(Debug)]
pub(crate) struct Reader {
    capacity: u64,
    read: u64,
    /// The bytes that the writer had written when this end looked last.
    written: u64,
    /// The number of short messages that have begun.
    messages: usize,
    /// The bounds of the last one of them. A bare one counts as if its header had been read before.
    message: (u64, u64),
    /// The number of loans that have begun, the rest of the last one, and the bytes copied of all.
    loans: u64,
    loan: Loan,
    loan_bytes: u64,
}

/// The next bytes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// So many, in the ring.
    Ring(u64),
    /// The bytes of a short message in this place from `from` to `to`, counted from its header.
    Message { place: usize, from: usize, to: usize },
    /// So many, at this address of the other process.
    Loan { address: u64, bytes: u64 },
}

impl Next {
    /// The number of bytes.
    #[inline]
    pub(crate) fn count(self) -> u64 {
        match self {
            Next::Ring(bytes) => bytes,
            Next::Message { from, to, .. } => (to - from) as u64,
            Next::Loan { bytes, .. } => bytes,
        }
    }
}

impl Reader {
    pub(crate) fn new(capacity: u64) -> Reader {
        Reader {
            capacity,
            read: 0,
            written: 0,
            messages: 0,
            message: (0, 0),
            loans: 0,
            loan: Loan::default(),
            loan_bytes: 0,
        }
    }

    /// The bytes that are there, as far as they lie in one piece. Looks at the writer's index only when by its last one
    /// less than `wanted` are there.
    #[inline]
    pub(crate) fn available(&mut self, writer: &Page, wanted: u64) -> Result<Next, Impossible> {
        if self.read < self.message.1 {
            return Ok(self.rest_of_message());
        }
        if self.loan.bytes > 0 {
            return Ok(rest_of_loan(self.loan));
        }
        let mut next = self.before_loans(writer, wanted)?;
        let before = self.before_loan(writer)?;
        if before.is_some_and(|before| before > 0) && next.count() == 0 {
            // All bytes before the loan can be seen with it.
            next = self.before_loans(writer, wanted)?;
        }
        match (before, next) {
            (Some(0), _) => Ok(rest_of_loan(self.loan)),
            (_, Next::Message { from, to, .. }) => {
                self.messages = self.messages.wrapping_add(1);
                let start = self.read.wrapping_sub(from as u64);
                self.message = (start, start.wrapping_add(to as u64));
                Ok(next)
            }
            (Some(before), Next::Ring(bytes)) => Ok(Next::Ring(bytes.min(before))),
            (None, Next::Ring(_)) | (_, Next::Loan { .. }) => Ok(next),
        }
    }

    /// The bytes that are there, as if nothing was lent. A message has not begun yet.
    #[inline]
    fn before_loans(&mut self, writer: &Page, wanted: u64) -> Result<Next, Impossible> {
        if let Some(next) = self.before_message(writer)? {
            return Ok(next);
        }
        // The index lags behind the messages since the last bytes of the ring.
        if self.written.saturating_sub(self.read) < wanted {
            let possible = (self.written, self.read + self.capacity);
            self.written = checked(writer.written.0.load(Ordering::Acquire), possible)?;
            // A message may have come before this index.
            if self.written > self.read
                && let Some(next) = self.before_message(writer)?
            {
                return Ok(next);
            }
        }
        Ok(Next::Ring(self.written.saturating_sub(self.read)))
    }

    /// The number of bytes of one piece that are known to be there, without a look at the writer's page.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn known(&self) -> u64 {
        self.message.1.max(self.written).saturating_sub(self.read)
    }

    /// The bytes before the next short message, or this message, if it is there.
    #[inline]
    fn before_message(&mut self, writer: &Page) -> Result<Option<Next>, Impossible> {
        let place = self.messages % PLACES;
        let Some(Placed { start, length, is_bare }) = writer.short.newest(place, self.read) else {
            return Ok(None);
        };
        let end = self.read + self.capacity;
        checked(start, (self.read, end))?;
        if start > self.read {
            self.written = self.written.max(start);
            return Ok(Some(Next::Ring(start - self.read)));
        }
        let (from, least) = if is_bare { (HEADER_BYTES, 1) } else { (0, HEADER_BYTES) };
        checked(length, (least as u64, (HEADER_BYTES - from + PAYLOAD_BYTES_MAX) as u64))?;
        checked(start + length, (start, end))?;
        Ok(Some(Next::Message { place, from, to: from + length as usize }))
    }

    /// The number of bytes before the next loan, if it is there; 0 begins it.
    #[inline]
    fn before_loan(&mut self, writer: &Page) -> Result<Option<u64>, Impossible> {
        let lent = writer.loans.lent();
        if lent == self.loans {
            return Ok(None);
        }
        checked(lent, (self.loans, self.loans + LOANS_MAX))?;
        let loan = writer.loans.get(self.loans);
        checked(loan.start, (self.read, self.read + self.capacity))?;
        checked(loan.bytes, (1, LOAN_BYTES_MAX))?;
        let before = loan.start - self.read;
        if before == 0 {
            (self.loans, self.loan) = (self.loans + 1, loan);
        }
        Ok(Some(before))
    }

    #[inline]
    fn rest_of_message(&self) -> Next {
        let (start, end) = self.message;
        let place = self.messages.wrapping_sub(1) % PLACES;
        Next::Message {
            place,
            from: self.read.wrapping_sub(start) as usize,
            to: end.wrapping_sub(start) as usize,
        }
    }

    /// The index of the next byte.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.read
    }

    /// `count` bytes are needed no more, and others come before the writer has to know.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn skip(&mut self, count: u64) {
        self.read += count;
    }

    /// `count` bytes of the loan have been copied, from before it was [taken back](Page::has_taken_back). A writer that
    /// sleeps [must be woken](Page::must_be_woken).
    pub(crate) fn take_from_loan(&mut self, count: u64, own: &Page) {
        self.loan.take(count);
        self.loan_bytes = self.loan_bytes.wrapping_add(count);
        own.returned.0.store(self.loan_bytes, Ordering::Release);
    }

    /// `count` bytes are needed no more. A writer that sleeps [must be woken](Page::must_be_woken).
    #[inline]
    pub(crate) fn release(&mut self, count: u64, own: &Page) {
        self.read += count;
        own.read.0.store(self.read, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod orders_tests;
#[cfg(all(test, not(loom)))]
mod tests;
