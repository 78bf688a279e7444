//! A simulated byte stream in one direction: bytes keep their order and arrive late, in parts, or not at all.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

use unisono_engine::HEADER_BYTES;

use super::Random;

/// The least capacity of every transport: the header of a call, which is not read before its payload is wanted, and one
/// element.
const CAPACITY_MIN: usize = HEADER_BYTES + 8;

/// One direction of one connection.
pub(in super::super) struct Pipe {
    /// The writer, as a rank of the job.
    pub(super) from: u32,
    /// The reader.
    pub(super) to: u32,
    /// Accepted and not read yet; the first `arrived` of them can be read.
    bytes: VecDeque<u8>,
    arrived: usize,
    capacity: usize,
    /// The most bytes that one call moves.
    call_bytes_max: usize,
    delay: Duration,
    last_arrival: Instant,
    accepted: u64,
    /// After so many bytes nothing arrives any more.
    pub(super) lost_after: Option<u64>,
    /// The number of bytes that have been accepted and will never arrive.
    vanished: usize,
    /// The reader finds the end of the stream after the last byte.
    pub(super) has_ended: bool,
    /// The reader finds an error before them.
    pub(super) is_reset: bool,
    /// No rank reads any more.
    pub(super) is_refused: bool,
}

impl Pipe {
    /// A pipe with a capacity and a delay of its own.
    pub(super) fn new((from, to): (u32, u32), now: Instant, random: &mut Random) -> Pipe {
        let more = [8, 300, 20_000][random.below(3) as usize];
        let call_bytes_max = [1 + random.below(20), usize::MAX as u64][random.below(4).min(1) as usize];
        // A narrow and slow pipe would take longer than a deadline.
        let delay_us = [0, 20, 100, if more < 20_000 { 100 } else { 3000 }][random.below(4) as usize];
        Pipe {
            from,
            to,
            bytes: VecDeque::new(),
            arrived: 0,
            capacity: CAPACITY_MIN + random.below(more) as usize,
            call_bytes_max: call_bytes_max as usize,
            delay: Duration::from_micros(delay_us),
            last_arrival: now,
            accepted: 0,
            lost_after: None,
            vanished: 0,
            has_ended: false,
            is_reset: false,
            is_refused: false,
        }
    }

    /// Whether a receive can return at once.
    pub(super) fn is_readable(&self) -> bool {
        self.arrived > 0 || self.is_reset || self.has_ended && self.bytes.is_empty()
    }

    /// Whether a send can return at once.
    pub(super) fn is_writable(&self) -> bool {
        self.is_refused || self.room() > 0
    }

    fn room(&self) -> usize {
        self.capacity.saturating_sub(self.bytes.len() + self.vanished)
    }

    /// Takes some of the bytes; returns how many, and how many of these will arrive.
    pub(super) fn send(&mut self, slices: &[IoSlice<'_>], random: &mut Random) -> io::Result<(usize, usize)> {
        if self.is_refused {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let offered: usize = slices.iter().map(|slice| slice.len()).sum();
        let room = self.room().min(offered).min(self.call_bytes_max);
        if room == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let taken = if random.below(3) > 0 { room } else { 1 + random.below(room as u64) as usize };
        let until_loss = self.lost_after.map_or(u64::MAX, |after| after.saturating_sub(self.accepted));
        let kept = (taken as u64).min(until_loss) as usize;
        self.bytes.extend(slices.iter().flat_map(|slice| slice.iter()).take(kept));
        self.vanished += taken - kept;
        self.accepted += taken as u64;
        Ok((taken, kept))
    }

    /// When bytes that were sent at `now` arrive: not before bytes that were sent earlier.
    pub(super) fn arrival(&mut self, now: Instant, random: &mut Random) -> Instant {
        let jitter = Duration::from_micros(random.below(1 + self.delay.as_micros() as u64 * 2));
        self.last_arrival = self.last_arrival.max(now + self.delay + jitter);
        self.last_arrival
    }

    /// Some of the bytes that were sent have arrived, unless they were lost meanwhile.
    pub(super) fn arrive(&mut self, bytes: usize) {
        self.arrived = self.bytes.len().min(self.arrived + bytes);
    }

    /// Gives some of the bytes that have arrived.
    pub(super) fn receive(&mut self, into: &mut [IoSliceMut<'_>], random: &mut Random) -> io::Result<usize> {
        if self.is_reset {
            return Err(ErrorKind::ConnectionReset.into());
        }
        if self.arrived == 0 {
            let is_over = self.has_ended && self.bytes.is_empty();
            return if is_over { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        let wanted: usize = into.iter().map(|slice| slice.len()).sum();
        let most = wanted.min(self.arrived).min(self.call_bytes_max);
        let given =
            if random.below(3) > 0 { most } else { most.min(1 + random.below(most.max(1) as u64) as usize) };
        let mut bytes = self.bytes.drain(..given);
        for slice in into {
            for (place, byte) in slice.iter_mut().zip(&mut bytes) {
                *place = byte;
            }
        }
        drop(bytes);
        self.arrived -= given;
        Ok(given)
    }

    /// The writer dies: a random part of the bytes under way arrives, and then the end.
    pub(super) fn lose_tail(&mut self, random: &mut Random) {
        let on_its_way = self.bytes.len() - self.arrived;
        let kept = random.below(on_its_way as u64 + 1) as usize;
        self.bytes.truncate(self.arrived + kept);
    }
}
