//! A lane's read-ahead: one system call takes a frame header together with what follows it.

use std::io::{self, IoSliceMut};

use crate::links::Link;

use super::frame::FRAME_BYTES;

/// Size of the read-ahead. If more than this is missing of a payload, it is read straight into the receive's memory.
pub(super) const READ_AHEAD_BYTES: usize = 4096;

/// Bytes that have been read and not yet been decoded.
#[derive(Default)]
pub(super) struct Input {
    /// Empty until the first read: a lane that is never used costs nothing.
    bytes: Vec<u8>,
    from: usize,
    end: usize,
}

impl Input {
    /// How many bytes are there.
    pub(super) fn bytes(&self) -> usize {
        self.end - self.from
    }

    /// Takes a header, if a whole one is there.
    pub(super) fn header(&mut self) -> Option<[u8; FRAME_BYTES]> {
        let header = *self.bytes[self.from..self.end].first_chunk()?;
        self.from += FRAME_BYTES;
        Some(header)
    }

    /// Takes what fits into `into`; returns how many bytes.
    pub(super) fn take(&mut self, into: &mut [u8]) -> usize {
        let taken = into.len().min(self.bytes());
        into[..taken].copy_from_slice(&self.bytes[self.from..self.from + taken]);
        self.from += taken;
        taken
    }

    /// Drops at most `bytes`; returns how many.
    pub(super) fn skip(&mut self, bytes: u64) -> usize {
        let skipped = bytes.min(self.bytes() as u64) as usize;
        self.from += skipped;
        skipped
    }

    /// Reads once more from the link; returns how many bytes came.
    pub(super) fn fill<L: Link>(&mut self, link: &mut L) -> io::Result<usize> {
        if self.bytes.is_empty() {
            self.bytes = vec![0; READ_AHEAD_BYTES];
        }
        // At most a part of a header is left over.
        self.bytes.copy_within(self.from..self.end, 0);
        (self.from, self.end) = (0, self.end - self.from);
        let received = link.try_recv(&mut [IoSliceMut::new(&mut self.bytes[self.end..])])?;
        self.end += received;
        Ok(received)
    }
}
