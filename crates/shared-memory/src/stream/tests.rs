//! Streams in any order of writes and reads, with sides that sleep, end, die or write nonsense.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::*;
use crate::look_again;
use crate::memory::Nonce;
use crate::short::PLACES;

const CAPACITY: usize = 64 << 10;

/// Nothing is lent.
const COPIED: usize = usize::MAX;

/// A hang is a failure.
pub(super) const WATCHDOG: Duration = Duration::from_secs(60);

/// Wakes the other side through this descriptor, which that side polls.
#[derive(Clone, Debug)]
pub(super) struct Eventfd(Arc<OwnedFd>);

impl Bell for Eventfd {
    fn ring(&self) {
        rustix::io::write(&self.0, &1u64.to_le_bytes()).unwrap();
    }
}

pub(super) type Side = Stream<Eventfd>;

/// Two sides, each with the bell that wakes it.
pub(super) fn pair() -> [(Side, Eventfd); 2] {
    let [(ours, our_file), (theirs, their_file)] = [(); 2].map(|()| Segment::create(CAPACITY).unwrap());
    let bell = |()| Eventfd(Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap()));
    let [our_bell, their_bell] = [(); 2].map(bell);
    let side = |own, file, bell: &Eventfd| {
        let process =
            OtherProcess::new(std::process::id() as i32, Nonce::of_this_process().unwrap()).unwrap();
        let segments = Segments::new(own, &file).unwrap().with_loans(true, Some(process));
        Stream::new(Arc::new(segments), bell.clone())
    };
    let (here, there) = (side(ours, their_file, &their_bell), side(theirs, our_file, &our_bell));
    [(here, our_bell), (there, their_bell)]
}

pub(super) fn kind<T>(result: io::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

pub(super) fn read(stream: &mut Side, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; most];
    let count = stream.try_read(&mut [IoSliceMut::new(&mut bytes)])?;
    bytes.truncate(count);
    Ok(bytes)
}

proptest! {
    /// In any order of writes and reads of any length, the bytes that fit come as they were written.
    #[test]
    fn bytes_come_as_they_were_written(steps in prop::collection::vec((0..8u8, 0..2 * CAPACITY), 1..60)) {
        let [(mut here, _), (mut there, _)] = pair();
        let (mut under_way, mut next) = (VecDeque::new(), 0u8);
        // The short messages in their places: where each begins and ends in the stream, and its key if it is not bare.
        // Behind it, where the next byte to be read is.
        let (mut messages, mut read_bytes) = (VecDeque::new(), 0);
        for (step, length) in steps {
            let bytes = |length| -> Vec<u8> { (0..length).map(|index| next.wrapping_add(index as u8)).collect() };
            match step {
                0 | 1 => {
                    let bytes = bytes(length);
                    let (first, second) = bytes.split_at(length / 3);
                    let written = here.try_write(&[IoSlice::new(first), IoSlice::new(second)], COPIED);
                    let fits = length.min(CAPACITY - under_way.len());
                    prop_assert_eq!(written.unwrap_or(0), fits);
                    under_way.extend(&bytes[..fits]);
                    next = next.wrapping_add(fits as u8);
                }
                2 => {
                    // Half of them short messages.
                    let most = if length % 2 == 0 { PAYLOAD_BYTES_MAX } else { WHOLE_BYTES_MAX + 1 };
                    let payload = length % (most + 1);
                    let bytes = bytes(HEADER_BYTES + payload);
                    let header = bytes[..HEADER_BYTES].try_into().unwrap();
                    let key = [length as u64, payload as u64];
                    let fits = payload <= WHOLE_BYTES_MAX && bytes.len() <= CAPACITY - under_way.len();
                    let written = here.try_write_whole(header, key, &bytes[HEADER_BYTES..]);
                    prop_assert_eq!(written.unwrap(), fits);
                    if fits {
                        if payload <= PAYLOAD_BYTES_MAX && messages.len() < PLACES {
                            let start = read_bytes + under_way.len();
                            messages.push_back((start, start + bytes.len(), Some(key)));
                        }
                        next = next.wrapping_add(bytes.len() as u8);
                        under_way.extend(bytes);
                    }
                }
                6 | 7 => {
                    // Half of them bare messages.
                    let most = if step == 6 { PAYLOAD_BYTES_MAX } else { WHOLE_BYTES_MAX + 1 };
                    let bytes = bytes(length % (most + 1));
                    let (first, second) = bytes.split_at(bytes.len() / 3);
                    let fits = second.len() <= WHOLE_BYTES_MAX && bytes.len() <= CAPACITY - under_way.len();
                    let written = here.try_write_all([IoSlice::new(first), IoSlice::new(second)]);
                    prop_assert_eq!(written.unwrap(), fits);
                    if fits {
                        if (1..=PAYLOAD_BYTES_MAX).contains(&bytes.len()) && messages.len() < PLACES {
                            let start = read_bytes + under_way.len();
                            messages.push_back((start, start + bytes.len(), None));
                        }
                        next = next.wrapping_add(bytes.len() as u8);
                        under_way.extend(bytes);
                    }
                }
                3 => {
                    let come = length.min(under_way.len());
                    let expected: Vec<u8> = under_way.drain(..come).collect();
                    prop_assert_eq!(read(&mut there, length).unwrap_or_default(), expected);
                    read_bytes += come;
                }
                _ => {
                    // For the header that comes next, or for another one.
                    let message = messages.front().filter(|(start, ..)| *start == read_bytes);
                    let message = message.and_then(|(.., key)| *key);
                    let key = if step == 4 { [u64::MAX, 0] } else { message.unwrap_or_default() };
                    let (is_behind, peeked) = there.peek(length, Some(key)).ok().flatten().unwrap_or_default();
                    prop_assert_eq!(is_behind, step == 5 && message.is_some());
                    let peeked: Vec<u8> = peeked.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
                    if is_behind {
                        under_way.drain(..HEADER_BYTES);
                        read_bytes += HEADER_BYTES;
                        prop_assert_eq!(peeked.len(), length.saturating_sub(HEADER_BYTES).min(key[1] as usize));
                    } else {
                        prop_assert!(!peeked.is_empty() || length == 0 || under_way.is_empty());
                    }
                    let expected: Vec<u8> = under_way.drain(..peeked.len()).collect();
                    prop_assert_eq!(&peeked, &expected);
                    there.consume(peeked.len());
                    read_bytes += peeked.len();
                }
            }
            messages.retain(|(_, end, _)| *end > read_bytes);
        }
    }
}

/// Sleeps until its stream is ready, for as long as it takes.
pub(super) fn sleep(stream: &mut Side, bell: &Eventfd, event: u32) {
    stream.arm(event);
    look_again();
    if !stream.is_ready() {
        let mut polled = [PollFd::new(&*bell.0, PollFlags::IN)];
        let limit = Timespec { tv_sec: WATCHDOG.as_secs() as i64, tv_nsec: 0 };
        assert_eq!(poll(&mut polled, Some(&limit)), Ok(1), "a wake-up is lost");
    }
    stream.disarm();
    // Nothing to read when it was not rung.
    let _ = rustix::io::read(&*bell.0, &mut [0; 8]);
}

#[test]
fn sides_that_sleep_are_woken() {
    const BYTES: usize = 8 << 20;
    let [(mut here, our_bell), (mut there, their_bell)] = pair();
    let bell_at_the_end = their_bell.clone();
    let writer = std::thread::spawn(move || {
        let bytes: Vec<u8> = (0..BYTES).map(|index| (index / 7) as u8).collect();
        let mut written = 0;
        while written < BYTES {
            // Small pieces and large ones.
            let end = BYTES.min(written + 1 + written % 50_000);
            match here.try_write(&[IoSlice::new(&bytes[written..end])], COPIED) {
                Ok(count) => written += count,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    sleep(&mut here, &our_bell, FOR_ROOM);
                }
            }
        }
        here.segments.end();
        bell_at_the_end.ring();
    });
    let mut come = 0;
    loop {
        match read(&mut there, 1 + come % 30_000) {
            Ok(bytes) if bytes.is_empty() => break,
            Ok(bytes) => {
                let mut expected = (come..).map(|index| (index / 7) as u8);
                assert!(bytes.iter().all(|byte| expected.next() == Some(*byte)), "behind byte {come}");
                come += bytes.len();
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                sleep(&mut there, &their_bell, FOR_BYTES);
            }
        }
    }
    assert_eq!(come, BYTES);
    writer.join().unwrap();
}

#[test]
fn a_stream_ends_behind_its_bytes_or_is_lost() {
    let [(mut here, _), (mut there, _)] = pair();
    assert_eq!(kind(read(&mut there, 9)), Some(ErrorKind::WouldBlock));
    there.arm(FOR_BYTES);
    assert!(!there.is_ready());
    here.try_write(&[IoSlice::new(b"last")], COPIED).unwrap();
    assert_eq!(there.segments.unread_bytes(), 4);
    here.segments.end();
    assert!(there.is_ready());
    there.hang_up();
    assert_eq!(read(&mut there, 9).unwrap(), b"last");
    assert_eq!((read(&mut there, 9).unwrap(), read(&mut there, 9).unwrap()), (vec![], vec![]));
    assert_eq!(there.try_write(&[IoSlice::new(b"x")], COPIED).unwrap(), 1, "the other side may still read");
    // The other side dies in the middle.
    let [(mut here, _), (mut there, _)] = pair();
    here.try_write(&[IoSlice::new(b"la")], COPIED).unwrap();
    drop(here);
    there.hang_up();
    assert_eq!(read(&mut there, 9).unwrap(), b"la");
    assert_eq!(kind(read(&mut there, 9)), Some(ErrorKind::UnexpectedEof));
    assert_eq!(kind(there.peek(9, None)), Some(ErrorKind::UnexpectedEof));
    assert_eq!(kind(there.try_write(&[IoSlice::new(b"x")], COPIED)), Some(ErrorKind::BrokenPipe));
}

#[test]
fn an_impossible_index_ends_the_stream_and_nothing_else() {
    let far = CAPACITY as u64 + 1;
    for (written, read_by_other) in [(far, 0), (u64::MAX, 0), (0, far), (0, u64::MAX)] {
        let [(here, _), (mut there, _)] = pair();
        there.try_write(&[IoSlice::new(&[1; CAPACITY])], COPIED).unwrap();
        here.segments.own.page().forge(written, read_by_other);
        there.arm(if written > 0 { FOR_BYTES } else { FOR_ROOM });
        assert!(there.is_ready(), "an error is to be told");
        assert!(there.segments.unread_bytes() <= CAPACITY as u64);
        let result = match written {
            0 => kind(there.try_write(&[IoSlice::new(b"x")], COPIED)),
            _ => kind(read(&mut there, 9)),
        };
        assert_eq!(result, Some(ErrorKind::InvalidData), "{written} {read_by_other}");
    }
}

#[test]
fn ten_thousand_streams_leave_nothing() {
    let count = |of: &str| std::fs::read_dir(of).map_or(0, Iterator::count);
    let mappings = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.contains("memfd:unisono")).count()
    };
    let until = Instant::now() + WATCHDOG;
    let before = (count("/proc/self/fd"), mappings());
    for cycle in 0..10_000 {
        assert!(Instant::now() < until, "{cycle} cycles");
        drop(pair());
    }
    // Other tests of this process come and go.
    assert!(count("/proc/self/fd") < before.0 + 100 && mappings() < before.1 + 100);
}
