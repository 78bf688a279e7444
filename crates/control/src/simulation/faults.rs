//! The faults of a simulated job: ranks die or stop, connections end, the network separates hosts.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use unisono_communicator::JobRank;

use super::connections::{ConnectionEvent, SideIndex, SimulatedConnection};
use super::{MS, SimulatedEvent, Simulation};
use crate::wire::{Message, encode};

/// The kind of a cut between two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Cut {
    /// Nothing passes.
    Silence,
    /// A device between the sides answers in the place of the other side: it resets connections, and refuses dials.
    Resets,
}

impl Simulation {
    /// When a message between two ranks gets through a cut, if there is a cut between them.
    pub(super) fn passes_at(&self, from: u32, to: u32) -> Instant {
        self.cut_between(from, to).map_or(self.now, |(until, _)| until.max(self.now))
    }

    /// Whether a dial is refused, by a cut or because nobody listens.
    pub(super) fn is_refused(&self, from: u32, to: u32) -> bool {
        let is_cut = self.cut_between(from, to).is_some_and(|cut| cut.0 > self.now && cut.1 == Cut::Resets);
        is_cut || !self.is_alive(to)
    }

    fn cut_between(&self, from: u32, to: u32) -> Option<(Instant, Cut)> {
        let (side, until, cut) = self.cut.as_ref()?;
        (side.contains(&from) != side.contains(&to)).then_some((*until, *cut))
    }

    /// A rank dies; all that it has sent arrives.
    pub(in super::super) fn kill(&mut self, rank: u32) {
        self.nodes[rank as usize] = None;
        for place in self.sides_of(rank) {
            self.close(place);
        }
        for peer in (0..self.size()).filter(|&peer| peer != rank) {
            self.open.remove(&(rank, peer));
            if self.are_on_one_host(rank, peer) {
                self.find_absent(peer, rank);
            }
        }
    }

    pub(super) fn are_on_one_host(&self, one: u32, other: u32) -> bool {
        self.hosts.are_same(JobRank::new(one), JobRank::new(other))
    }

    /// A rank finds out whether the process of another one on its host is gone.
    pub(super) fn find_absent(&mut self, rank: u32, lost: u32) {
        if lost < self.size() && !self.is_alive(lost) {
            let delay = MS * self.random.below(3) as u32;
            self.push(rank, delay, SimulatedEvent::ProcessEnded(lost));
        }
    }

    /// A rank dies. On every connection a random part of its latest messages still arrives.
    pub(in super::super) fn crash(&mut self, rank: u32) {
        for (connection, side) in self.sides_of(rank) {
            self.lose_tail((connection, 1 - side));
        }
        self.kill(rank);
    }

    /// A random part of the events that are on their way to one side of a connection still comes.
    fn lose_tail(&mut self, place: SideIndex) {
        let until = self.now + MS * self.random.below(3) as u32;
        self.queue.retain(|(at, ..), (_, event)| {
            let is_of_it = match event {
                SimulatedEvent::Connection(_, ConnectionEvent::Expired) => false,
                SimulatedEvent::Connection(at, _) => *at == place,
                SimulatedEvent::Dial(..)
                | SimulatedEvent::DialFailed(..)
                | SimulatedEvent::ProcessEnded(_)
                | SimulatedEvent::Tick
                | SimulatedEvent::Outside(_) => false,
            };
            !is_of_it || *at <= until
        });
    }

    /// The control connection between two ranks ends on its way.
    pub(in super::super) fn break_link(&mut self, (low, high): (u32, u32)) {
        let places = [(low, high), (high, low)].map(|pair| self.open.get(&pair).copied());
        for (connection, _) in places.into_iter().flatten() {
            self.break_connection(connection);
        }
    }

    /// A connection ends on its way. A random part of the messages under way still arrives.
    fn break_connection(&mut self, connection: usize) {
        if self.connections[connection].can_break() {
            for side in 0..2 {
                self.lose_tail((connection, side));
                self.deliver((connection, side), ConnectionEvent::Ended);
            }
            self.connections[connection].is_broken = true;
        }
    }

    /// One of the control connections ends on its way, in its handshake or later.
    pub(super) fn break_one(&mut self, number: u64) {
        let can_break = |connection: &SimulatedConnection| connection.is_control() && connection.can_break();
        let all: Vec<usize> =
            (0..self.connections.len()).filter(|&index| can_break(&self.connections[index])).collect();
        let chosen = number.checked_rem(all.len() as u64).map(|index| all[index as usize]);
        chosen.into_iter().for_each(|connection| self.break_connection(connection));
    }

    /// The message of this number, of all messages from now on, arrives with this bit changed.
    pub(in super::super) fn change_message(&mut self, number: u64, bit: u64) {
        self.flips.insert(self.sent + 1 + number, bit);
    }

    /// The number of messages that were to change and have not been sent.
    pub(in super::super) fn unchanged(&self) -> usize {
        self.flips.len()
    }

    /// The part of a message that arrives.
    pub(super) fn pass(&mut self, message: Message) -> ConnectionEvent {
        self.sent += 1;
        let Some(bit) = self.flips.remove(&self.sent) else {
            return ConnectionEvent::Message(Box::new(message));
        };
        let mut bytes = Vec::new();
        encode(&message, &mut bytes);
        let bit = bit as usize % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        ConnectionEvent::Changed(bytes)
    }

    /// A rank does nothing for a while, at least until the end of an earlier stop: events that wait for it keep their
    /// order.
    pub(in super::super) fn stop(&mut self, rank: u32, span: Duration) {
        let until = self.now + span;
        let entry = self.stopped.entry(rank).or_insert(until);
        *entry = until.max(*entry);
    }

    /// Nothing passes between these ranks and the others for a while. Messages under way arrive, or only a part of
    /// them where connections are reset.
    pub(in super::super) fn cut_off(&mut self, side: BTreeSet<u32>, span: Duration, cut: Cut) {
        let crosses = |one: &u32, other: &u32| side.contains(one) != side.contains(other);
        for connection in 0..self.connections.len() {
            let [one, other] = self.connections[connection].ranks();
            if cut == Cut::Resets && crosses(&one, &other) {
                self.break_connection(connection);
            }
        }
        self.cut = Some((side, self.now + span, cut));
    }
}
