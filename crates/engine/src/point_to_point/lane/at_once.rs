//! Short messages that pass a lane at once, on the memory of their caller: nothing is queued, and no transfer exists.
//! A lane with anything under way, and a message that does not pass whole, are left as they were.

use std::io::IoSlice;

use unisono_communicator::DType;

use crate::links::{Link, WHOLE_BYTES_MAX};
use crate::reduce::PeerBytes;

use super::super::frame::{FRAME_BYTES, Frame, Message};
use super::super::outgoing::is_pause;
use super::{CREDIT_BYTES_MAX, Life, PeerLane, QUEUE_BYTES_MAX, queued_bytes};

/// The result of an attempt to receive.
pub(in crate::point_to_point) enum AtOnceRead {
    /// A message of this number of bytes.
    Bytes(u64),
    /// Nothing has arrived, or not all.
    Nothing,
    /// Another message, a part of a frame, or an end: it goes the general way.
    Other,
}

impl PeerLane {
    /// Whether nothing of this lane is under way, so that a message can pass.
    #[inline]
    fn is_quiet(&self) -> bool {
        self.is_connected
            && self.life == Life::Open
            && !self.has_heard_goodbye
            && self.outbox.is_empty()
            && self.incoming.is_none()
            && self.input.bytes() == 0
    }

    /// Writes a short message; false if it has done nothing.
    #[inline]
    pub(in crate::point_to_point) fn send_at_once<L: Link>(
        &mut self,
        link: &mut L,
        (dtype, tag): (DType, u32),
        payload: &[u8],
    ) -> bool {
        let bytes = payload.len() as u64;
        if !self.is_quiet() || !PeerLane::is_short(bytes) || !self.has_room(bytes) {
            return false;
        }
        let message = Message { dtype, tag, number: self.next_number, bytes };
        let header = Frame::Eager(message).encode(self.owed);
        if !matches!(link.try_send_all([IoSlice::new(&header), IoSlice::new(payload)]), Ok(true)) {
            return false;
        }
        self.next_number += 1;
        self.queued_there += queued_bytes(bytes);
        self.queued_here = self.queued_here.saturating_sub(std::mem::take(&mut self.owed));
        true
    }

    /// Reads a short message of this kind, if it comes next and has arrived whole. Else its arrived bytes are in `room`
    /// and stay on the link, whose holder alone takes bytes off; `ahead` counts them for the next attempt.
    #[inline]
    pub(in crate::point_to_point) fn receive_at_once<L: Link>(
        &mut self,
        link: &mut L,
        (dtype, tag): (DType, u32),
        room: &mut [u8],
        ahead: &mut usize,
    ) -> AtOnceRead {
        if !self.is_quiet() {
            return AtOnceRead::Other;
        }
        let arrived = match link.peek(FRAME_BYTES + room.len(), None) {
            Some(Ok((false, arrived))) => arrived,
            Some(Err(error)) if is_pause(&error) => return AtOnceRead::Nothing,
            Some(Ok((true, _)) | Err(_)) | None => return AtOnceRead::Other,
        };
        if arrived.len() < FRAME_BYTES {
            return AtOnceRead::Other;
        }
        let (header, behind) = PeerBytes::Shared(arrived).split_at(FRAME_BYTES);
        let mut bytes = [0; FRAME_BYTES];
        header.copy_to(&mut bytes);
        let Some((Frame::Eager(message), credit)) = Frame::decode(&bytes) else { return AtOnceRead::Other };
        let length = message.bytes as usize;
        let queued_here = self.queued_here.saturating_add(queued_bytes(message.bytes));
        let fits = message.dtype == dtype
            && message.tag == tag
            && message.bytes <= room.len().min(WHOLE_BYTES_MAX) as u64
            && credit <= self.queued_there
            && queued_here <= QUEUE_BYTES_MAX
            // Credit that gets a frame of its own must be written too.
            && self.owed + queued_bytes(message.bytes) < CREDIT_BYTES_MAX;
        if !fits {
            return AtOnceRead::Other;
        }
        let arrived = length.min(behind.len());
        if arrived > *ahead {
            behind.split_at(arrived).0.split_at(*ahead).1.copy_to(&mut room[*ahead..arrived]);
            *ahead = arrived;
        }
        if arrived < length {
            return AtOnceRead::Nothing;
        }
        link.consume(FRAME_BYTES + length);
        (self.queued_there, self.queued_here) = (self.queued_there - credit, queued_here);
        self.give_credit(message.bytes);
        AtOnceRead::Bytes(message.bytes)
    }
}
