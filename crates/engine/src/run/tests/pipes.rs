//! A double of a link: a pipe in memory between every two ranks of a test. It may release bytes late. A pipe that
//! copies all bytes also has the ways of a link through memory: whole messages, and bytes where they lie
//! ([`Link::try_send_whole`], [`Link::peek`]).

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use unisono_schedule::SplitMix;

use crate::links::Link;
use crate::lock;
use crate::plan::header::{HEADER_BYTES, HeaderBytes, HeaderKey};

/// The most bytes of a whole message behind its header.
const WHOLE_BYTES_MAX: usize = 4096;

/// The most of a message that lies apart, so that its key stands for its header.
const SHORT_BYTES_MAX: usize = 100;

/// The bytes that a pipe keeps in the sender's memory, and reads only when the peer receives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeps {
    /// None: the pipe copies all bytes, and releases them at once.
    Nothing,
    /// The bytes that the pipe need not copy, until the peer has received them or a little longer, as in a rendezvous.
    Unreceived,
    /// As [`Keeps::Unreceived`], and wrongly also the bytes that the pipe should copy.
    Everything,
    /// As [`Keeps::Unreceived`], but the pipe wrongly reports each byte as released when it is posted.
    Secretly,
}

/// A byte on its way.
#[derive(Clone, Copy)]
struct Byte {
    value: u8,
    /// The address from which the byte is yet to be read.
    kept_at: Option<usize>,
}

/// A short message on its way.
struct Short {
    /// The number of bytes before it in its pipe, of all that were ever sent.
    start: usize,
    bytes: usize,
    key: HeaderKey,
}

/// All pipes of a test.
struct Pipes {
    /// The bytes on their way, by sender and receiver.
    bytes: Vec<VecDeque<Byte>>,
    /// The short messages among them, and the number of bytes that have been received.
    shorts: Vec<VecDeque<Short>>,
    received: Vec<usize>,
    /// By sender and receiver, the number of received bytes that the sender does not yet know to be released.
    untold: Vec<usize>,
    keeps: Keeps,
    /// The number of bytes that a pipe holds.
    capacity: usize,
    /// With a generator, about half of the calls move a random number of bytes, and the others all they can.
    random: Option<SplitMix>,
}

impl Pipes {
    /// The number of bytes, of `bytes` and not 0, that one call moves.
    fn moved(&mut self, bytes: usize) -> usize {
        let Some(random) = &mut self.random else { return bytes };
        if random.below(2) == 0 { bytes } else { 1 + random.below(bytes) }
    }

    /// Whether the next call goes the way of a link through memory.
    fn is_direct(&mut self) -> bool {
        self.keeps == Keeps::Nothing && self.random.as_mut().is_none_or(|random| random.below(4) > 0)
    }

    /// Notes that these bytes have left a pipe.
    fn receive(&mut self, pipe: usize, count: usize) {
        self.received[pipe] += count;
        let received = self.received[pipe];
        self.shorts[pipe].retain(|short| short.start + HEADER_BYTES > received);
    }
}

/// One rank's end of the two pipes between it and a peer.
pub(super) struct PipeDouble {
    pipes: Arc<Mutex<Pipes>>,
    out: usize,
    back: usize,
    peeked: Vec<AtomicU8>,
}

impl PipeDouble {
    /// The links of every rank, by rank and peer.
    pub(super) fn all(
        ranks: usize,
        keeps: Keeps,
        capacity: usize,
        random: Option<SplitMix>,
    ) -> Vec<Vec<PipeDouble>> {
        let (bytes, untold) = (vec![VecDeque::new(); ranks * ranks], vec![0; ranks * ranks]);
        let (shorts, received) =
            ((0..ranks * ranks).map(|_| VecDeque::new()).collect(), vec![0; ranks * ranks]);
        let pipes = Pipes { bytes, shorts, received, untold, keeps, capacity, random };
        let pipes = Arc::new(Mutex::new(pipes));
        let link = |rank, peer| PipeDouble {
            pipes: pipes.clone(),
            out: rank * ranks + peer,
            back: peer * ranks + rank,
            peeked: Vec::new(),
        };
        (0..ranks).map(|rank| (0..ranks).map(|peer| link(rank, peer)).collect()).collect()
    }

    /// Reads the kept bytes in the sender's `memory` again. Returns how many have changed, or lie elsewhere although
    /// the link need not copy them.
    pub(super) fn look(&self, memory: &[&[u8]]) -> usize {
        let now_at = |address: usize| {
            memory.iter().find_map(|part| part.get(address.checked_sub(part.as_ptr().addr())?)).copied()
        };
        let mut changed = 0;
        let pipes = &mut *lock(&self.pipes);
        for byte in &mut pipes.bytes[self.out] {
            let Some(address) = byte.kept_at else { continue };
            match now_at(address) {
                Some(now) => {
                    changed += usize::from(now != byte.value);
                    byte.value = now;
                }
                None => changed += usize::from(pipes.keeps != Keeps::Everything),
            }
        }
        changed
    }

    /// Whether it keeps bytes of its sender.
    pub(super) fn is_keeping(&self) -> bool {
        lock(&self.pipes).bytes[self.out].iter().any(|byte| byte.kept_at.is_some())
    }
}

impl Link for PipeDouble {
    fn try_send(&mut self, slices: &[IoSlice<'_>], copied_bytes: usize) -> io::Result<usize> {
        let pipes = &mut *lock(&self.pipes);
        let before = pipes.bytes[self.out].len();
        if before == pipes.capacity {
            return Err(ErrorKind::WouldBlock.into());
        }
        let most = pipes.moved(pipes.capacity - before);
        let copied_bytes = match pipes.keeps {
            Keeps::Nothing => usize::MAX,
            Keeps::Unreceived | Keeps::Secretly => copied_bytes,
            Keeps::Everything => 0,
        };
        let offered = slices.iter().flat_map(|slice| slice.iter()).enumerate().map(|(nth, byte)| {
            let address = std::ptr::from_ref(byte).addr();
            Byte { value: *byte, kept_at: (nth >= copied_bytes).then_some(address) }
        });
        let pipe = &mut pipes.bytes[self.out];
        pipe.extend(offered.take(most));
        Ok(pipe.len() - before)
    }

    fn unreleased_bytes(&mut self) -> io::Result<u64> {
        let pipes = &mut *lock(&self.pipes);
        let untold = pipes.untold[self.out];
        pipes.untold[self.out] -= if untold > 0 { pipes.moved(untold) } else { 0 };
        let pipe = &pipes.bytes[self.out];
        let first_kept = pipe.iter().position(|byte| byte.kept_at.is_some());
        Ok(match (pipes.keeps, pipes.untold[self.out], first_kept) {
            (Keeps::Nothing | Keeps::Secretly, ..) | (_, 0, None) => 0,
            (_, 0, Some(first)) => (pipe.len() - first) as u64,
            (_, untold, _) => (untold + pipe.len()) as u64,
        })
    }

    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let pipes = &mut *lock(&self.pipes);
        let arrived = pipes.bytes[self.back].len();
        if arrived == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let most = pipes.moved(arrived);
        let places = into.iter_mut().flat_map(|slice| slice.iter_mut()).take(most);
        let (bytes, untold) = (&mut pipes.bytes[self.back], &mut pipes.untold[self.back]);
        let mut received = 0;
        for (place, byte) in places.zip(std::iter::from_fn(|| bytes.pop_front())) {
            *place = byte.value;
            *untold += usize::from(*untold > 0 || byte.kept_at.is_some());
            received += 1;
        }
        pipes.receive(self.back, received);
        Ok(received)
    }

    fn takes_whole(&self, bytes: u64) -> bool {
        lock(&self.pipes).keeps == Keeps::Nothing && bytes <= WHOLE_BYTES_MAX as u64
    }

    fn try_send_whole(&mut self, header: &HeaderBytes, key: HeaderKey, bytes: &[u8]) -> io::Result<bool> {
        let pipes = &mut *lock(&self.pipes);
        let (before, length) = (pipes.bytes[self.out].len(), HEADER_BYTES + bytes.len());
        let is_long = bytes.len() > WHOLE_BYTES_MAX;
        if pipes.capacity - before < length || is_long || !pipes.is_direct() {
            return Ok(false);
        }
        let message = header.iter().chain(bytes).map(|&value| Byte { value, kept_at: None });
        pipes.bytes[self.out].extend(message);
        if bytes.len() <= SHORT_BYTES_MAX && pipes.is_direct() {
            let start = pipes.received[self.out] + before;
            pipes.shorts[self.out].push_back(Short { start, bytes: bytes.len(), key });
        }
        Ok(true)
    }

    fn peek(&mut self, most: usize, header: Option<HeaderKey>) -> Option<io::Result<(bool, &[AtomicU8])>> {
        let pipes = &mut *lock(&self.pipes);
        if !pipes.is_direct() {
            return None;
        }
        let received = pipes.received[self.back];
        let is_it = |short: &&Short| short.start == received && Some(short.key) == header;
        let short = pipes.shorts[self.back].front().filter(is_it).map(|short| short.bytes);
        let arrived = match short {
            Some(bytes) => {
                pipes.bytes[self.back].drain(..HEADER_BYTES);
                pipes.receive(self.back, HEADER_BYTES);
                bytes.min(most - HEADER_BYTES)
            }
            None => match pipes.bytes[self.back].len().min(most) {
                0 => return Some(Err(ErrorKind::WouldBlock.into())),
                arrived => pipes.moved(arrived),
            },
        };
        let bytes = pipes.bytes[self.back].iter().take(arrived);
        self.peeked = bytes.map(|byte| AtomicU8::new(byte.value)).collect();
        Some(Ok((short.is_some(), &self.peeked)))
    }

    fn consume(&mut self, count: usize) {
        let pipes = &mut *lock(&self.pipes);
        let given = self.peeked.drain(..count).map(|byte| byte.load(Ordering::Relaxed));
        assert!(
            given.eq(pipes.bytes[self.back].drain(..count).map(|byte| byte.value)),
            "the bytes that it gave"
        );
        pipes.receive(self.back, count);
    }

    fn is_delivered(&mut self) -> bool {
        true
    }
}
