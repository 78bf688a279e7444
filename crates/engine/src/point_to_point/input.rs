//! A lane's read-ahead: one system call reads a frame header and the bytes after it.

use std::io::{self, IoSliceMut};

use crate::links::Link;

use super::frame::FRAME_BYTES;

/// The size of the read-ahead. If more bytes of a payload are missing, they are read straight into the receive's
/// memory.
pub(super) const READ_AHEAD_BYTES: usize = 4096;

/// Bytes that have been read but not decoded.
#[derive(Default)]
pub(super) struct Input {
    /// Empty until the first read, so that an unused lane costs nothing.
    bytes: Vec<u8>,
    from: usize,
    end: usize,
}

impl Input {
    /// The number of bytes read ahead.
    pub(super) fn bytes(&self) -> usize {
        self.end - self.from
    }

    /// Takes a header, if a whole header has arrived.
    pub(super) fn header(&mut self) -> Option<[u8; FRAME_BYTES]> {
        let header = *self.bytes[self.from..self.end].first_chunk()?;
        self.from += FRAME_BYTES;
        Some(header)
    }

    /// Takes as many bytes as fit into `into`. Returns their number.
    pub(super) fn take(&mut self, into: &mut [u8]) -> usize {
        let taken = into.len().min(self.bytes());
        into[..taken].copy_from_slice(&self.bytes[self.from..self.from + taken]);
        self.from += taken;
        taken
    }

    /// Drops at most `bytes` bytes. Returns their number.
    pub(super) fn skip(&mut self, bytes: u64) -> usize {
        let skipped = bytes.min(self.bytes() as u64) as usize;
        self.from += skipped;
        skipped
    }

    /// Reads once more from the link. Returns the number of new bytes.
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
