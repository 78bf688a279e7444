//! Probes that do not wait. A probe that waits is a receive without memory; see [`super::Posted::Probe`].

use unisono_communicator::{Descriptor, GroupRank, Result};

use crate::links::Links;

use super::transfer::peer_of;
use super::unexpected::{Unread, Wanted};
use super::{PointToPoint, Posted};

impl PointToPoint {
    /// Takes the oldest message that the receive of `wanted` would get, after a look at the streams of its sources.
    ///
    /// # Errors
    /// As a receive's, when no message can come any more.
    pub(crate) fn probe_now<L: Links>(
        &mut self,
        links: &mut L,
        wanted: &Descriptor,
    ) -> Result<Option<Unread>> {
        self.begin_posted(links, &mut []);
        let source = peer_of(wanted);
        for peer in self.peers.group().ranks() {
            if peer != self.rank && source.is_none_or(|source| source == peer) {
                self.advance_lane(peer, links, &mut [], true)?;
            }
        }
        match self.take_arrived(wanted) {
            Some(unread) => Ok(Some(unread)),
            None => self.check_sources(source).map(|()| None),
        }
    }

    /// Takes the oldest message that has arrived and that the receive of `wanted` would get.
    pub(crate) fn take_arrived(&mut self, wanted: &Descriptor) -> Option<Unread> {
        self.keep_returned();
        self.matching.take(Wanted { source: peer_of(wanted), tag: wanted.tag.one() })
    }

    /// Puts messages back that probes have found and nobody has received, unless an earlier receive gets them: their
    /// finder may ask for them again while another thread holds the links.
    fn keep_returned(&mut self) {
        for posted in std::mem::take(&mut self.posted) {
            match posted {
                Posted::Returned(unread)
                    if !self.posted.iter().any(|earlier| earlier.wants(&unread))
                        && !self.matching.has_receive_for(&unread) =>
                {
                    self.matching.keep(unread);
                }
                other => self.posted.push(other),
            }
        }
    }

    /// Asks the holder of the links to look at every stream. True as for [`PointToPoint::post`].
    pub(crate) fn look(&mut self) -> bool {
        let is_looked_for = self.posted.iter().any(|posted| matches!(posted, Posted::Look));
        !is_looked_for && self.post(Posted::Look)
    }

    /// The number of a new probe.
    pub(crate) fn next_probe(&mut self) -> u64 {
        self.matching.number()
    }

    /// Takes the message of a probe that has ended.
    pub(crate) fn take_held(&mut self, probe: u64) -> Option<Unread> {
        self.matching.take_held(probe)
    }

    /// Whether a message of `source`, or of any rank, may still come.
    fn check_sources(&self, source: Option<GroupRank>) -> Result<()> {
        match source {
            Some(peer) if peer != self.rank => match self.lanes[peer.index()].obstacle(true) {
                Some(broken) => Err(broken.error(&self.peers, peer, None)),
                None => Ok(()),
            },
            Some(_) => Ok(()),
            None => match self.others_that_left() {
                Some(others) => Err(self.peers.all_left(&others)),
                None => Ok(()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use unisono_backend::{Board, Peers};
    use unisono_communicator::{DType, Group, Operation, OwnedBuffers, OwnedCall, OwnedMemory, Peer, Tag};

    use super::*;
    use crate::calls::request::Request;
    use crate::point_to_point::frame::Message;
    use crate::point_to_point::unexpected::Arrived;

    fn receive(peer: Peer, tag: Tag) -> Descriptor {
        Descriptor { peer: Some(peer), tag, ..Descriptor::new(Operation::Recv, DType::U8, 0) }
    }

    fn post(messages: &mut PointToPoint, descriptor: Descriptor) {
        let empty = || OwnedMemory::of(Vec::<u8>::new());
        let buffers = OwnedBuffers::Separate { input: empty(), output: empty() };
        let request = Request::new(OwnedCall::new(descriptor, buffers), Arc::default());
        messages.post(Posted::Transfer { request, timeout: Duration::from_secs(3600) });
    }

    /// Only a receive that would get the message comes before the probe that gave it back.
    #[test]
    fn a_returned_message_is_found_again_behind_receives_of_other_messages() {
        for (posted, is_found) in [
            (receive(Peer::Rank(1), Tag::Is(6)), true),
            (receive(Peer::Rank(0), Tag::Any), true),
            (receive(Peer::Any, Tag::Is(4)), false),
            (receive(Peer::Rank(1), Tag::Any), false),
        ] {
            let group = Group::world(0, 2);
            let board = Arc::new(Board::new(group.own_rank(), group.size()));
            let mut messages = PointToPoint::new(Peers::new(group, board));
            post(&mut messages, posted);
            let message = Message { dtype: DType::U8, tag: 4, number: 0, bytes: 0 };
            let arrived = Arrived::Whole { message, bytes: Vec::new() };
            messages.post(Posted::Returned(Unread { source: GroupRank::new(1), number: 0, arrived }));
            let found = messages.take_arrived(&receive(Peer::Rank(1), Tag::Is(4)));
            assert_eq!(found.is_some(), is_found, "{posted}");
            assert_eq!(messages.posted.len(), 1 + usize::from(!is_found));
        }
    }
}
