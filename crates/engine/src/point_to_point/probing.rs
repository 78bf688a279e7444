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

    /// Puts messages back that probes have found and nobody has received, unless a receive waits for them: their finder
    /// may ask for them again while another thread holds the links.
    fn keep_returned(&mut self) {
        let mut is_behind_receive = false;
        for posted in std::mem::take(&mut self.posted) {
            match posted {
                Posted::Returned(unread) if !is_behind_receive && !self.matching.has_receive_for(&unread) => {
                    self.matching.keep(unread);
                }
                other => {
                    is_behind_receive |= other.is_receive();
                    self.posted.push(other);
                }
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
