//! Connections in a simulated job, from the dial to the end: handshakes, verdicts, acknowledgements and messages on
//! their way. Which connections are dialled, kept and given up is for [`ControlPlane`] to say, as over sockets.
//!
//! [`ControlPlane`]: crate::ControlPlane

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use unisono_communicator::JobRank;

use super::job::Outside;
use super::{MS, SimulatedEvent, Simulation};
use crate::connections::{ConnectionNumber, End};
use crate::handshake::{Refusal, Verdict};
use crate::slots::Slot;
use crate::wire::{CommunicatorKey, ConnectionRole, Message, take_message};
use crate::{ConnectionStep, DialFailure, Presence};

/// Longest delay between the two sides.
const DELAY_MAX_MS: u64 = 2;

/// A connection between two ranks.
pub(super) struct SimulatedConnection {
    key: CommunicatorKey,
    role: ConnectionRole,
    /// The side that has dialled is the first one.
    sides: [Side; 2],
    /// The network has ended it: nothing that is sent arrives.
    pub(super) is_broken: bool,
}

/// One side of a connection.
struct Side {
    rank: u32,
    state: State,
    number: Option<ConnectionNumber>,
    /// When the last event of this side comes: the order is kept.
    last_arrival: Instant,
}

/// The progress of one side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The handshake goes on.
    Greeting,
    /// The owner holds it.
    Held,
    AwaitsVerdict,
    AwaitsAcknowledgement,
    Used,
    /// This side sends nothing more, and still reads.
    Reading,
    Closed,
}

/// An event on one side of a connection.
#[derive(Clone, Debug)]
pub(super) enum ConnectionEvent {
    /// The other side has proven its identity.
    Proven,
    Verdict(Verdict),
    Acknowledged,
    Message(Box<Message>),
    /// The bytes of a message, one of which has changed on its way.
    Changed(Vec<u8>),
    /// The end of the stream.
    Ended,
    /// The time for the answer of the other side is over.
    Expired,
}

/// A connection, and one of its two sides.
pub(super) type SideIndex = (usize, usize);

impl SimulatedConnection {
    fn slot(&self, side: usize) -> Slot {
        Slot { key: self.key, role: self.role, peer: JobRank::new(self.sides[1 - side].rank) }
    }

    /// Its two ranks.
    pub(super) fn ranks(&self) -> [u32; 2] {
        [self.sides[0].rank, self.sides[1].rank]
    }

    /// Whether a fault of the network ends it: the streams of calls have faults of their own.
    pub(super) fn can_break(&self) -> bool {
        let is_open = self.sides.iter().any(|side| side.state != State::Closed);
        let is_stream =
            self.role != ConnectionRole::Control && self.sides.iter().any(|side| side.state == State::Used);
        is_open && !self.is_broken && !is_stream
    }

    /// Whether it carries control messages.
    pub(super) fn is_control(&self) -> bool {
        self.role == ConnectionRole::Control
    }
}

impl Simulation {
    /// Dials a rank. Each part of the attempt may take `timeout`.
    pub(super) fn dial(&mut self, rank: u32, slot: Slot, timeout: Duration) {
        let peer = slot.peer.get();
        // A stopped rank takes no part in a handshake.
        let answers_at = self.passes_at(rank, peer).max(self.stopped_until(peer).unwrap_or(self.now));
        let counts_as_lost = self.presence(peer, rank) == Presence::Lost;
        let failed = if self.is_refused(rank, peer) {
            Some((MS, DialFailure::Absent("nobody listens there".to_owned())))
        } else if answers_at > self.now + timeout {
            Some((timeout, DialFailure::Transient("no answer".to_owned())))
        } else if counts_as_lost {
            Some((MS, DialFailure::Refused(Refusal::Lost { from: rank, to: peer })))
        } else {
            None
        };
        if let Some((after, failure)) = failed {
            return self.push(rank, after, SimulatedEvent::DialFailed(slot, failure));
        }
        let side = |rank| Side { rank, state: State::Greeting, number: None, last_arrival: answers_at };
        let connection = self.connections.len();
        let (key, role) = (slot.key, slot.role);
        let sides = [side(rank), side(peer)];
        self.connections.push(SimulatedConnection { key, role, sides, is_broken: false });
        // The last word of the handshake is the dialler's.
        let replied = self.deliver((connection, 0), ConnectionEvent::Proven);
        self.connections[connection].sides[1].last_arrival = replied;
        self.deliver((connection, 1), ConnectionEvent::Proven);
    }

    /// Lets something come to one side of a connection: later than everything before, and after the end of a cut.
    /// Returns when it comes.
    pub(super) fn deliver(&mut self, (connection, side): SideIndex, event: ConnectionEvent) -> Instant {
        let [from, to] = [1 - side, side].map(|side| self.connections[connection].sides[side].rank);
        let earliest = self.passes_at(from, to) + MS * self.random.below(DELAY_MAX_MS + 1) as u32;
        let last = &mut self.connections[connection].sides[side].last_arrival;
        *last = earliest.max(*last);
        let at = *last;
        self.push(to, at - self.now, SimulatedEvent::Connection((connection, side), event));
        at
    }

    /// One side says something to the other one.
    fn say(&mut self, (connection, side): SideIndex, event: ConnectionEvent) {
        if !self.connections[connection].is_broken {
            self.deliver((connection, 1 - side), event);
        }
    }

    /// One side closes a connection. Whether it was open before.
    pub(super) fn close(&mut self, place: SideIndex) -> bool {
        let is_open = self.set_state(place, State::Closed) != State::Closed;
        if is_open {
            self.say(place, ConnectionEvent::Ended);
        }
        is_open
    }

    fn set_state(&mut self, (connection, side): SideIndex, state: State) -> State {
        std::mem::replace(&mut self.connections[connection].sides[side].state, state)
    }

    /// Sends a message on the control connection that is in use. Without one it is lost.
    pub(super) fn send(&mut self, from: u32, to: u32, message: Message) {
        if let Some(&place) = self.open.get(&(from, to)) {
            let event = self.pass(message);
            self.say(place, event);
        }
    }

    /// Takes the next step of a connection.
    pub(super) fn on_step(&mut self, rank: u32, number: ConnectionNumber, step: ConnectionStep) {
        let Some(&place) = self.numbers.get(&(rank, number)) else { return };
        let (connection, side) = place;
        let slot = self.connections[connection].slot(side);
        let is_control = self.connections[connection].is_control();
        let expires = |simulation: &mut Simulation, state, timeout| {
            simulation.set_state(place, state);
            let expired = SimulatedEvent::Connection(place, ConnectionEvent::Expired);
            simulation.push(rank, timeout, expired);
        };
        match step {
            ConnectionStep::Keep(timeout) => {
                self.say(place, ConnectionEvent::Verdict(Verdict::Keep));
                expires(self, State::AwaitsAcknowledgement, timeout);
            }
            ConnectionStep::AwaitVerdict(Some(timeout)) => expires(self, State::AwaitsVerdict, timeout),
            ConnectionStep::AwaitVerdict(None) => drop(self.set_state(place, State::AwaitsVerdict)),
            ConnectionStep::Use if is_control => {
                self.set_state(place, State::Used);
                self.open.insert((rank, slot.peer.get()), place);
                self.with_node(rank, |control, now| control.on_connected(slot, now));
            }
            ConnectionStep::Use => {
                self.set_state(place, State::Used);
                self.schedule(rank, Duration::ZERO, Outside::Use { slot, connection });
            }
            ConnectionStep::Drop => {
                self.say(place, ConnectionEvent::Verdict(Verdict::Drop));
                self.close(place);
            }
            ConnectionStep::Close => {
                let peer = slot.peer.get();
                if self.open.get(&(rank, peer)) == Some(&place) {
                    self.open.remove(&(rank, peer));
                }
                // Earlier messages go out, and this side still reads.
                if self.connections[connection].sides[side].state == State::Used && is_control {
                    self.set_state(place, State::Reading);
                    self.say(place, ConnectionEvent::Ended);
                } else {
                    self.close(place);
                }
            }
        }
    }

    /// Something happens on the side of a connection of a rank that lives.
    pub(super) fn on_connection_event(&mut self, rank: u32, place: SideIndex, event: ConnectionEvent) {
        let (connection, side) = place;
        let slot = self.connections[connection].slot(side);
        let Side { state, number, .. } = self.connections[connection].sides[side];
        match (state, number) {
            (State::Greeting, _) => self.on_greeting(rank, place, &event),
            (State::AwaitsVerdict, Some(number)) => {
                let verdict = match event {
                    ConnectionEvent::Verdict(verdict) => {
                        if verdict == Verdict::Keep {
                            self.say(place, ConnectionEvent::Acknowledged);
                        }
                        self.set_state(place, State::Held);
                        Ok(verdict)
                    }
                    other => {
                        self.close(place);
                        Err(format!("{other:?}"))
                    }
                };
                self.with_node(rank, |control, now| control.on_verdict(number, verdict, now));
            }
            (State::AwaitsAcknowledgement, Some(number)) => {
                let is_kept = matches!(event, ConnectionEvent::Acknowledged);
                let acknowledged = if is_kept { Ok(()) } else { Err(format!("{event:?}")) };
                if is_kept {
                    self.set_state(place, State::Held);
                } else {
                    self.close(place);
                }
                self.with_node(rank, |control, now| control.on_acknowledged(number, acknowledged, now));
            }
            (State::Used | State::Reading, Some(number)) if slot.role == ConnectionRole::Control => {
                self.on_control_event(rank, place, number, event);
            }
            (State::Used, Some(_)) if matches!(event, ConnectionEvent::Ended) => {
                self.set_state(place, State::Closed);
                self.schedule(rank, Duration::ZERO, Outside::Closed { connection });
            }
            // Nobody looks, until the tick finds that it has ended.
            (State::Held, Some(_)) if matches!(event, ConnectionEvent::Ended) => drop(self.close(place)),
            _ => {}
        }
    }

    /// The two sides of a connection have begun with the handshake.
    fn on_greeting(&mut self, rank: u32, place: SideIndex, event: &ConnectionEvent) {
        let (connection, side) = place;
        let slot = self.connections[connection].slot(side);
        if !matches!(event, ConnectionEvent::Proven) {
            self.close(place);
            if side == 0 {
                let failure = DialFailure::Transient(format!("{event:?}"));
                self.with_node(rank, |control, now| control.on_dial_failed(slot, failure, now));
            }
            return;
        }
        let mut number = None;
        self.with_node(rank, |control, now| {
            number = if side == 0 { control.on_dialled(slot, now) } else { control.on_accepted(slot, now) };
        });
        self.connections[connection].sides[side].number = number;
        match number {
            Some(number) => {
                self.set_state(place, State::Held);
                self.numbers.insert((rank, number), place);
            }
            None => drop(self.close(place)),
        }
    }

    fn on_control_event(
        &mut self,
        rank: u32,
        place: SideIndex,
        number: ConnectionNumber,
        event: ConnectionEvent,
    ) {
        let (connection, side) = place;
        let peer = self.connections[connection].slot(side).peer;
        let message = match event {
            ConnectionEvent::Message(message) => Ok(*message),
            ConnectionEvent::Changed(mut bytes) => match take_message(&mut bytes) {
                Ok(Some(message)) => Ok(message),
                Ok(None) => Err(End::Changed),
                Err(bad) => Err(bad.into()),
            },
            ConnectionEvent::Ended => {
                let has_seen_end = !self.is_alive(peer.get())
                    && self.are_on_one_host(rank, peer.get())
                    && self.random.below(2) == 0;
                let end = if has_seen_end { End::ProcessEnded } else { End::Closed };
                Err(end("its connection ended".to_owned()))
            }
            ConnectionEvent::Proven
            | ConnectionEvent::Verdict(_)
            | ConnectionEvent::Acknowledged
            | ConnectionEvent::Expired => return,
        };
        match message {
            Ok(message) => {
                if let Message::Answer { status, .. } = &message {
                    self.answers.push((rank, peer.get(), status.clone()));
                }
                self.with_node(rank, |control, now| control.on_message(peer, number, message, now));
            }
            Err(end) => {
                self.close(place);
                self.with_node(rank, |control, now| control.on_ended(peer, number, end, now));
            }
        }
    }

    /// Forgets the connections that wait for their communicator and have ended on the other side.
    pub(super) fn unpark(&mut self, rank: u32) {
        let Some(node) = &mut self.nodes[rank as usize] else { return };
        let parked: BTreeSet<ConnectionNumber> = node.control.parked().collect();
        let all = (rank, ConnectionNumber::default())..(rank + 1, ConnectionNumber::default());
        for (&(_, number), &(connection, side)) in self.numbers.range(all) {
            match self.connections[connection].sides[side].state {
                State::Closed if parked.contains(&number) => node.control.unpark(number),
                State::Held => assert!(parked.contains(&number), "rank {rank} has forgotten {number:?}"),
                State::Greeting | State::AwaitsVerdict | State::AwaitsAcknowledgement => {}
                State::Used | State::Reading | State::Closed => {}
            }
        }
    }

    /// The pairs of ranks of which one has a control connection to the other, the lower rank first.
    pub(in super::super) fn links(&self) -> BTreeSet<(u32, u32)> {
        self.open.keys().map(|&(rank, peer)| (rank.min(peer), rank.max(peer))).collect()
    }

    /// The sides of a rank that it has not closed, but for streams of calls that are in use.
    pub(super) fn sides_of(&self, rank: u32) -> Vec<SideIndex> {
        let mut places = Vec::new();
        for (index, connection) in self.connections.iter().enumerate() {
            let is_stream = |side: &Side| side.state == State::Used && !connection.is_control();
            let is_open = |side: &Side| side.rank == rank && side.state != State::Closed && !is_stream(side);
            let sides = connection.sides.iter().enumerate();
            places.extend(sides.filter(|(_, side)| is_open(side)).map(|(side, _)| (index, side)));
        }
        places
    }
}
