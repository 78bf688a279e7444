//! Sends and receives with tags, from any source, on a separate stream for each pair. They have no order with
//! collectives.
//!
//! A message of at most [`frame::EAGER_BYTES_MAX`] is sent at once if the receiver's queue has room for it (credits).
//! Any other message starts with a request; once its receive is posted, its bytes go straight into the receive's
//! buffer. The holder of the links moves all posted transfers, so a program may wait for them in any order. A blocking
//! call that finds the links free lends its memory instead of copying it (`drive/blocking.rs`).

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
mod queues;
mod transfer;
mod waits;

use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_communicator::{Error, GroupRank, Operation, Outcome, Peer, Result, Segments};

use crate::calls::pause::Pause;
use crate::calls::request::Request;
use crate::calls::wait::Wait;
use crate::links::{Broken, Edge, Interest, Lane, Links};
use unisono_backend::Peers;

use lane::{Event, PeerLane};
use matching::{Arrived, Matching};
use transfer::{Owned, Sink, Transfer};
use waits::Looks;

pub(crate) use transfer::{Borrowed, WaitingTransfer};
pub(crate) use waits::{call_asked_about, pay};

/// All unfinished sends and receives of one communicator.
pub(crate) struct PointToPoint {
    rank: GroupRank,
    peers: Peers,
    posted: Vec<(Arc<Request>, Duration)>,
    lanes: Vec<PeerLane>,
    matching: Matching,
    /// Whether this rank has closed the communicator, so that nothing new begins.
    is_closing: bool,
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
            looks: Looks::default(),
            stage: Vec::new(),
        }
    }

    /// Adds a transfer. The holder of the links begins it. True if no other one waits to begin, so that the holder does
    /// not know of any.
    pub(crate) fn post(&mut self, request: Arc<Request>, timeout: Duration) -> bool {
        self.posted.push((request, timeout));
        self.posted.len() == 1
    }

    /// Whether a transfer is unfinished.
    pub(crate) fn is_pending(&self) -> bool {
        let is_busy = |lane: &PeerLane| lane.is_sending() || lane.is_receiving();
        !self.posted.is_empty() || self.matching.has_receives() || self.lanes.iter().any(is_busy)
    }

    /// Whether a message of this rank is not on its way yet.
    pub(crate) fn is_sending(&self) -> bool {
        let is_send = |request: &Request| request.descriptor.operation == Operation::Send;
        self.posted.iter().any(|(request, _)| is_send(request)) || self.lanes.iter().any(PeerLane::is_sending)
    }

    /// Whether a poll may find something to do: for a transfer, or on a stream that must be read to its end although no
    /// transfer waits for it.
    pub(crate) fn needs_polls(&self) -> bool {
        self.is_pending() || self.lanes.iter().any(PeerLane::is_ending)
    }

    /// Moves all transfers that can move, including the borrowed one. True if something moved.
    pub(crate) fn advance<L: Links>(&mut self, links: &mut L, borrowed: &mut Borrowed<'_>) -> Result<bool> {
        let mut moved = self.begin_posted(links, borrowed);
        let reads_all = self.reads_all(borrowed);
        for peer in self.peers.group().ranks() {
            if peer != self.rank {
                moved |= self.advance_lane(peer, links, borrowed, reads_all)?;
            }
        }
        self.end_hopeless(borrowed)?;
        Ok(moved)
    }

    /// Ends the receives from any rank if all other ranks have left: only this rank itself could send to them, and a
    /// thread that waits for them does not. If nobody waits for them yet, they stay.
    fn end_hopeless(&mut self, borrowed: &mut Borrowed<'_>) -> Result<()> {
        if !self.matching.awaits_any() || self.lanes.len() == 1 {
            return Ok(());
        }
        let others = || self.peers.group().ranks().filter(|peer| *peer != self.rank);
        if others().any(|peer| self.lanes[peer.index()].reads()) {
            return Ok(());
        }
        let others: Vec<GroupRank> = others().collect();
        let (abandoned, is_awaited) =
            (self.matching.take_abandoned(None), self.matching.has_awaited_of_any());
        if abandoned.is_empty() && !is_awaited {
            return Ok(());
        }
        let error = self.peers.all_left(&others);
        abandoned.into_iter().for_each(|receive| receive.fail(borrowed, error.clone()));
        if is_awaited { Err(error) } else { Ok(()) }
    }

    /// Begins the borrowed transfer, after all transfers that were posted earlier.
    pub(crate) fn lend<L: Links>(&mut self, links: &mut L, borrowed: &mut Borrowed<'_>) {
        self.begin_posted(links, borrowed);
        self.begin(Transfer::Borrowed, links, borrowed);
    }

    /// Moves the borrowed transfer. If it has a lane, no other lane is polled.
    pub(crate) fn advance_borrowed<L: Links>(
        &mut self,
        links: &mut L,
        borrowed: &mut Borrowed<'_>,
    ) -> Result<bool> {
        match borrowed.descriptor.peer {
            _ if borrowed.is_over() => Ok(true),
            Some(Peer::Rank(peer)) if peer != self.rank.get() => {
                self.advance_lane(GroupRank::new(peer), links, borrowed, false)
            }
            Some(Peer::Rank(_) | Peer::Any) | None => self.advance(links, borrowed),
        }
    }

    /// Writes the remaining frames of a finished borrowed transfer. True if work is left.
    pub(crate) fn leave<L: Links>(&mut self, links: &mut L, borrowed: &mut Borrowed<'_>) -> bool {
        let (Some(Ok(Outcome { source, .. })), Some(peer)) = (&borrowed.result, borrowed.descriptor.peer)
        else {
            return self.is_pending();
        };
        let peer = match (source, peer) {
            (Some(source), _) => GroupRank::new(*source),
            (None, Peer::Rank(rank)) => GroupRank::new(rank),
            (None, Peer::Any) => return self.is_pending(),
        };
        let lane = &mut self.lanes[peer.index()];
        if lane.wants_to_write() && lane.is_connected() && lane.writes() {
            lane.flush(links.link(edge(peer)), borrowed, &mut self.stage);
        }
        lane.is_sending() || lane.is_receiving()
    }

    /// Replaces the borrowed transfer by a request's transfer, which owns its memory.
    pub(crate) fn own(&mut self, borrowed: &Borrowed<'_>, request: Arc<Request>, wait: Wait, since: Instant) {
        let Some(mut owned) = Owned::take(request, wait) else { return };
        if let Some(place) = self.matching.borrowed_mut(borrowed) {
            *place = Transfer::Owned(owned);
        } else if let Some((place, received)) = self.lanes.iter_mut().find_map(PeerLane::borrowed_mut) {
            owned.room()[..received].copy_from_slice(&borrowed.room[..received]);
            *place = Transfer::Owned(owned);
        }
        self.looks.hasten(since);
    }

    fn begin_posted<L: Links>(&mut self, links: &mut L, borrowed: &mut Borrowed<'_>) -> bool {
        if self.posted.is_empty() {
            return false;
        }
        let started = links.now();
        self.looks.hasten(started);
        for (request, timeout) in std::mem::take(&mut self.posted) {
            if let Some(owned) = Owned::take(request, Wait::since(started, timeout)) {
                self.begin(Transfer::Owned(owned), links, borrowed);
            }
        }
        true
    }

    fn begin<L: Links>(&mut self, transfer: Transfer, links: &mut L, borrowed: &mut Borrowed<'_>) {
        if self.is_closing {
            return transfer.fail(borrowed, Error::closed());
        }
        let descriptor = transfer.descriptor(borrowed);
        match (descriptor.operation, descriptor.peer) {
            (Operation::Send, Some(Peer::Rank(peer))) if peer == self.rank.get() => {
                self.send_to_self(transfer, borrowed);
            }
            (Operation::Send, Some(Peer::Rank(peer))) => {
                let peer = GroupRank::new(peer);
                let bytes = transfer.message(borrowed).len() as u64;
                let lane = &self.lanes[peer.index()];
                if PeerLane::is_short(bytes) && !lane.has_room(bytes) && lane.is_connected() {
                    // Credit may have arrived meanwhile.
                    self.move_lane(peer, links.link(edge(peer)), borrowed);
                }
                self.lanes[peer.index()].send(transfer, borrowed);
            }
            _ => {
                if let Some((source, arrived, transfer)) = self.matching.post(transfer, borrowed) {
                    self.deliver_arrived(source, arrived, transfer, borrowed);
                }
            }
        }
    }

    /// A message to this rank itself stays here: a copy of it waits for its receive.
    fn send_to_self(&mut self, transfer: Transfer, borrowed: &mut Borrowed<'_>) {
        let descriptor = transfer.descriptor(borrowed);
        let (dtype, tag) = (descriptor.dtype, descriptor.tag);
        let bytes = match Segments::One(transfer.message(borrowed)).copied() {
            Ok(bytes) => bytes,
            Err(error) => return transfer.fail(borrowed, error),
        };
        let message = frame::Message { dtype, tag, number: 0, bytes: bytes.len() as u64 };
        transfer.finish(borrowed, None, tag, message.bytes);
        let arrived = Arrived::Whole { message, bytes };
        match self.matching.match_receive(self.rank, &message) {
            Some(receive) => self.deliver_arrived(self.rank, arrived, receive, borrowed),
            None => self.matching.keep(self.rank, arrived),
        }
    }

    /// Gives an early message to its receive.
    fn deliver_arrived(
        &mut self,
        source: GroupRank,
        arrived: Arrived,
        mut receive: Transfer,
        borrowed: &mut Borrowed<'_>,
    ) {
        match arrived {
            Arrived::Whole { message, bytes } => {
                if source != self.rank {
                    self.lanes[source.index()].give_credit(message.bytes);
                }
                if let Some(error) = receive.refusal(borrowed, source, &message) {
                    return receive.fail(borrowed, error);
                }
                receive.room(borrowed)[..bytes.len()].copy_from_slice(&bytes);
                receive.finish(borrowed, Some(source), message.tag, message.bytes);
            }
            Arrived::Request { message } => {
                let sink = Sink::of(receive, borrowed, source, &message);
                self.lanes[source.index()].grant(message, sink);
            }
        }
    }

    /// Whether every open stream is read, even if no transfer waits for it. A blocked call serves all ranks: ranks
    /// whose streams are full must not wait for each other.
    fn reads_all(&self, borrowed: &Borrowed<'_>) -> bool {
        borrowed.is_some() || self.lanes.iter().any(PeerLane::wants_to_write)
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
        borrowed: &mut Borrowed<'_>,
        reads_all: bool,
    ) -> Result<bool> {
        if !self.lanes[peer.index()].is_open() {
            self.end_without(peer, borrowed)?;
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
        Ok(self.move_lane(peer, links.link(edge), borrowed))
    }

    /// Ends the transfers that only a rank could serve which has left. The error is for a transfer whose end somebody
    /// awaits.
    fn end_without(&mut self, peer: GroupRank, borrowed: &mut Borrowed<'_>) -> Result<()> {
        let lane = &mut self.lanes[peer.index()];
        let Some(broken) = lane.obstacle(self.matching.awaits_only(peer)) else { return Ok(()) };
        let error = broken.error(&self.peers, peer, None);
        if !lane.reads() {
            let abandoned = lane.take_abandoned().into_iter().chain(self.matching.take_abandoned(Some(peer)));
            abandoned.for_each(|receive| receive.fail(borrowed, error.clone()));
        }
        let is_left = lane.obstacle(self.matching.awaits_only(peer)).is_some();
        if is_left { Err(error) } else { Ok(()) }
    }

    /// Writes and reads on an open stream until nothing moves or the borrowed transfer is over. True if something
    /// moved.
    fn move_lane<K: crate::links::Link>(
        &mut self,
        peer: GroupRank,
        link: &mut K,
        borrowed: &mut Borrowed<'_>,
    ) -> bool {
        let mut moved = self.write_lane(peer, link, borrowed);
        if !borrowed.is_over() && self.lanes[peer.index()].reads() {
            match self.read_lane(peer, link, borrowed) {
                Ok(read) => moved |= read,
                Err(broken) => {
                    self.lanes[peer.index()].set_broken(broken);
                    return true;
                }
            }
            if moved {
                self.write_lane(peer, link, borrowed);
            }
        }
        moved
    }

    /// Writes as much as fits. True if something moved, or if nothing can be written any more.
    fn write_lane<K: crate::links::Link>(
        &mut self,
        peer: GroupRank,
        link: &mut K,
        borrowed: &mut Borrowed<'_>,
    ) -> bool {
        let lane = &mut self.lanes[peer.index()];
        lane.writes() && lane.flush(link, borrowed, &mut self.stage)
    }

    /// Takes the arrived bytes, until the borrowed transfer is over. True if bytes were taken.
    fn read_lane<K: crate::links::Link>(
        &mut self,
        peer: GroupRank,
        link: &mut K,
        borrowed: &mut Borrowed<'_>,
    ) -> std::result::Result<bool, Broken> {
        let mut moved = false;
        loop {
            let (lane, matching) = (&mut self.lanes[peer.index()], &mut self.matching);
            if borrowed.is_over() && !lane.is_receiving() {
                return Ok(moved);
            }
            let event = lane.receive(link, borrowed, |message, borrowed| {
                let receive = matching.match_receive(peer, message)?;
                Some(Sink::of(receive, borrowed, peer, message))
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
                Event::Arrived(arrived) => match self.matching.match_receive(peer, arrived.message()) {
                    Some(receive) => self.deliver_arrived(peer, arrived, receive, borrowed),
                    None => self.matching.keep(peer, arrived),
                },
            }
            moved = true;
        }
    }

    /// The transfers that own their memory.
    fn owned_mut(&mut self) -> impl Iterator<Item = &mut Owned> {
        let waiting = self.matching.receives_mut().filter_map(Transfer::owned_mut);
        self.lanes.iter_mut().flat_map(PeerLane::owned_mut).chain(waiting)
    }

    /// Adds the events that the messages, including `borrowed`, wait for to `pause`.
    pub(crate) fn pause<L: Links>(&mut self, links: &mut L, borrowed: &Borrowed<'_>, pause: &mut Pause) {
        self.matching.show_unread();
        self.push_interest(links, borrowed, &mut pause.interest);
        pause.end_by(self.looks.next());
    }

    fn push_interest<L: Links>(&self, links: &mut L, borrowed: &Borrowed<'_>, interest: &mut Vec<Interest>) {
        let reads_all = self.reads_all(borrowed);
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
        // The caller of a borrowed transfer has this error already.
        let borrowed = &mut Borrowed::none();
        let lanes = self.lanes.iter_mut().flat_map(PeerLane::drain);
        lanes.chain(self.matching.drain()).for_each(|transfer| transfer.fail(borrowed, error.clone()));
        self.posted.drain(..).for_each(|(request, _)| request.fail(error.clone()));
        self.lanes.iter_mut().for_each(|lane| lane.set_broken("the communicator is revoked".into()));
    }
}
