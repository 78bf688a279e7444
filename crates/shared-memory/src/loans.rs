//! Loans: bytes that the reader copies out of the memory of the writer's process, by a system call of its own, so that
//! they are copied once. Through the ring they are copied twice.
//!
//! A loan lies in the stream between two bytes of the ring, and takes no index. Its bytes stay as they are until the
//! reader has copied them. A writer that cannot wait for that [ends](crate::Segments::end) the stream first, which
//! takes all loans back: it stores a word, has a fence, and only then changes the bytes. The reader copies, has a
//! fence, and only then looks at the word. So a reader that has copied a changed byte sees the word.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// The most loans that are not returned: with their number they fill two cache lines.
pub(crate) const LOANS_MAX: u64 = if cfg!(loom) { 1 } else { 5 };

/// The most bytes of a loan: so many can lie in memory.
pub(crate) const LOAN_BYTES_MAX: u64 = isize::MAX as u64;

/// The loans of one direction.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Loans {
    /// The number of loans so far.
    lent: AtomicU64,
    places: [Words; LOANS_MAX as usize],
}

#[derive(Debug)]
struct Words {
    start: AtomicU64,
    address: AtomicU64,
    bytes: AtomicU64,
}

/// Bytes of the writer's process that the reader may copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Loan {
    /// The index of the byte of the ring behind it.
    pub(crate) start: u64,
    /// The place of the first byte in the writer's process.
    pub(crate) address: u64,
    /// Their number.
    pub(crate) bytes: u64,
}

impl Loans {
    #[cfg(any(test, loom))]
    pub(crate) fn new() -> Loans {
        let word = || AtomicU64::new(0);
        let places =
            [(); LOANS_MAX as usize].map(|()| Words { start: word(), address: word(), bytes: word() });
        Loans { lent: word(), places }
    }

    /// Shows the loan with this number, which comes after all that has been written so far.
    pub(crate) fn publish(&self, number: u64, loan: Loan) {
        let words = &self.places[(number % LOANS_MAX) as usize];
        words.start.store(loan.start, Ordering::Relaxed);
        words.address.store(loan.address, Ordering::Relaxed);
        words.bytes.store(loan.bytes, Ordering::Relaxed);
        self.lent.store(number + 1, Ordering::Release);
    }

    /// The number of loans so far. With them come all bytes of the stream before them.
    #[inline]
    pub(crate) fn lent(&self) -> u64 {
        self.lent.load(Ordering::Acquire)
    }

    /// The loan with this number.
    pub(crate) fn get(&self, number: u64) -> Loan {
        let words = &self.places[(number % LOANS_MAX) as usize];
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Loan { start: word(&words.start), address: word(&words.address), bytes: word(&words.bytes) }
    }
}

impl Loan {
    /// Its first bytes have been copied. The address is the writer's, so it may be any number.
    pub(crate) fn take(&mut self, count: u64) {
        self.address = self.address.wrapping_add(count);
        self.bytes -= count;
    }
}

/// The loans of a writer.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    /// The number of loans so far, and the number of loans that were copied whole.
    loans: u64,
    returned: u64,
    /// The number of bytes of all loans so far, and of copied ones among them.
    bytes: u64,
    returned_bytes: u64,
    /// By place: the index at which a loan lies, and the bytes of all loans up to its end.
    out: [(u64, u64); LOANS_MAX as usize],
}

impl Lent {
    /// Whether one more loan may be made.
    pub(crate) fn has_place(&self) -> bool {
        self.loans - self.returned < LOANS_MAX
    }

    /// Counts this loan, and gives its number.
    pub(crate) fn note(&mut self, loan: Loan) -> u64 {
        let number = self.loans;
        (self.loans, self.bytes) = (number + 1, self.bytes + loan.bytes);
        self.out[(number % LOANS_MAX) as usize] = (loan.start, self.bytes);
        number
    }

    /// The index of the oldest loan that is out.
    pub(crate) fn oldest(&self) -> Option<u64> {
        (self.returned < self.loans).then(|| self.out[(self.returned % LOANS_MAX) as usize].0)
    }

    /// The lent bytes that the reader has not copied.
    pub(crate) fn bytes_out(&self) -> u64 {
        self.bytes - self.returned_bytes
    }

    /// The lowest and the highest number of bytes that the reader can have copied.
    pub(crate) fn returned_possible(&self) -> (u64, u64) {
        (self.returned_bytes, self.bytes)
    }

    /// The reader has copied so many bytes of all loans, which is possible.
    pub(crate) fn returned(&mut self, bytes: u64) {
        self.returned_bytes = bytes;
        while self.returned < self.loans && self.out[(self.returned % LOANS_MAX) as usize].1 <= bytes {
            self.returned += 1;
        }
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Loans>() == 128, "two cache lines");
