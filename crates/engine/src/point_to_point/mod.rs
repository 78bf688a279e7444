//! Sends and receives with tags, from any source, on a separate stream for each pair. They have no order with
//! collectives.
//!
//! A message of at most [`frame::EAGER_BYTES_MAX`] is sent at once if the receiver's queue has room for it (credits).
//! Any other message starts with a request; once its receive is posted, its bytes go straight into the receive's
//! buffer. The holder of the links moves all posted transfers, so a program may wait for them in any order. A blocking
//! call that finds the links free moves a short message whole (`at_once`), or lends its memory instead of copying it
//! (`drive/blocking.rs`).

mod at_once;
#[cfg(test)]
mod at_once_tests;
mod frame;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod goodbye;
mod incoming;
mod input;
mod lane;
#[cfg(test)]
mod lane_tests;
mod matching;
mod outgoing;
mod posted;
mod probing;
mod queues;
mod transfer;
mod unexpected;
mod waits;

use std::sync::Arc;
use std::time::Instant;

use unisono_communicator::{Error, GroupRank, Operation, Peer, Result, Segments};

use crate::calls::pause::Pause;
use crate::calls::request::Request;
use crate::calls::wait::Wait;
use crate::links::{Broken, Edge, Interest, Lane, Links};
use unisono_backend::Peers;

use lane::{Event, PeerLane};
use matching::Matching;
use transfer::{Owned, Sink, Transfer};
use unexpected::Arrived;
use waits::Looks;

pub(crate) use at_once::{AtOnce, memory_in_one_piece};
pub(crate) use posted::Posted;
pub(crate) use transfer::{Borrowed, WaitingTransfer, are_over};
pub(crate) use unexpected::Unread;
pub(crate) use waits::{call_asked_about, pay};

/// All unfinished sends and receives of one communicator.
pub(crate) struct PointToPoint {
    rank: GroupRank,
    peers: Peers,
    posted: Vec<Posted>,
    lanes: Vec<PeerLane>,
    matching: Matching,
    /// Whether this rank has closed the communicator, so that nothing new begins.
    is_closing: bool,
    /// Whether the next poll looks at every stream.
    is_looking: bool,
    /// When to look after the transfers that own their memory.
    looks: Looks,
    /// A buffer that collects short frames.
    stage: Vec<u8>,
}

fn edge(peer: GroupRank) -> Edge {
    Edge { peer, lane: Lane::PointToPoint }
}

impl PointToPoint {
    pub(crate) fn new(peers: Peers) -> PointToPoint {
        let group = peers.group();
        PointToPoint {
            rank: group.own_rank(),
            lanes: group.ranks().map(PeerLane::new).collect(),
            matching: Matching::new(peers.board().clone(), group.size()),
            peers,
            posted: Vec::new(),
            is_closing: false,
            is_looking: false,
            looks: Looks::default(),
            stage: Vec::new(),
        }
    }

    /// Adds work that the holder of the links begins. True if no other work waits to begin, so that the holder does not
    /// know of any.
    pub(crate) fn post(&mut self, posted: Posted) -> bool {
        self.posted.push(posted);
        self.posted.len() == 1
    }

    /// Whether a transfer is unfinished.
    pub(crate) fn is_pending(&self) -> bool {
        let is_busy = |lane: &PeerLane| lane.is_sending() || lane.is_receiving();
        !self.posted.is_empty() || self.matching.has_receives() || self.lanes.iter().any(is_busy)
    }

    /// Whether a message of this rank is not on its way yet.
    pub(crate) fn is_sending(&self) -> bool {
        self.posted.iter().any(Posted::is_send) || self.lanes.iter().any(PeerLane::is_sending)
    }

    /// Whether a poll may find something to do: for a transfer, or on a stream that must be read to its end although no
    /// transfer waits for it.
    pub(crate) fn needs_polls(&self) -> bool {
        self.is_pending() || self.lanes.iter().any(PeerLane::is_ending)
    }

    /// Moves all transfers that can move, including the lent ones. True if something moved.
    pub(crate) fn advance<L: Links>(&mut self, links: &mut L, lent: &mut [Borrowed<'_>]) -> Result<bool> {
        let mut moved = self.begin_posted(links, lent);
        let reads_all = std::mem::take(&mut self.is_looking) || self.reads_all(lent);
        for peer in self.peers.group().ranks() {
            if peer != self.rank {
                moved |= self.advance_lane(peer, links, lent, reads_all)?;
            }
        }
        self.end_hopeless(lent)?;
        Ok(moved)
    }

    /// Ends the receives from any rank if all other ranks have left: only this rank itself could send to them, and a
    /// thread that waits for them does not. If nobody waits for them yet, they stay.
    fn end_hopeless(&mut self, lent: &mut [Borrowed<'_>]) -> Result<()> {
        if !self.matching.awaits_any() {
            return Ok(());
        }
        let Some(others) = self.others_that_left() else { return Ok(()) };
        let (abandoned, is_awaited) =
            (self.matching.take_abandoned(None), self.matching.has_awaited_of_any());
        if abandoned.is_empty() && !is_awaited {
            return Ok(());
        }
        let error = self.peers.all_left(&others);
        abandoned.into_iter().for_each(|receive| receive.fail(lent, error.clone()));
        if is_awaited { Err(error) } else { Ok(()) }
    }

    /// The other ranks, if there are any and none of them can send any more.
    fn others_that_left(&self) -> Option<Vec<GroupRank>> {
        let others = || self.peers.group().ranks().filter(|peer| *peer != self.rank);
        let is_over = self.lanes.len() > 1 && others().all(|peer| !self.lanes[peer.index()].reads());
        is_over.then(|| others().collect())
    }

    /// Begins the lent transfers, after all transfers that were posted earlier.
    pub(crate) fn lend<L: Links>(&mut self, links: &mut L, lent: &mut [Borrowed<'_>]) {
        self.begin_posted(links, lent);
        for index in 0..lent.len() {
            if !lent[index].is_over() {
                self.begin(Transfer::Lent(index), links, lent);
            }
        }
    }

    /// Moves the lent transfers. If each has a lane, no other lane is polled.
    pub(crate) fn advance_lent<L: Links>(
        &mut self,
        links: &mut L,
        lent: &mut [Borrowed<'_>],
    ) -> Result<bool> {
        let mut moved = false;
        for index in 0..lent.len() {
            match lent[index].peer() {
                _ if lent[index].is_over() => {}
                Some(peer) if peer != self.rank => moved |= self.advance_lane(peer, links, lent, false)?,
                Some(_) | None => return self.advance(links, lent),
            }
        }
        Ok(moved)
    }

    /// Writes the remaining frames of finished lent transfers. True if work is left.
    pub(crate) fn leave<L: Links>(&mut self, links: &mut L, lent: &mut [Borrowed<'_>]) -> bool {
        let mut is_left = false;
        for index in 0..lent.len() {
            let source = match &lent[index].result {
                Some(Ok(outcome)) => outcome.source.map(GroupRank::new),
                Some(Err(_)) | None => return self.is_pending(),
            };
            let Some(peer) = source.or(lent[index].peer()) else { continue };
            let lane = &mut self.lanes[peer.index()];
            if lane.wants_to_write() && lane.is_connected() {
                lane.flush(links.link(edge(peer)), lent, &mut self.stage);
            }
            is_left |= lane.is_sending() || lane.is_receiving();
        }
        is_left
    }

    /// Replaces the lent transfer of this index by a request's transfer, which owns its memory.
    pub(crate) fn own(
        &mut self,
        index: usize,
        lent: &[Borrowed<'_>],
        request: Arc<Request>,
        wait: Wait,
        since: Instant,
    ) {
        let Some(mut owned) = Owned::take(request, wait, None) else { return };
        if let Some(place) = self.matching.lent_mut(index, lent) {
            *place = Transfer::Owned(owned);
        } else if let Some((place, received)) = self.lanes.iter_mut().find_map(|lane| lane.lent_mut(index)) {
            owned.room()[..received].copy_from_slice(&lent[index].room[..received]);
            *place = Transfer::Owned(owned);
        }
        self.looks.hasten(since);
    }

    fn begin_posted<L: Links>(&mut self, links: &mut L, lent: &mut [Borrowed<'_>]) -> bool {
        if self.posted.is_empty() {
            return false;
        }
        let started = links.now();
        self.looks.hasten(started);
        for posted in std::mem::take(&mut self.posted) {
            let (request, timeout, probe, found) = match posted {
                Posted::Transfer { request, timeout } => (request, timeout, None, None),
                Posted::Probe { request, timeout, number } => (request, timeout, Some(number), None),
                Posted::Found { request, timeout, unread } => (request, timeout, None, Some(unread)),
                Posted::Returned(unread) => {
                    self.give(unread, lent);
                    continue;
                }
                Posted::Look => {
                    self.is_looking = true;
                    continue;
                }
            };
            let Some(owned) = Owned::take(request, Wait::since(started, timeout), probe) else { continue };
            match found {
                Some(_) if self.is_closing => Transfer::Owned(owned).fail(lent, Error::closed()),
                Some(unread) => self.deliver_arrived(unread, Transfer::Owned(owned), lent),
                None => self.begin(Transfer::Owned(owned), links, lent),
            }
        }
        true
    }

    fn begin<L: Links>(&mut self, transfer: Transfer, links: &mut L, lent: &mut [Borrowed<'_>]) {
        if self.is_closing {
            return transfer.fail(lent, Error::closed());
        }
        let descriptor = transfer.descriptor(lent);
        match (descriptor.operation, descriptor.peer) {
            (Operation::Send, Some(Peer::Rank(peer))) if peer == self.rank.get() => {
                self.send_to_self(transfer, lent);
            }
            (Operation::Send, Some(Peer::Rank(peer))) => {
                let peer = GroupRank::new(peer);
                let bytes = transfer.message(lent).len() as u64;
                let lane = &self.lanes[peer.index()];
                if PeerLane::is_short(bytes) && !lane.has_room(bytes) && lane.is_connected() {
                    // Credit may have arrived meanwhile.
                    self.move_lane(peer, links.link(edge(peer)), lent);
                }
                self.lanes[peer.index()].send(transfer, lent);
            }
            _ => {
                if let Some((unread, transfer)) = self.matching.post(transfer, lent) {
                    self.deliver_arrived(unread, transfer, lent);
                }
            }
        }
    }

    /// A message to this rank itself stays here: a copy of it waits for its receive.
    fn send_to_self(&mut self, transfer: Transfer, lent: &mut [Borrowed<'_>]) {
        let (dtype, tag) = (transfer.descriptor(lent).dtype, transfer.sent_tag(lent));
        let bytes = match Segments::One(transfer.message(lent)).copied() {
            Ok(bytes) => bytes,
            Err(error) => return transfer.fail(lent, error),
        };
        let message = frame::Message { dtype, tag, number: 0, bytes: bytes.len() as u64 };
        transfer.finish(lent, None, tag, message.bytes);
        let unread = self.matching.arrive(self.rank, Arrived::Whole { message, bytes });
        self.give(unread, lent);
    }

    /// Gives a message to the first receive that waits for it, or keeps it.
    fn give(&mut self, unread: Unread, lent: &mut [Borrowed<'_>]) {
        match self.matching.match_receive(unread.source, unread.arrived.message()) {
            Some(receive) => self.deliver_arrived(unread, receive, lent),
            None => self.matching.keep(unread),
        }
    }

    /// Gives an early message to its receive, or leaves it to its probe.
    fn deliver_arrived(&mut self, unread: Unread, mut receive: Transfer, lent: &mut [Borrowed<'_>]) {
        let (source, message) = (unread.source, *unread.arrived.message());
        if let Some(probe) = receive.probe() {
            self.matching.hold(probe, unread);
            return receive.finish(lent, Some(source), message.tag, message.bytes);
        }
        match unread.arrived {
            Arrived::Whole { bytes, .. } => {
                if source != self.rank {
                    self.lanes[source.index()].give_credit(message.bytes);
                }
                if let Some(error) = receive.refusal(lent, source, &message) {
                    return receive.fail(lent, error);
                }
                receive.room(lent)[..bytes.len()].copy_from_slice(&bytes);
                receive.finish(lent, Some(source), message.tag, message.bytes);
            }
            Arrived::Request { .. } => {
                let sink = Sink::of(receive, lent, source, &message);
                self.lanes[source.index()].grant(message, sink);
            }
        }
    }

    /// Whether every open stream is read, even if no transfer waits for it. A blocked call serves all ranks: ranks
    /// whose streams are full must not wait for each other.
    fn reads_all(&self, lent: &[Borrowed<'_>]) -> bool {
        !lent.is_empty() || self.lanes.iter().any(PeerLane::wants_to_write)
    }

    /// Whether bytes from `peer` are wanted.
    fn reads(&self, peer: GroupRank, reads_all: bool) -> bool {
        let lane = &self.lanes[peer.index()];
        reads_all
            || lane.is_sending()
            || lane.is_receiving()
            || lane.is_ending()
            || self.matching.awaits(peer)
    }

    fn advance_lane<L: Links>(
        &mut self,
        peer: GroupRank,
        links: &mut L,
        lent: &mut [Borrowed<'_>],
        reads_all: bool,
    ) -> Result<bool> {
        if !self.lanes[peer.index()].is_open() {
            self.end_without(peer, lent)?;
        }
        if !self.reads(peer, reads_all) {
            return Ok(false);
        }
        let (edge, lane) = (edge(peer), &self.lanes[peer.index()]);
        if !lane.is_connected() {
            if lane.is_sending() && links.open(&[edge])?.is_pending() || !links.is_open(edge) {
                return Ok(false);
            }
            self.lanes[peer.index()].set_connected();
        }
        Ok(self.move_lane(peer, links.link(edge), lent))
    }

    /// Ends the transfers that only a rank could serve which has left. The error is for a transfer whose end somebody
    /// awaits.
    fn end_without(&mut self, peer: GroupRank, lent: &mut [Borrowed<'_>]) -> Result<()> {
        let lane = &mut self.lanes[peer.index()];
        let Some(broken) = lane.obstacle(self.matching.awaits_only(peer)) else { return Ok(()) };
        let error = broken.error(&self.peers, peer, None);
        if !lane.reads() {
            let abandoned = lane.take_abandoned().into_iter().chain(self.matching.take_abandoned(Some(peer)));
            abandoned.for_each(|receive| receive.fail(lent, error.clone()));
        }
        let is_left = lane.obstacle(self.matching.awaits_only(peer)).is_some();
        if is_left { Err(error) } else { Ok(()) }
    }

    /// Writes and reads on an open stream until nothing moves or the lent transfers are over. True if something
    /// moved.
    fn move_lane<K: crate::links::Link>(
        &mut self,
        peer: GroupRank,
        link: &mut K,
        lent: &mut [Borrowed<'_>],
    ) -> bool {
        let mut moved = self.lanes[peer.index()].flush(link, lent, &mut self.stage);
        if !are_over(lent) && self.lanes[peer.index()].reads() {
            match self.read_lane(peer, link, lent) {
                Ok(read) => moved |= read,
                Err(broken) => {
                    self.lanes[peer.index()].set_broken(broken);
                    return true;
                }
            }
            if moved {
                self.lanes[peer.index()].flush(link, lent, &mut self.stage);
            }
        }
        moved
    }

    /// Takes the arrived bytes, until the lent transfers are over. True if bytes were taken.
    fn read_lane<K: crate::links::Link>(
        &mut self,
        peer: GroupRank,
        link: &mut K,
        lent: &mut [Borrowed<'_>],
    ) -> std::result::Result<bool, Broken> {
        let mut moved = false;
        loop {
            let (lane, matching) = (&mut self.lanes[peer.index()], &mut self.matching);
            if are_over(lent) && !lane.is_receiving() {
                return Ok(moved);
            }
            let event = lane.receive(link, lent, |message, lent| {
                let receive = matching.match_bytes(peer, message)?;
                Some(Sink::of(receive, lent, peer, message))
            });
            match event? {
                Event::Nothing => return Ok(moved),
                Event::Moved => {}
                Event::Goodbye => {
                    self.matching.forget_requests(peer);
                    // The news of its departure may come later.
                    self.peers.board().closings().note_goodbye(peer);
                    return Ok(true);
                }
                Event::Arrived(arrived) => {
                    let unread = self.matching.arrive(peer, arrived);
                    self.give(unread, lent);
                }
            }
            moved = true;
        }
    }

    /// The transfers that own their memory.
    fn owned_mut(&mut self) -> impl Iterator<Item = &mut Owned> {
        let waiting = self.matching.receives_mut().filter_map(Transfer::owned_mut);
        self.lanes.iter_mut().flat_map(PeerLane::owned_mut).chain(waiting)
    }

    /// Adds the events that the messages, `lent` included, wait for to `pause`.
    pub(crate) fn pause<L: Links>(&mut self, links: &mut L, lent: &[Borrowed<'_>], pause: &mut Pause) {
        self.matching.show_unread();
        self.push_interest(links, lent, &mut pause.interest);
        pause.end_by(self.looks.next());
    }

    fn push_interest<L: Links>(&self, links: &mut L, lent: &[Borrowed<'_>], interest: &mut Vec<Interest>) {
        let reads_all = self.reads_all(lent);
        for peer in self.peers.group().ranks() {
            let lane = &self.lanes[peer.index()];
            let readable = lane.reads() && self.reads(peer, reads_all);
            let writable = lane.writes() && lane.wants_to_write();
            if peer != self.rank && (readable || writable) && links.is_open(edge(peer)) {
                interest.push(Interest { edge: edge(peer), readable, writable, releasable: false });
            }
        }
    }

    /// Ends every transfer with `error`, and every lane.
    pub(crate) fn fail(&mut self, error: &Error) {
        let lent: &mut [Borrowed<'_>] = &mut [];
        let lanes = self.lanes.iter_mut().flat_map(PeerLane::drain);
        lanes.chain(self.matching.drain()).for_each(|transfer| transfer.fail(lent, error.clone()));
        self.posted.drain(..).for_each(|posted| posted.fail(error.clone()));
        self.lanes.iter_mut().for_each(|lane| lane.set_broken("the communicator is revoked".into()));
    }
}
