//! The 32-byte frame header of the point-to-point lane, byte by byte. Little-endian:
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 1 | kind: 1 eager, 2 request, 3 grant, 4 data, 5 credit |
//! | 1 | 1 | dtype of the message (eager, request) |
//! | 2 | 2 | zero |
//! | 4 | 4 | tag (eager, request) |
//! | 8 | 8 | the sender's number of the message on this lane (grant and data name the request) |
//! | 16 | 8 | bytes: of the message, or of the credit given back |
//! | 24 | 8 | zero |
//!
//! Eager and data frames are followed by the message's bytes.

use unisono_communicator::DType;

/// Size of a frame header.
pub(super) const FRAME_BYTES: usize = 32;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// A short message with its bytes.
    Eager(Message),
    /// A long message asks for its receive.
    Request(Message),
    /// The receive of request `number` is there.
    Grant { number: u64 },
    /// The bytes of request `number`.
    Data { number: u64, bytes: u64 },
    /// So many bytes of the receiver's queue are free again.
    Credit { bytes: u64 },
}

/// What identifies a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) dtype: DType,
    pub(super) tag: u32,
    pub(super) number: u64,
    pub(super) bytes: u64,
}

impl Frame {
    /// The header's bytes.
    pub(super) fn encode(self) -> [u8; FRAME_BYTES] {
        let (kind, dtype, tag, number, bytes) = match self {
            Frame::Eager(m) => (1, m.dtype.code(), m.tag, m.number, m.bytes),
            Frame::Request(m) => (2, m.dtype.code(), m.tag, m.number, m.bytes),
            Frame::Grant { number } => (3, 0, 0, number, 0),
            Frame::Data { number, bytes } => (4, 0, 0, number, bytes),
            Frame::Credit { bytes } => (5, 0, 0, 0, bytes),
        };
        let mut header = [0; FRAME_BYTES];
        header[0] = kind;
        header[1] = dtype;
        header[4..8].copy_from_slice(&u32::to_le_bytes(tag));
        header[8..16].copy_from_slice(&u64::to_le_bytes(number));
        header[16..24].copy_from_slice(&u64::to_le_bytes(bytes));
        header
    }

    /// The frame of a header; `None` when it is none.
    pub(super) fn decode(header: &[u8; FRAME_BYTES]) -> Option<Frame> {
        let u32_at =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let (number, bytes) = (u64_at(8), u64_at(16));
        let message = || Some(Message { dtype: DType::from_code(header[1])?, tag: u32_at(4), number, bytes });
        match header[0] {
            1 => message().map(Frame::Eager),
            2 => message().map(Frame::Request),
            3 => Some(Frame::Grant { number }),
            4 => Some(Frame::Data { number, bytes }),
            5 => Some(Frame::Credit { bytes }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_the_wire() {
        let message = Message { dtype: DType::BF16, tag: 7, number: 1 << 40, bytes: 12 };
        for frame in [
            Frame::Eager(message),
            Frame::Request(message),
            Frame::Grant { number: 3 },
            Frame::Data { number: 9, bytes: 1 << 33 },
            Frame::Credit { bytes: 64 },
        ] {
            assert_eq!(Frame::decode(&frame.encode()), Some(frame));
        }
        assert_eq!(Frame::decode(&[0xff; FRAME_BYTES]), None);
    }
}
