//! The end of a communicator's messages. Each side says goodbye after its last frame, and reads until the goodbye of
//! the other side.
//!
//! The kernel resets a stream that is closed with unread bytes in it, or on which the peer still writes. A reset
//! discards bytes that the other side has not read. So a side writes nothing after its goodbye, and answers the peer's
//! goodbye at once. Then no bytes are on their way, and either side may close the stream. The control plane reports
//! ranks that close; the others then read their streams to the end, even without a call.

use unisono_backend::Board;
use unisono_communicator::{Error, GroupRank};

use crate::links::{Link, Links};

use super::lane::PeerLane;
use super::{Borrowed, PointToPoint, edge};

impl PointToPoint {
    /// Says goodbye on every stream. Waiting receives end.
    pub(crate) fn say_goodbye<L: Links>(&mut self, links: &mut L) {
        self.is_closing = true;
        self.posted.drain(..).for_each(|posted| posted.fail(Error::closed()));
        let lent: &mut [Borrowed<'_>] = &mut [];
        self.matching.drain().for_each(|receive| receive.fail(lent, Error::closed()));
        for (peer, lane) in self.peers.group().ranks().zip(&mut self.lanes) {
            if peer != self.rank && links.is_open(edge(peer)) {
                lane.set_connected();
                lane.say_goodbye();
            }
        }
    }

    /// Whether any stream has been used.
    pub(crate) fn has_streams(&self) -> bool {
        self.lanes.iter().any(PeerLane::is_connected)
    }

    /// Notes the ranks that have closed the communicator. Once this rank has closed it, says goodbye on late streams.
    pub(crate) fn hear_of_closing<L: Links>(&mut self, links: &mut L, board: &Board) {
        let closings = board.closings();
        for (peer, lane) in self.peers.group().ranks().zip(&mut self.lanes) {
            let has_closed = closings.has_closed(peer);
            if peer == self.rank || !has_closed && !self.is_closing {
                continue;
            }
            // Before the look at the stream, which is handed over before this is set.
            let is_complete = closings.is_complete(peer);
            if links.is_open(edge(peer)) {
                lane.set_connected();
                if has_closed {
                    lane.set_peer_closes();
                }
                if self.is_closing {
                    lane.say_goodbye();
                }
            } else if is_complete {
                lane.set_broken("it closed the communicator".into());
            }
        }
    }

    /// Whether a closed rank's goodbye has not been read.
    pub(crate) fn awaits_goodbye(&self) -> bool {
        self.lanes.iter().any(PeerLane::is_peer_closing)
    }

    /// Whether all frames have been written, including the goodbyes.
    pub(crate) fn has_said_goodbye(&self) -> bool {
        self.lanes.iter().all(PeerLane::has_said_goodbye)
    }

    /// The ranks to which a message is not on its way yet.
    pub(crate) fn sent_to(&self) -> Vec<GroupRank> {
        let lanes = self.peers.group().ranks().zip(&self.lanes).filter(|(_, lane)| lane.is_sending());
        lanes.map(|(peer, _)| peer).collect()
    }

    /// The ranks that may lack sent bytes. With `is_kernel_enough`, bytes in the peer's kernel do not count as lacking.
    pub(crate) fn unanswered<L: Links>(&self, links: &mut L, is_kernel_enough: bool) -> Vec<GroupRank> {
        let lanes = self.peers.group().ranks().zip(&self.lanes).filter(|(_, lane)| lane.is_unanswered());
        let mut is_delivered = |peer, lane: &PeerLane| {
            let at = edge(peer);
            is_kernel_enough
                && lane.has_said_goodbye()
                && (!links.is_open(at) || links.link(at).is_delivered())
        };
        lanes.filter(|(peer, lane)| !is_delivered(*peer, lane)).map(|(peer, _)| peer).collect()
    }
}
