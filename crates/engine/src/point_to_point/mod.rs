//! Sends and receives: tags, any source, their own stream for each pair, no order with collectives.
//!
//! A message of at most [`EAGER_BYTES_MAX`] is sent at once while the receiver's queue has room for it (credits);
//! any other asks first and is sent when its receive is there, straight into the receive's buffer. Whoever holds the
//! baton moves all posted operations, so the order in which a program waits for them does not matter.

mod frame;
mod lane;
mod matching;

use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_communicator::{
    Awaited, CallInfo, Certainty, Collective, Completion, Error, Outcome, OwnedBuffers, OwnedCall, Peer,
    Result, Site, deadline_after,
};

use crate::baton::Pause;
use crate::job::{Job, JobState, lock};
use crate::links::{Edge, Interest, Lane as StreamLane, Links};

use lane::{Event, Lane};
use matching::{Arrived, Matching};

/// Longest message that is sent without asking.
pub(crate) const EAGER_BYTES_MAX: u64 = 64 * 1024;

/// The name of what moves messages, in outcomes.
const ALGORITHM: &str = "point_to_point";

/// A posted operation with the memory that it owns.
pub(crate) struct Operation {
    pub(crate) job: Arc<Job>,
    pub(crate) call: OwnedCall,
    pub(crate) deadline: Instant,
    pub(crate) started: Instant,
}

impl Operation {
    fn message(&self) -> &[u8] {
        match &self.call.buffers {
            OwnedBuffers::Separate { input, .. } => input.bytes(),
            OwnedBuffers::InOut(_) | OwnedBuffers::None => &[],
        }
    }

    fn room(&mut self) -> &mut [u8] {
        match &mut self.call.buffers {
            OwnedBuffers::Separate { output, .. } => output.bytes_mut(),
            OwnedBuffers::InOut(_) | OwnedBuffers::None => &mut [],
        }
    }

    fn info(&self) -> CallInfo {
        let site = Some(Site::from(self.call.site));
        CallInfo { number: 0, descriptor: self.call.descriptor, algorithm: None, site }
    }

    fn finish(self, source: Option<u32>, tag: u32, bytes: u64) {
        let outcome = Outcome { completion: Completion::Done, source, tag, bytes, algorithm: ALGORITHM };
        self.job.finish(Ok(outcome), self.call.buffers);
    }

    fn fail(self, error: Error) {
        self.job.finish(Err(error), self.call.buffers);
    }
}

/// All sends and receives of one communicator that are not finished.
pub(crate) struct Mail {
    rank: u32,
    posted: Vec<(Arc<Job>, OwnedCall, Duration)>,
    lanes: Vec<Lane>,
    matching: Matching,
}

impl Mail {
    /// No mail.
    pub(crate) fn new(rank: u32, ranks: u32) -> Mail {
        Mail {
            rank,
            posted: Vec::new(),
            lanes: (0..ranks).map(Lane::new).collect(),
            matching: Matching::default(),
        }
    }

    /// Adds an operation. It begins when the baton's holder comes to it.
    pub(crate) fn post(&mut self, job: Arc<Job>, timeout: Duration) {
        let state = std::mem::replace(&mut *lock(&job.state), JobState::Finished(None));
        if let JobState::Queued(call) = state {
            self.posted.push((job, call, timeout));
        }
    }

    /// Whether an operation is not finished.
    pub(crate) fn is_pending(&self) -> bool {
        let is_busy = |lane: &Lane| lane.is_sending() || lane.is_receiving();
        !self.posted.is_empty() || self.matching.has_receives() || self.lanes.iter().any(is_busy)
    }

    /// Whether a message of ours is not on its way yet.
    pub(crate) fn is_sending(&self) -> bool {
        let is_send = |call: &OwnedCall| call.descriptor.collective == Collective::Send;
        self.posted.iter().any(|(_, call, _)| is_send(call)) || self.lanes.iter().any(Lane::is_sending)
    }

    /// Moves what can move; true when something did.
    pub(crate) fn advance<L: Links>(&mut self, links: &mut L) -> Result<bool> {
        let mut moved = !self.posted.is_empty();
        for (job, call, timeout) in std::mem::take(&mut self.posted) {
            let started = links.now();
            self.begin(Operation { job, call, started, deadline: deadline_after(started, timeout) });
        }
        for peer in 0..self.lanes.len() as u32 {
            if peer != self.rank {
                moved |= self.advance_lane(peer, links)?;
            }
        }
        self.check_deadlines(links.now())?;
        Ok(moved)
    }

    fn begin(&mut self, operation: Operation) {
        match (operation.call.descriptor.collective, operation.call.descriptor.peer) {
            (Collective::Send, Some(Peer::Rank(peer))) if peer == self.rank => self.send_to_self(operation),
            (Collective::Send, Some(Peer::Rank(peer))) => self.lanes[peer as usize].send(operation),
            _ => {
                if let Some((source, arrived, operation)) = self.matching.post(operation) {
                    self.deliver_arrived(source, arrived, operation);
                }
            }
        }
    }

    /// A message to oneself never leaves: it waits, copied, for its receive.
    fn send_to_self(&mut self, operation: Operation) {
        let descriptor = operation.call.descriptor;
        let message = frame::Message {
            dtype: descriptor.dtype,
            tag: descriptor.tag,
            number: 0,
            bytes: operation.message().len() as u64,
        };
        let bytes = operation.message().to_vec();
        operation.finish(None, descriptor.tag, message.bytes);
        let arrived = Arrived::Whole { message, bytes };
        match self.matching.match_receive(self.rank, &message) {
            Some(receive) => self.deliver_arrived(self.rank, arrived, receive),
            None => self.matching.keep(self.rank, arrived),
        }
    }

    /// Gives a message that was there before its receive to that receive.
    fn deliver_arrived(&mut self, source: u32, arrived: Arrived, mut receive: Operation) {
        match arrived {
            Arrived::Whole { message, bytes } => {
                if source != self.rank {
                    self.lanes[source as usize].give_credit(message.bytes);
                }
                if let Some(error) = refusal(&receive, source, &message) {
                    return receive.fail(error);
                }
                receive.room()[..bytes.len()].copy_from_slice(&bytes);
                receive.finish(Some(source), message.tag, message.bytes);
            }
            Arrived::Request { message } => {
                let sink = sink(receive, source, &message);
                self.lanes[source as usize].grant(message, sink);
            }
        }
    }

    fn advance_lane<L: Links>(&mut self, peer: u32, links: &mut L) -> Result<bool> {
        match self.lanes[peer as usize].broken() {
            Some(reason) if self.awaits_lane(peer) => return Err(lost(peer, reason.to_owned())),
            // A peer that left owes nothing, as long as nobody waits for it alone.
            Some(_) => return Ok(false),
            None => {}
        }
        let edge = Edge { peer, lane: StreamLane::PointToPoint };
        let lane = &mut self.lanes[peer as usize];
        let may_arrive = lane.is_sending() || self.matching.awaits(peer) || lane.is_receiving();
        if lane.is_sending() && links.open(&[edge])?.is_pending() || !may_arrive || !links.is_open(edge) {
            return Ok(false);
        }
        let mut moved = match lane.flush(links.link(edge)) {
            Ok(moved) => moved,
            Err(reason) => {
                lane.set_broken(reason);
                return Ok(true);
            }
        };
        loop {
            let matching = &mut self.matching;
            let event = self.lanes[peer as usize].receive(links.link(edge), |message| {
                matching.match_receive(peer, message).map(|receive| sink(receive, peer, message))
            });
            match event {
                Ok(Event::Nothing) => return Ok(moved),
                Ok(Event::Moved) => {}
                Ok(Event::Arrived(arrived)) => match self.matching.match_receive(peer, arrived.message()) {
                    Some(receive) => self.deliver_arrived(peer, arrived, receive),
                    None => self.matching.keep(peer, arrived),
                },
                Err(reason) => {
                    self.lanes[peer as usize].set_broken(reason);
                    return Ok(true);
                }
            }
            moved = true;
        }
    }

    /// Whether an operation cannot end without this peer; a credit that it will not see does not count.
    fn awaits_lane(&self, peer: u32) -> bool {
        self.lanes[peer as usize].operations().next().is_some() || self.matching.awaits_only(peer)
    }

    fn check_deadlines(&mut self, now: Instant) -> Result<()> {
        let overdue = |operation: &&Operation| now >= operation.deadline;
        let mut operations = self.lanes.iter().flat_map(Lane::operations).chain(self.matching.receives());
        let Some(late) = operations.find(overdue) else { return Ok(()) };
        let (rank, status) = match (late.call.descriptor.collective, late.call.descriptor.peer) {
            (Collective::Send, Some(Peer::Rank(rank))) => (rank, "has not received"),
            (_, Some(Peer::Rank(rank))) => (rank, "has not sent"),
            (_, Some(Peer::Any) | None) => (self.rank, "waits for any rank, and none has sent"),
        };
        let not_arrived = vec![Awaited { rank, status: status.to_owned() }];
        let waited = now.saturating_duration_since(late.started);
        Err(Error::Timeout { call: Box::new(late.info()), waited, not_arrived })
    }

    /// What an idle holder of the baton waits for on behalf of the mail.
    pub(crate) fn pause<L: Links>(&mut self, links: &mut L, pause: &mut Pause) {
        for peer in 0..self.lanes.len() as u32 {
            let edge = Edge { peer, lane: StreamLane::PointToPoint };
            let lane = &self.lanes[peer as usize];
            let readable = lane.is_sending() || lane.is_receiving() || self.matching.awaits(peer);
            let writable = lane.wants_to_write();
            if peer != self.rank && (readable || writable) && lane.broken().is_none() && links.is_open(edge) {
                pause.interest.push(Interest { edge, readable, writable });
            }
        }
        let operations = self.lanes.iter().flat_map(Lane::operations).chain(self.matching.receives());
        for deadline in operations.map(|operation| operation.deadline) {
            pause.deadline = Some(pause.deadline.map_or(deadline, |earlier| earlier.min(deadline)));
        }
    }

    /// Ends every operation with `error`.
    pub(crate) fn fail(&mut self, error: &Error) {
        let lanes = self.lanes.iter_mut().flat_map(Lane::drain);
        lanes.chain(self.matching.drain()).for_each(|operation| operation.fail(error.clone()));
        for (job, call, _) in self.posted.drain(..) {
            job.finish(Err(error.clone()), call.buffers);
        }
    }
}

/// Where the bytes of a matched message go.
pub(crate) enum Sink {
    /// Into this receive.
    Receive(Box<Operation>),
    /// Nowhere: the receive has been refused the message.
    Drain,
}

/// The receive as the sink of a message, or its refusal.
fn sink(receive: Operation, source: u32, message: &frame::Message) -> Sink {
    match refusal(&receive, source, message) {
        None => Sink::Receive(Box::new(receive)),
        Some(error) => {
            receive.fail(error);
            Sink::Drain
        }
    }
}

/// Why a receive cannot take a message that matches it by source and tag.
fn refusal(receive: &Operation, source: u32, message: &frame::Message) -> Option<Error> {
    let ours = receive.call.descriptor;
    let room_bytes = ours.count * ours.dtype.bytes() as u64;
    if ours.dtype != message.dtype {
        let problem = format!("{}, but rank {source} sent {}", ours.dtype, message.dtype);
        return Some(Error::invalid("dtype", problem));
    }
    (message.bytes > room_bytes).then_some(Error::Truncated {
        source_rank: source,
        tag: message.tag,
        sent_bytes: message.bytes,
        room_bytes,
    })
}

fn lost(peer: u32, reason: String) -> Error {
    Error::PeerLost {
        culprits: vec![peer],
        call: None,
        noticed_by: 0,
        certainty: Certainty::Confirmed,
        reason,
    }
}
