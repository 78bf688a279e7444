//! Every order in which two threads can act, under loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p unisono-shared-memory --release`.

#![expect(unsafe_code, reason = "memory that two threads share, in a cell of loom's")]

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Notify};
use loom::thread;

use super::*;

const BYTES: usize = 3;

struct Ring {
    pages: [Page; 2],
    bells: [Notify; 2],
    bytes: [UnsafeCell<u64>; BYTES],
}

impl Ring {
    fn new() -> Ring {
        Ring {
            pages: [Page::new(), Page::new()],
            bells: [Notify::new(), Notify::new()],
            bytes: [(); BYTES].map(|()| UnsafeCell::new(u64::MAX)),
        }
    }

    /// As a byte of the ring, or as a short message.
    fn write(&self, writer: &mut Writer, byte: u64, is_message: bool) {
        let [own, other] = &self.pages;
        let mut has_room = || match is_message {
            true => writer.place(1, own, other).unwrap().is_some(),
            false => writer.room(other, 1).unwrap() > 0,
        };
        while !has_room() {
            own.arm(FOR_ROOM);
            look_again();
            if !has_room() {
                self.bells[0].wait();
            }
            own.arm(0);
        }
        self.bytes[writer.next() as usize % BYTES].with_mut(|place| {
            // SAFETY: loom checks that the reader is elsewhere.
            unsafe {
                *place = byte;
            }
        });
        match is_message {
            true => writer.publish_message(1, false, own),
            false => writer.publish(1, own),
        }
        if other.must_be_woken(FOR_BYTES) {
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
            if reader.available(other, 1).unwrap().count() > 0 {
                break;
            }
            if has_ended {
                return None;
            }
            own.arm(FOR_BYTES);
            look_again();
            if reader.available(other, 1).unwrap().count() == 0 && !other.has_ended() {
                self.bells[1].wait();
            }
            own.arm(0);
        }
        let byte = self.bytes[reader.next() as usize % BYTES].with(|place| {
            // SAFETY: loom checks that the writer is elsewhere.
            unsafe { *place }
        });
        reader.release(1, own);
        if other.must_be_woken(FOR_ROOM) {
            self.bells[0].notify();
        }
        Some(byte)
    }
}

// A wake-up that is lost is a deadlock, which loom reports.

#[test]
fn a_reader_learns_of_bytes_and_of_the_end_behind_them() {
    for is_message in [false, true] {
        loom::model(move || {
            let ring = Arc::new(Ring::new());
            let reader = thread::spawn({
                let ring = ring.clone();
                move || {
                    let mut reader = Reader::new(1);
                    assert_eq!((ring.read(&mut reader), ring.read(&mut reader)), (Some(7), None));
                }
            });
            ring.write(&mut Writer::new(1), 7, is_message);
            ring.end();
            reader.join().unwrap();
        });
    }
}

#[test]
fn a_writer_learns_of_room() {
    for is_message in [false, true] {
        loom::model(move || {
            let (ring, mut writer) = (Arc::new(Ring::new()), Writer::new(1));
            ring.write(&mut writer, 7, is_message);
            let reader = thread::spawn({
                let ring = ring.clone();
                move || assert_eq!(ring.read(&mut Reader::new(1)), Some(7))
            });
            // There is no room for it before the first one has been read.
            ring.write(&mut writer, 8, is_message);
            reader.join().unwrap();
        });
    }
}

#[test]
fn messages_and_bytes_of_the_ring_come_in_their_order() {
    for is_message in [[true, false], [false, true]] {
        loom::model(move || {
            let ring = Arc::new(Ring::new());
            let reader = thread::spawn({
                let ring = ring.clone();
                move || {
                    let mut reader = Reader::new(BYTES as u64);
                    assert_eq!((ring.read(&mut reader), ring.read(&mut reader)), (Some(7), Some(8)));
                }
            });
            let mut writer = Writer::new(BYTES as u64);
            ring.write(&mut writer, 7, is_message[0]);
            ring.write(&mut writer, 8, is_message[1]);
            reader.join().unwrap();
        });
    }
}

/// A lent byte that may change while it is read, as the kernel copies it.
struct LentByte(AtomicU64);

/// The next byte, from a loan.
fn read_lent(ring: &Ring, lent: &LentByte, reader: &mut Reader) -> Option<u64> {
    let [other, own] = &ring.pages;
    while reader.available(other, 1).unwrap().count() == 0 {
        own.arm(FOR_BYTES);
        look_again();
        if reader.available(other, 1).unwrap().count() == 0 && !other.has_ended() {
            ring.bells[1].wait();
        }
        own.arm(0);
    }
    assert!(matches!(reader.available(other, 1), Ok(Next::Loan { bytes: 1, .. })));
    let byte = lent.0.load(Ordering::Relaxed);
    if other.has_taken_back() {
        return None;
    }
    reader.take_from_loan(1, own);
    if other.must_be_woken(FOR_RETURN) {
        ring.bells[0].notify();
    }
    Some(byte)
}

fn lend(ring: &Ring, writer: &mut Writer) {
    let [own, other] = &ring.pages;
    assert!(writer.may_lend(other).unwrap());
    writer.lend(0, 1, own);
    if other.must_be_woken(FOR_BYTES) {
        ring.bells[1].notify();
    }
}

#[test]
fn no_changed_byte_is_received_from_a_loan_that_was_taken_back() {
    loom::model(|| {
        let (ring, lent) = (Arc::new(Ring::new()), Arc::new(LentByte(AtomicU64::new(7))));
        lend(&ring, &mut Writer::new(1));
        let reader = thread::spawn({
            let (ring, lent) = (ring.clone(), lent.clone());
            move || {
                let byte = read_lent(&ring, &lent, &mut Reader::new(1));
                assert!(matches!(byte, None | Some(7)), "{byte:?}");
            }
        });
        ring.end();
        lent.0.store(8, Ordering::Relaxed);
        reader.join().unwrap();
    });
}

#[test]
fn a_writer_that_sleeps_learns_of_the_return_and_then_overwrites() {
    loom::model(|| {
        let (ring, lent) = (Arc::new(Ring::new()), Arc::new(LentByte(AtomicU64::new(7))));
        let reader = thread::spawn({
            let (ring, lent) = (ring.clone(), lent.clone());
            move || assert_eq!(read_lent(&ring, &lent, &mut Reader::new(1)), Some(7))
        });
        let ([own, other], mut writer) = (&ring.pages, Writer::new(1));
        lend(&ring, &mut writer);
        while writer.unreleased(other).unwrap() > 0 {
            own.arm(FOR_RETURN);
            look_again();
            if !writer.has_new_return(other) {
                ring.bells[0].wait();
            }
            own.arm(0);
        }
        lent.0.store(8, Ordering::Relaxed);
        reader.join().unwrap();
    });
}

#[test]
fn a_loan_comes_before_the_bytes_and_messages_behind_it() {
    for is_message in [false, true] {
        loom::model(move || {
            let (ring, lent) = (Arc::new(Ring::new()), Arc::new(LentByte(AtomicU64::new(7))));
            let reader = thread::spawn({
                let (ring, lent) = (ring.clone(), lent.clone());
                move || {
                    let mut reader = Reader::new(BYTES as u64);
                    assert_eq!(read_lent(&ring, &lent, &mut reader), Some(7));
                    assert_eq!(ring.read(&mut reader), Some(9));
                }
            });
            let mut writer = Writer::new(BYTES as u64);
            lend(&ring, &mut writer);
            ring.write(&mut writer, 9, is_message);
            reader.join().unwrap();
        });
    }
}
