//! Checked streams: bytes travel in records with a checksum, and none is handed on before the checksum of its record
//! has been verified.
//!
//! A record is a header (see [`unisono_control::checksum`]) and its payload, at most [`RECORD_BYTES_MAX`].

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};

use crc_fast::Digest;

use unisono_control::checksum::{ALGORITHM, CheckedHeader, HEADER_BYTES};

/// Longest payload of a record; the receiver keeps the payload until it has verified the checksum.
pub(crate) const RECORD_BYTES_MAX: usize = 64 * 1024;

/// The most slices of one call, the header included.
const SLICES_MAX: usize = 17;

/// The sending side. The checksum of a record covers bytes that the socket may not have taken yet. So the caller must
/// offer the same bytes again until they are taken.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    header: [u8; HEADER_BYTES],
    /// The number of bytes of the current record's header, and then of its payload, that the socket has not taken.
    header_left: usize,
    payload_left: usize,
}

/// The receiving side.
#[derive(Debug)]
pub(crate) struct Receiver {
    header: [u8; HEADER_BYTES],
    header_filled: usize,
    record: Vec<u8>,
    /// The number of bytes of the record that have come, and the number of these that have been handed on.
    filled: usize,
    taken: usize,
    is_proven: bool,
}

impl Sender {
    /// Takes as many of `bytes` as the socket behind `write` does.
    pub(crate) fn send(
        &mut self,
        bytes: &[IoSlice<'_>],
        mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let offered: usize = bytes.iter().map(|slice| slice.len()).sum();
        let mut accepted = 0;
        while accepted < offered {
            if self.payload_left == 0 {
                self.begin(bytes, accepted, (offered - accepted).min(RECORD_BYTES_MAX));
            }
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            slices[0] = IoSlice::new(&self.header[HEADER_BYTES - self.header_left..]);
            let count = 1 + fill(&mut slices[1..], bytes, accepted, self.payload_left);
            match write(&slices[..count]) {
                Ok(written) => {
                    let of_header = written.min(self.header_left);
                    self.header_left -= of_header;
                    self.payload_left -= written - of_header;
                    accepted += written - of_header;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock && accepted > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(accepted)
    }

    fn begin(&mut self, bytes: &[IoSlice<'_>], from: usize, length: usize) {
        let mut digest = Digest::new(ALGORITHM);
        parts(bytes, from, length).for_each(|part| digest.update(part));
        self.header = CheckedHeader { length, checksum: digest.finalize() as u32 }.encode();
        (self.header_left, self.payload_left) = (HEADER_BYTES, length);
    }
}

impl Receiver {
    pub(crate) fn new() -> Receiver {
        Receiver {
            header: [0; HEADER_BYTES],
            header_filled: 0,
            record: vec![0; RECORD_BYTES_MAX],
            filled: 0,
            taken: 0,
            is_proven: false,
        }
    }

    /// Whether verified bytes wait here, so that the socket need not be waited for.
    pub(crate) fn holds_bytes(&self) -> bool {
        self.is_proven
    }

    /// Fills the slices with verified bytes. `read` reads from the socket; 0 is its end.
    ///
    /// # Errors
    /// `InvalidData` when a record differs from the record that its sender made.
    pub(crate) fn recv(
        &mut self,
        into: &mut [IoSliceMut<'_>],
        mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let room: usize = into.iter().map(|slice| slice.len()).sum();
        let mut given = 0;
        while given < room {
            if !self.is_proven {
                match self.advance(&mut read) {
                    Ok(true) => {}
                    Ok(false) if given == 0 => return Ok(0),
                    Ok(false) => break,
                    Err(error) if error.kind() == ErrorKind::WouldBlock && given > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            given += self.give(into, given);
        }
        Ok(given)
    }

    /// Reads until a record is whole and verified; false at the end of the stream.
    fn advance(&mut self, read: &mut impl FnMut(&mut [u8]) -> io::Result<usize>) -> io::Result<bool> {
        while self.header_filled < HEADER_BYTES {
            match read(&mut self.header[self.header_filled..])? {
                0 => return Ok(false),
                bytes => self.header_filled += bytes,
            }
        }
        let header = CheckedHeader::decode(&self.header);
        let Some(header) = header.filter(|header| (1..=RECORD_BYTES_MAX).contains(&header.length)) else {
            return Err(corrupt("the header of a record"));
        };
        let length = header.length;
        while self.filled < length {
            match read(&mut self.record[self.filled..length])? {
                0 => return Ok(false),
                bytes => self.filled += bytes,
            }
        }
        if header != CheckedHeader::of(&self.record[..length]) {
            return Err(corrupt(&format!("a record of {length} bytes")));
        }
        self.is_proven = true;
        Ok(true)
    }

    /// Copies verified bytes to position `at` of the slices; returns how many.
    fn give(&mut self, into: &mut [IoSliceMut<'_>], at: usize) -> usize {
        let (mut skipped, mut given) = (at, 0);
        for slice in into {
            let start = skipped.min(slice.len());
            skipped -= start;
            let bytes = (slice.len() - start).min(self.filled - self.taken);
            slice[start..start + bytes].copy_from_slice(&self.record[self.taken..self.taken + bytes]);
            self.taken += bytes;
            given += bytes;
        }
        if self.taken == self.filled {
            (self.header_filled, self.filled, self.taken, self.is_proven) = (0, 0, 0, false);
        }
        given
    }
}

fn corrupt(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("{what} does not match its checksum"))
}

/// The slices that hold `length` bytes from position `from` on.
fn parts<'a>(bytes: &'a [IoSlice<'_>], from: usize, length: usize) -> impl Iterator<Item = &'a [u8]> {
    let (mut skip, mut left) = (from, length);
    bytes.iter().filter_map(move |slice| {
        let start = skip.min(slice.len());
        skip -= start;
        let part = &slice[start..];
        let part = &part[..left.min(part.len())];
        left -= part.len();
        (!part.is_empty()).then_some(part)
    })
}

/// Lists as many of those parts as there is room for; returns how many.
fn fill<'a>(slices: &mut [IoSlice<'a>], bytes: &'a [IoSlice<'_>], from: usize, length: usize) -> usize {
    let listed = slices.iter_mut().zip(parts(bytes, from, length));
    listed.map(|(slice, part)| *slice = IoSlice::new(part)).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A wire that takes and gives as many bytes per call as the list says, over and over; 0 is "not now".
    struct Wire {
        bytes: Vec<u8>,
        read: usize,
        steps: Vec<usize>,
        next: usize,
    }

    impl Wire {
        fn new(steps: &[usize]) -> Wire {
            Wire { bytes: Vec::new(), read: 0, steps: steps.to_vec(), next: 0 }
        }

        fn step(&mut self) -> io::Result<usize> {
            let step = self.steps[self.next % self.steps.len()];
            self.next += 1;
            if step == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(step) }
        }

        fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            let mut room = self.step()?;
            let before = self.bytes.len();
            for slice in slices {
                let bytes = room.min(slice.len());
                self.bytes.extend_from_slice(&slice[..bytes]);
                room -= bytes;
            }
            Ok(self.bytes.len() - before)
        }

        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let bytes = self.step()?.min(into.len()).min(self.bytes.len() - self.read);
            if bytes == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            into[..bytes].copy_from_slice(&self.bytes[self.read..self.read + bytes]);
            self.read += bytes;
            Ok(bytes)
        }
    }

    /// Sends everything, in slices of that length.
    fn send_all(data: &[u8], slice_bytes: usize, wire: &mut Wire) {
        let (mut sender, mut sent) = (Sender::default(), 0);
        while sent < data.len() {
            let slices: Vec<IoSlice<'_>> =
                data[sent..].chunks(slice_bytes).take(20).map(IoSlice::new).collect();
            match sender.send(&slices, |slices| wire.write(slices)) {
                Ok(bytes) => sent += bytes,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
    }

    /// Receives so many bytes in calls of at most `room`, or fails.
    fn receive(bytes: usize, room: usize, wire: &mut Wire) -> io::Result<Vec<u8>> {
        let (mut receiver, mut received) = (Receiver::new(), Vec::new());
        let mut idle = 0;
        while received.len() < bytes {
            let mut buffer = vec![0; room.min(bytes - received.len())];
            let (front, back) = buffer.split_at_mut(room.min(bytes - received.len()) / 2);
            let mut into = [IoSliceMut::new(front), IoSliceMut::new(back)];
            match receiver.recv(&mut into, |into| wire.read(into)) {
                Ok(given) => {
                    received.extend_from_slice(&buffer[..given]);
                    idle = 0;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => idle += 1,
                Err(error) => return Err(error),
            }
            // A wire without steps of 0 gives something, or has nothing left to give.
            assert!(idle < 10_000, "the stream hangs");
        }
        Ok(received)
    }

    proptest! {
        #[test]
        fn what_is_sent_is_received(
            data in proptest::collection::vec(any::<u8>(), 1..200_000),
            slice_bytes in 1usize..70_000,
            room in 1usize..100_000,
            steps in proptest::collection::vec(0usize..80_000, 1..8),
        ) {
            let steps: Vec<usize> = steps.into_iter().chain([1]).collect();
            let mut wire = Wire::new(&steps);
            send_all(&data, slice_bytes, &mut wire);
            prop_assert!(receive(data.len(), room, &mut wire).unwrap() == data);
        }
    }

    /// The promise: of 10,000 changed bits every one is found, and nothing of its record is handed on.
    #[test]
    fn every_flipped_bit_is_found() {
        let data: Vec<u8> = (0..150_000u32).map(|index| ((index * 7) >> 3) as u8).collect();
        let mut wire = Wire::new(&[usize::MAX]);
        send_all(&data, 40_000, &mut wire);
        let mut random = 1u64;
        for flip in 0..10_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bit = (random >> 20) as usize % (wire.bytes.len() * 8);
            let (mut receiver, mut given) = (Receiver::new(), 0);
            let mut changed = Wire::new(&[usize::MAX]);
            changed.bytes.clone_from(&wire.bytes);
            changed.bytes[bit / 8] ^= 1 << (bit % 8);
            let mut buffer = vec![0; data.len()];
            let error = loop {
                let mut into = [IoSliceMut::new(&mut buffer[given..])];
                match receiver.recv(&mut into, |into| changed.read(into)) {
                    Ok(bytes) => given += bytes,
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::InvalidData, "flip {flip}, bit {bit}");
            assert!(given <= bit / 8 && buffer[..given] == data[..given], "flip {flip}, bit {bit}");
        }
    }
}
