//! The 32-byte frame header of the point-to-point lane, byte by byte. Little-endian:
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 1 | low 4 bits the kind: 1 eager, 2 request, 3 grant, 4 data, 5 credit, 6 goodbye; above, the version: 4 |
//! | 1 | 3 | dtype of the message: its number, and the bytes of an opaque element (eager, request) |
//! | 4 | 4 | tag (eager, request) |
//! | 8 | 8 | the sender's number of the message on this lane (grant and data name the request) |
//! | 16 | 8 | bytes of the message |
//! | 24 | 8 | credit: this many bytes of the receiver's queue are free again (any kind) |
//!
//! The message's bytes follow eager and data frames. After a goodbye its sender writes nothing more on this lane; the
//! other side answers with its own goodbye. Version 3 had no goodbye. Versions 1 and 2 had no version number and a
//! dtype of one byte. Version 1 returned credit only in credit frames, with the bytes at offset 16.

use unisono_communicator::{DTYPE_CODE_BYTES, DType};

/// Size of a frame header.
pub(super) const FRAME_BYTES: usize = 32;

/// The longest message that is sent without a request.
pub(super) const EAGER_BYTES_MAX: u64 = 512 * 1024;

/// The version of the format.
const VERSION: u8 = 4;

/// The dtype field of a frame that announces no message.
const NO_DTYPE: [u8; DTYPE_CODE_BYTES] = [0; DTYPE_CODE_BYTES];

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// A short message with its bytes.
    Eager(Message),
    /// A long message, which asks whether its receive is posted.
    Request(Message),
    /// The receive for request `number` has been posted.
    Grant { number: u64 },
    /// The bytes of request `number`.
    Data { number: u64, bytes: u64 },
    /// Only credit.
    Credit,
    /// The sender's last frame on this lane.
    Goodbye,
}

/// A message, as frames announce it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) dtype: DType,
    pub(super) tag: u32,
    pub(super) number: u64,
    pub(super) bytes: u64,
}

impl Frame {
    /// The header's bytes, with piggybacked `credit`.
    pub(super) fn encode(self, credit: u64) -> [u8; FRAME_BYTES] {
        let (kind, dtype, tag, number, bytes) = match self {
            Frame::Eager(m) => (1, m.dtype.code(), m.tag, m.number, m.bytes),
            Frame::Request(m) => (2, m.dtype.code(), m.tag, m.number, m.bytes),
            Frame::Grant { number } => (3, NO_DTYPE, 0, number, 0),
            Frame::Data { number, bytes } => (4, NO_DTYPE, 0, number, bytes),
            Frame::Credit => (5, NO_DTYPE, 0, 0, 0),
            Frame::Goodbye => (6, NO_DTYPE, 0, 0, 0),
        };
        let mut header = [0; FRAME_BYTES];
        header[0] = VERSION << 4 | kind;
        header[1..4].copy_from_slice(&dtype);
        header[4..8].copy_from_slice(&u32::to_le_bytes(tag));
        header[8..16].copy_from_slice(&u64::to_le_bytes(number));
        header[16..24].copy_from_slice(&u64::to_le_bytes(bytes));
        header[24..32].copy_from_slice(&u64::to_le_bytes(credit));
        header
    }

    /// The frame of a header, and its piggybacked credit; `None` if the bytes are no frame.
    pub(super) fn decode(header: &[u8; FRAME_BYTES]) -> Option<(Frame, u64)> {
        let u32_at =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let (number, bytes) = (u64_at(8), u64_at(16));
        let message = || {
            let dtype = DType::from_code([header[1], header[2], header[3]])?;
            Some(Message { dtype, tag: u32_at(4), number, bytes })
        };
        let frame = match (header[0] >> 4, header[0] & 0xf) {
            (VERSION, 1) => Frame::Eager(message()?),
            (VERSION, 2) => Frame::Request(message()?),
            (VERSION, 3) => Frame::Grant { number },
            (VERSION, 4) => Frame::Data { number, bytes },
            (VERSION, 5) => Frame::Credit,
            (VERSION, 6) => Frame::Goodbye,
            _ => return None,
        };
        Some((frame, u64_at(24)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_the_wire() {
        let message = Message { dtype: DType::BF16, tag: 7, number: 1 << 40, bytes: 12 };
        let opaque = Message { dtype: DType::opaque(0x0102).unwrap(), ..message };
        for (frame, credit) in [
            (Frame::Eager(message), 0),
            (Frame::Request(message), 1),
            (Frame::Request(opaque), 2),
            (Frame::Grant { number: 3 }, 1 << 33),
            (Frame::Data { number: 9, bytes: 1 << 33 }, 512),
            (Frame::Credit, u64::MAX),
            (Frame::Goodbye, 7),
        ] {
            assert_eq!(Frame::decode(&frame.encode(credit)), Some((frame, credit)));
        }
    }

    #[test]
    fn what_is_no_frame_of_this_version_is_refused() {
        assert_eq!(Frame::decode(&[0xff; FRAME_BYTES]), None);
        let mut older = Frame::Credit.encode(64);
        older[0] &= 0xf;
        assert_eq!(Frame::decode(&older), None);
        let mut unknown = Frame::Goodbye.encode(64);
        unknown[0] += 1;
        assert_eq!(Frame::decode(&unknown), None);
    }
}
