//! How far each side of a ring is, when a side sleeps, and when it must be woken.
//!
//! Indices count bytes from the start of the stream. Each side keeps its own in private memory, and publishes it on
//! its page; from the other side's page it reads, and believes an index only if it can be one.
//!
//! A side that finds nothing to do says on its page for what it waits, and looks once more before it sleeps. A side
//! that has moved its index looks at the other's page. Between its store and its load each of the two has a fence. So
//! of two sides that do this at the same time, at least one sees the other's store: the sleeper finds something to do,
//! or the other side rings. This is Dekker's argument; the tests below try every order under loom.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A side that sleeps waits for bytes.
pub(crate) const FOR_BYTES: u32 = 1;
/// A side that sleeps waits for room.
pub(crate) const FOR_ROOM: u32 = 2;

/// The words that one side writes and the other one only reads. Each has a cache line of its own, or the two sides
/// would take each other's.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Page {
    /// How many bytes this side has written into its ring.
    written: Line<AtomicU64>,
    /// How many bytes this side has read from the other side's ring.
    read: Line<AtomicU64>,
    /// What this side waits for in its sleep.
    awaited: Line<AtomicU32>,
    /// Not zero: this side writes no more.
    ended: Line<AtomicU32>,
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
        }
    }

    /// This side writes no more. The other one must be woken.
    pub(crate) fn end(&self) {
        self.ended.0.store(1, Ordering::Release);
    }

    /// How many bytes this side has written that the other one has not read, if both keep the rules.
    #[cfg(not(loom))]
    pub(crate) fn unread_by(&self, other: &Page) -> u64 {
        self.written.0.load(Ordering::Relaxed).saturating_sub(other.read.0.load(Ordering::Relaxed))
    }

    /// Whether this side writes no more. What it has written before is there.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.0.load(Ordering::Acquire) != 0
    }

    /// This side is about to sleep, and waits for this; if for nothing, it is awake. Before a sleep it calls
    /// [`look_again`] next, and then looks.
    pub(crate) fn arm(&self, awaited: u32) {
        self.awaited.0.store(awaited, Ordering::Relaxed);
    }

    /// Whether this side sleeps and waits for this, which the caller has just stored.
    fn must_be_woken(&self, awaited: u32) -> bool {
        fence(Ordering::SeqCst);
        self.awaited.0.load(Ordering::Relaxed) & awaited != 0
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn forge(&self, written: u64, read: u64) {
        self.written.0.store(written, Ordering::Relaxed);
        self.read.0.store(read, Ordering::Relaxed);
    }
}

/// Between arming all streams and the last look at them before a sleep.
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

fn checked(index: u64, possible: (u64, u64)) -> Result<u64, Impossible> {
    let is_possible = (possible.0..=possible.1).contains(&index);
    if is_possible { Ok(index) } else { Err(Impossible { index, possible }) }
}

/// The writing end of a ring.
#[derive(Debug)]
pub(crate) struct Writer {
    capacity: u64,
    written: u64,
    /// How much the reader had read when this end looked last.
    read: u64,
}

impl Writer {
    pub(crate) fn new(capacity: u64) -> Writer {
        Writer { capacity, written: 0, read: 0 }
    }

    /// How many bytes fit. Looks at the reader's page only when its last index leaves room
    /// for less than `wanted`.
    pub(crate) fn room(&mut self, reader: &Page, wanted: u64) -> Result<u64, Impossible> {
        let known = self.capacity - (self.written - self.read);
        if known >= wanted {
            return Ok(known);
        }
        self.read = checked(reader.read.0.load(Ordering::Acquire), (self.read, self.written))?;
        Ok(self.capacity - (self.written - self.read))
    }

    /// The index of the next byte.
    pub(crate) fn next(&self) -> u64 {
        self.written
    }

    /// `count` more bytes are in the ring. Returns whether the reader must be woken.
    pub(crate) fn publish(&mut self, count: u64, own: &Page, reader: &Page) -> bool {
        self.written += count;
        own.written.0.store(self.written, Ordering::Release);
        reader.must_be_woken(FOR_BYTES)
    }
}

/// The reading end of a ring.
#[derive(Debug)]
pub(crate) struct Reader {
    capacity: u64,
    read: u64,
    /// How much the writer had written when this end looked last.
    written: u64,
}

impl Reader {
    pub(crate) fn new(capacity: u64) -> Reader {
        Reader { capacity, read: 0, written: 0 }
    }

    /// How many bytes are there. Looks at the writer's page only when by its last index less than
    /// `wanted` are there.
    pub(crate) fn available(&mut self, writer: &Page, wanted: u64) -> Result<u64, Impossible> {
        if self.written - self.read < wanted {
            let possible = (self.written, self.read + self.capacity);
            self.written = checked(writer.written.0.load(Ordering::Acquire), possible)?;
        }
        Ok(self.written - self.read)
    }

    /// The index of the next byte.
    pub(crate) fn next(&self) -> u64 {
        self.read
    }

    /// `count` bytes are needed no more. Returns whether the writer must be woken.
    pub(crate) fn release(&mut self, count: u64, own: &Page, writer: &Page) -> bool {
        self.read += count;
        own.read.0.store(self.read, Ordering::Release);
        writer.must_be_woken(FOR_ROOM)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_cannot_be_is_refused() {
        let (own, other) = (Page::new(), Page::new());
        let mut writer = Writer::new(8);
        assert!(!writer.publish(5, &own, &other));
        for (index, is_possible) in [(6, false), (u64::MAX, false), (3, true), (2, false), (5, true)] {
            other.forge(0, index);
            let room = writer.room(&other, 8);
            assert_eq!(room.is_ok(), is_possible, "{index}: {room:?}");
        }
        let mut reader = Reader::new(8);
        for (index, is_possible) in [(9, false), (u64::MAX, false), (3, true), (2, false), (8, true)] {
            other.forge(index, 0);
            let available = reader.available(&other, u64::MAX);
            assert_eq!(available.is_ok(), is_possible, "{index}: {available:?}");
        }
        reader.release(4, &own, &other);
        other.forge(13, 0);
        let impossible = reader.available(&other, 9).unwrap_err();
        assert_eq!(impossible, Impossible { index: 13, possible: (8, 12) });
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test -p unisono-shared-memory --release`
#[cfg(all(test, loom))]
mod orders {
    use loom::cell::UnsafeCell;
    use loom::sync::{Arc, Notify};
    use loom::thread;

    use super::*;

    const CAPACITY: u64 = 1;

    struct Ring {
        pages: [Page; 2],
        bells: [Notify; 2],
        bytes: [UnsafeCell<u64>; CAPACITY as usize],
    }

    impl Ring {
        fn new() -> Ring {
            Ring {
                pages: [Page::new(), Page::new()],
                bells: [Notify::new(), Notify::new()],
                bytes: [UnsafeCell::new(u64::MAX)],
            }
        }

        fn write(&self, writer: &mut Writer, byte: u64) {
            let [own, other] = &self.pages;
            while writer.room(other, 1).unwrap() == 0 {
                own.arm(FOR_ROOM);
                look_again();
                if writer.room(other, 1).unwrap() == 0 {
                    self.bells[0].wait();
                }
                own.arm(0);
            }
            self.bytes[(writer.next() % CAPACITY) as usize].with_mut(|place| {
                // SAFETY: loom checks that the reader is elsewhere.
                #[allow(unsafe_code)]
                unsafe {
                    *place = byte;
                }
            });
            if writer.publish(1, own, other) {
                self.bells[1].notify();
            }
        }

        fn end(&self) {
            self.pages[0].end();
            self.bells[1].notify();
        }

        /// The next byte; `None` at the end.
        fn read(&self, reader: &mut Reader) -> Option<u64> {
            let [other, own] = &self.pages;
            loop {
                // The end comes behind the bytes, so they are looked for after it.
                let has_ended = other.has_ended();
                if reader.available(other, 1).unwrap() > 0 {
                    break;
                }
                if has_ended {
                    return None;
                }
                own.arm(FOR_BYTES);
                look_again();
                if reader.available(other, 1).unwrap() == 0 && !other.has_ended() {
                    self.bells[1].wait();
                }
                own.arm(0);
            }
            let byte = self.bytes[(reader.next() % CAPACITY) as usize].with(|place| {
                // SAFETY: loom checks that the writer is elsewhere.
                #[allow(unsafe_code)]
                unsafe {
                    *place
                }
            });
            if reader.release(1, own, other) {
                self.bells[0].notify();
            }
            Some(byte)
        }
    }

    // A wake-up that is lost is a deadlock, which loom reports.

    #[test]
    fn a_reader_learns_of_bytes_and_of_the_end_behind_them() {
        loom::model(|| {
            let ring = Arc::new(Ring::new());
            let reader = thread::spawn({
                let ring = ring.clone();
                move || {
                    let mut reader = Reader::new(CAPACITY);
                    assert_eq!((ring.read(&mut reader), ring.read(&mut reader)), (Some(7), None));
                }
            });
            ring.write(&mut Writer::new(CAPACITY), 7);
            ring.end();
            reader.join().unwrap();
        });
    }

    #[test]
    fn a_writer_learns_of_room() {
        loom::model(|| {
            let (ring, mut writer) = (Arc::new(Ring::new()), Writer::new(CAPACITY));
            ring.write(&mut writer, 7);
            let reader = thread::spawn({
                let ring = ring.clone();
                move || assert_eq!(ring.read(&mut Reader::new(CAPACITY)), Some(7))
            });
            // There is no room for it before the first one has been read.
            ring.write(&mut writer, 8);
            reader.join().unwrap();
        });
    }
}
