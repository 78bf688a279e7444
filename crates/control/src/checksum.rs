//! The header in front of bytes that carry a checksum: records of data streams, and frames of control connections.
//!
//! | byte | field |
//! | --- | --- |
//! | 0 | length of the rest `u32` |
//! | 4 | CRC32C of the rest `u32` |
//! | 8 | CRC32C of the 8 bytes before `u32`, so that a wrong length is not waited for |
//!
//! All little-endian. TCP's own checksum has 16 bits, and devices on the way compute it anew; CRC32C finds every burst
//! of up to 32 bits and misses other changes once in four thousand million.

use crc_fast::CrcAlgorithm;

/// The checksum of data and of control messages.
pub const ALGORITHM: CrcAlgorithm = CrcAlgorithm::Crc32Iscsi;

/// Length of the header.
pub const HEADER_BYTES: usize = 12;

/// The fields of a header, about the bytes behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedHeader {
    /// The number of these bytes.
    pub length: usize,
    /// Their checksum.
    pub checksum: u32,
}

impl CheckedHeader {
    /// The header of these bytes.
    pub fn of(bytes: &[u8]) -> CheckedHeader {
        CheckedHeader { length: bytes.len(), checksum: checksum(bytes) }
    }

    /// The header on the wire; lengths have a cap far below 4 GiB.
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&(self.length as u32).to_le_bytes());
        header[4..8].copy_from_slice(&self.checksum.to_le_bytes());
        let of_header = checksum(&header[..8]);
        header[8..].copy_from_slice(&of_header.to_le_bytes());
        header
    }

    /// Reads a header; `None` when it was changed on the way.
    pub fn decode(header: &[u8; HEADER_BYTES]) -> Option<CheckedHeader> {
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let says = CheckedHeader { length: word(0) as usize, checksum: word(4) };
        (word(8) == checksum(&header[..8])).then_some(says)
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(ALGORITHM, bytes) as u32
}
