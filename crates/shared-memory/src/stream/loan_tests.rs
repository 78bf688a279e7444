//! Loans among copied bytes and short messages, taken back, returned late, and such as no writer makes.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::tests::{Side, WATCHDOG, kind, pair, read, sleep};
use super::*;
use crate::loans::LOANS_MAX;

/// More than enough for one loan each.
const LONG: usize = 3 * LOAN_BYTES_MIN;

fn lend(stream: &mut Side, bytes: &[u8]) -> io::Result<usize> {
    stream.try_write(&[IoSlice::new(bytes)], 0)
}

/// The bytes that a loan gives are to be seen to have come from there.
fn spoil(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
}

/// No bytes if none has come.
fn or_none<T: Default>(result: io::Result<T>) -> T {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => T::default(),
        result => result.unwrap(),
    }
}

proptest! {
    /// In any order of copied and lent bytes, short messages and reads, all bytes come as they were written, and a
    /// lent byte may be overwritten as soon as it is released, with all bytes before it.
    #[test]
    fn lent_bytes_come_in_their_order(steps in prop::collection::vec((0..6u8, 0..LONG, 0..LONG), 1..60)) {
        let [(mut here, _), (mut there, _)] = pair();
        // The written bytes that are not read, and the buffers that are not released, with the ends of their bytes.
        let (mut under_way, mut buffers) = (VecDeque::new(), VecDeque::new());
        let (mut next, mut taken) = (0u8, 0u64);
        for (step, length, copied) in steps {
            let bytes: Vec<u8> = (0..length).map(|index| next.wrapping_add(index as u8)).collect();
            match step {
                0..=2 => {
                    let (first, second) = bytes.split_at(if step == 1 { 0 } else { length / 7 });
                    let copied = [usize::MAX, 0, copied][usize::from(step)];
                    let slices = [IoSlice::new(first), IoSlice::new(second)];
                    let written = or_none(here.try_write(&slices, copied));
                    under_way.extend(&bytes[..written]);
                    (next, taken) = (next.wrapping_add(written as u8), taken + written as u64);
                    buffers.push_back((taken, bytes));
                }
                3 => {
                    let header = [next; HEADER_BYTES];
                    let payload = &bytes[..length % (PAYLOAD_BYTES_MAX + 1)];
                    if here.try_write_whole(&header, [0, 0], payload).unwrap() {
                        under_way.extend(header.iter().chain(payload));
                        taken += (HEADER_BYTES + payload.len()) as u64;
                    }
                }
                4 => {
                    let peeked = or_none(there.peek(length, None));
                    let peeked: Vec<u8> = peeked.map_or(Vec::new(), |(_, peeked)| {
                        peeked.iter().map(|byte| byte.load(std::sync::atomic::Ordering::Relaxed)).collect()
                    });
                    there.consume(peeked.len());
                    let expected: Vec<u8> = under_way.drain(..peeked.len()).collect();
                    prop_assert!(peeked == expected, "peeked");
                }
                _ => {
                    let come = or_none(read(&mut there, length));
                    let expected: Vec<u8> = under_way.drain(..come.len()).collect();
                    prop_assert!(come == expected, "read");
                }
            }
            let released = taken - here.unreleased_bytes().unwrap();
            prop_assert!(released >= taken - under_way.len() as u64, "bytes that were read are released");
            while buffers.front().is_some_and(|(end, _)| *end <= released) {
                buffers.pop_front().iter_mut().for_each(|(_, bytes)| spoil(bytes));
            }
        }
        // Nothing is left over.
        let rest = (0..=2 * buffers.len()).flat_map(|_| or_none(read(&mut there, 1 << 24)));
        let rest: Vec<u8> = rest.collect();
        prop_assert!(under_way == rest, "{} bytes of {} at the end", rest.len(), under_way.len());
        prop_assert_eq!(here.unreleased_bytes().unwrap(), 0);
    }
}

#[test]
fn lent_bytes_are_copied_once() {
    let [(mut here, _), (mut there, _)] = pair();
    let mut bytes = vec![1; LONG];
    assert_eq!(lend(&mut here, &bytes).unwrap(), LONG);
    assert_eq!((here.segments.unread_bytes(), here.unreleased_bytes().unwrap()), (0, LONG as u64));
    bytes[0] = 2;
    assert_eq!(read(&mut there, LONG - 1).unwrap()[..2], [2, 1]);
    assert_eq!(here.unreleased_bytes().unwrap(), 1);
    assert_eq!((read(&mut there, 9).unwrap(), here.unreleased_bytes().unwrap()), (vec![1], 0));
    // Short ones are copied, and so are all where the other side cannot read.
    assert_eq!(lend(&mut here, &bytes[..LOAN_BYTES_MIN - 1]).unwrap(), LOAN_BYTES_MIN - 1);
    assert_eq!(here.unreleased_bytes().unwrap(), 0);
    let segments = Arc::get_mut(&mut here.segments).unwrap();
    segments.may_lend = false;
    assert_eq!((lend(&mut here, &bytes).unwrap(), here.unreleased_bytes().unwrap()), (LONG, 0));
}

#[test]
fn a_writer_sleeps_until_a_loan_is_returned() {
    let [(mut here, our_bell), (mut there, _)] = pair();
    let bytes = vec![7; LONG];
    for _ in 0..LOANS_MAX {
        lend(&mut here, &bytes).unwrap();
    }
    assert_eq!(kind(lend(&mut here, &bytes)), Some(ErrorKind::WouldBlock));
    here.arm(here.place_event());
    assert!(!here.is_ready(), "there is room, but not for a loan");
    let reader = std::thread::spawn(move || {
        std::thread::sleep(WATCHDOG / 1000);
        (read(&mut there, LONG).unwrap(), there)
    });
    let event = here.place_event();
    sleep(&mut here, &our_bell, event);
    assert_eq!((here.unreleased_bytes().unwrap(), lend(&mut here, &bytes).unwrap()), (4 * LONG as u64, LONG));
    assert_eq!(reader.join().unwrap().0, bytes);
}

#[test]
fn bytes_that_were_taken_back_have_not_come() {
    let [(mut here, _), (mut there, _)] = pair();
    let bytes = vec![7; LONG];
    here.try_write(&[IoSlice::new(b"before"), IoSlice::new(&bytes)], 6).unwrap();
    here.segments.end();
    assert_eq!(read(&mut there, 6).unwrap(), b"before");
    assert_eq!(kind(read(&mut there, LONG)), Some(ErrorKind::UnexpectedEof));
    // In the middle of them.
    let [(mut here, _), (mut there, _)] = pair();
    lend(&mut here, &bytes).unwrap();
    assert_eq!(read(&mut there, 9).unwrap(), [7; 9]);
    here.segments.end();
    assert_eq!(kind(read(&mut there, 9)), Some(ErrorKind::UnexpectedEof));
}

#[test]
fn a_loan_that_cannot_be_ends_the_stream() {
    let (bytes, far) = ([0; 64], 1 << 40);
    let address = bytes.as_ptr().addr() as u64;
    let forged = |lent: u64, start: u64, address: u64, length: u64, reads: bool| {
        let [(here, _), (mut there, _)] = pair();
        here.segments.own.page().forge_loan(lent, start, address, length);
        if !reads {
            Arc::get_mut(&mut there.segments).unwrap().process = None;
        }
        kind(read(&mut there, 64))
    };
    let invalid = Some(ErrorKind::InvalidData);
    assert_eq!(forged(1, 0, address, 64, true), None);
    assert_eq!(forged(1, 0, address, 64, false), invalid, "this side cannot read them");
    assert_eq!(forged(LOANS_MAX + 1, 0, address, 64, true), invalid);
    assert_eq!(forged(1, far, address, 64, true), invalid);
    assert_eq!(forged(1, 0, address, 0, true), invalid);
    assert_eq!(forged(1, 0, address, u64::MAX, true), invalid);
    assert_eq!(forged(1, 0, 0, 64, true), Some(ErrorKind::AddrNotAvailable), "nothing is there");
    assert_eq!(forged(1, 0, u64::MAX - 8, 64, true), Some(ErrorKind::AddrNotAvailable));
    let [(mut here, _), (there, _)] = pair();
    lend(&mut here, &[7; LONG]).unwrap();
    there.segments.own.page().forge_returned(LONG as u64 + 1);
    assert_eq!(kind(here.unreleased_bytes()), invalid, "more than were lent");
    here.arm(FOR_RETURN);
    assert!(here.is_ready(), "an error is to be told");
}
