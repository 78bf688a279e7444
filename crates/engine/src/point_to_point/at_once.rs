//! Short messages that pass at once; see `lane::at_once`. No posted transfer may wait: the order of messages is theirs.

use unisono_communicator::{Buffer, BufferMut, Buffers, Call, Operation, Outcome, Segments, SegmentsMut};

use crate::links::{Link, Links};

use super::lane::at_once::AtOnceRead;
use super::transfer::{outcome, peer_of};
use super::{PointToPoint, edge};

/// The result of an attempt to move a message at once.
pub(crate) enum AtOnce {
    Done(Outcome),
    /// Its message has not arrived.
    Waits,
    /// It goes the general way.
    General,
}

/// The message and the room of a call, if each is in one piece.
#[inline]
pub(crate) fn memory_in_one_piece<'c>(call: &'c mut Call<'_>) -> Option<(&'c [u8], &'c mut [u8])> {
    match &mut call.buffers {
        Buffers::Separate {
            input: Buffer::Host(Segments::One(message)),
            output: BufferMut::Host(SegmentsMut::One(room)),
        } => Some((message, room)),
        Buffers::Separate { .. } | Buffers::InOut(_) => None,
    }
}

impl PointToPoint {
    /// Moves a send or receive whole, or leaves everything as it was, but for the room of a receive. `ahead` counts the
    /// bytes there, which an earlier attempt has copied; it is 0 at the first one. A peer that sleeps may sleep on
    /// until [`PointToPoint::notify`].
    pub(crate) fn pass_at_once<L: Links>(
        &mut self,
        links: &mut L,
        call: &mut Call<'_>,
        ahead: &mut usize,
    ) -> AtOnce {
        let descriptor = call.descriptor;
        let (Some(peer), Some(tag)) = (peer_of(&descriptor), descriptor.tag.one()) else {
            return AtOnce::General;
        };
        let is_ready = self.posted.is_empty() && !self.is_closing && self.lanes[peer.index()].is_connected();
        if peer == self.rank || !is_ready {
            return AtOnce::General;
        }
        let Some((message, room)) = memory_in_one_piece(call) else { return AtOnce::General };
        let (lane, link) = (&mut self.lanes[peer.index()], links.link(edge(peer)));
        let kind = (descriptor.dtype, tag);
        match descriptor.operation {
            Operation::Send if lane.send_at_once(link, kind, message) => {
                AtOnce::Done(outcome(None, tag, message.len() as u64))
            }
            Operation::Recv if self.matching.is_next_for_new(peer) => {
                match lane.receive_at_once(link, kind, room, ahead) {
                    AtOnceRead::Bytes(bytes) => AtOnce::Done(outcome(Some(peer), tag, bytes)),
                    AtOnceRead::Nothing => AtOnce::Waits,
                    AtOnceRead::Other => AtOnce::General,
                }
            }
            Operation::Send | Operation::Recv | Operation::Collective(_) => AtOnce::General,
        }
    }

    /// Wakes the peers of calls, if they sleep and wait for a message or for room.
    pub(crate) fn notify<L: Links>(&self, links: &mut L, calls: &[Call<'_>]) {
        let peers = calls.iter().filter_map(|call| peer_of(&call.descriptor));
        for peer in peers.filter(|&peer| peer != self.rank && self.lanes[peer.index()].is_connected()) {
            links.link(edge(peer)).notify();
        }
    }
}
