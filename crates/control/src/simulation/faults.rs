//! What goes wrong in a simulated job: ranks die or stop, connections end, the network separates hosts.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use unisono_communicator::{Certainty, JobRank};

use super::{INTERVALS, MS, SimulatedEvent, Simulation};
use crate::wire::{BadFrame, Message, encode, take_message};

/// How a cut separates two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Cut {
    /// Nothing passes.
    Silence,
    /// A device between the sides answers in the place of the other side: it resets connections, and refuses dials.
    Resets,
}

impl SimulatedEvent {
    /// From which rank it brings a message.
    fn brings_from(&self) -> Option<u32> {
        match self {
            SimulatedEvent::Message(from, _) | SimulatedEvent::Changed(from, _) => Some(*from),
            SimulatedEvent::Connected(_)
            | SimulatedEvent::Reset(_)
            | SimulatedEvent::Dial(..)
            | SimulatedEvent::DialFailed(..)
            | SimulatedEvent::ProcessEnded(_)
            | SimulatedEvent::Tick
            | SimulatedEvent::Outside(_) => None,
        }
    }
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
        let (cut, kept) = self.links.iter().partition(|link| link.0 == rank || link.1 == rank);
        self.links = kept;
        let cut: BTreeSet<(u32, u32)> = cut;
        for link in cut {
            let peer = if link.0 == rank { link.1 } else { link.0 };
            self.deliver(rank, peer, SimulatedEvent::Reset(rank));
            if self.are_on_one_host(rank, peer) && self.has_heard(peer, rank) {
                self.deliver(rank, peer, SimulatedEvent::ProcessEnded(rank));
            }
        }
        // A rank without a connection to the dead one waits for a goodbye that others may forward.
        for peer in (0..self.size()).filter(|&peer| peer != rank) {
            if self.are_on_one_host(rank, peer) {
                self.push(peer, INTERVALS.suspect, SimulatedEvent::ProcessEnded(rank));
            }
        }
    }

    fn are_on_one_host(&self, one: u32, other: u32) -> bool {
        self.hosts.are_same(JobRank::new(one), JobRank::new(other))
    }

    /// A rank learns that another one is lost: if it can, it finds out whether that is true.
    pub(super) fn witness(&mut self, rank: u32, lost: u32) {
        if self.are_on_one_host(rank, lost) && lost < self.size() && !self.is_alive(lost) {
            let delay = MS * self.random.below(3) as u32;
            self.push(rank, delay, SimulatedEvent::ProcessEnded(lost));
        }
    }

    /// A rank dies. On every connection a random part of what it has sent lately still arrives.
    pub(in super::super) fn crash(&mut self, rank: u32) {
        let until: Vec<Instant> =
            (0..self.size()).map(|_| self.now + MS * self.random.below(3) as u32).collect();
        self.queue.retain(|(at, ..), (to, event)| {
            let is_from_victim = event.brings_from() == Some(rank);
            !is_from_victim || *at <= until[*to as usize]
        });
        self.kill(rank);
    }

    /// A control connection ends on its way. A random part of the messages under way still arrives.
    pub(in super::super) fn break_connection(&mut self, (low, high): (u32, u32)) {
        if !self.links.remove(&(low, high)) {
            return;
        }
        let until = self.now + MS * self.random.below(3) as u32;
        self.queue.retain(|(at, ..), (to, event)| {
            let is_lost = match event {
                SimulatedEvent::Message(from, _)
                | SimulatedEvent::Changed(from, _)
                | SimulatedEvent::Connected(from) => {
                    (*from.min(to), *from.max(to)) == (low, high) && *at > until
                }
                SimulatedEvent::Reset(_)
                | SimulatedEvent::Dial(..)
                | SimulatedEvent::DialFailed(..)
                | SimulatedEvent::ProcessEnded(_)
                | SimulatedEvent::Tick
                | SimulatedEvent::Outside(_) => false,
            };
            !is_lost
        });
        for (from, to) in [(low, high), (high, low)] {
            *self.unnoticed.entry((to, from)).or_default() += 1;
            self.deliver(from, to, SimulatedEvent::Reset(from));
        }
    }

    /// The message of this number, of all messages from now on, arrives with this bit changed.
    pub(in super::super) fn change_message(&mut self, number: u64, bit: u64) {
        self.flips.insert(self.sent + 1 + number, bit);
    }

    /// How many messages that were to change have not been sent.
    pub(in super::super) fn unchanged(&self) -> usize {
        self.flips.len()
    }

    /// What arrives of a message.
    pub(super) fn pass(&mut self, from: u32, message: Message) -> SimulatedEvent {
        self.sent += 1;
        let Some(bit) = self.flips.remove(&self.sent) else {
            return SimulatedEvent::Message(from, Box::new(message));
        };
        let mut bytes = Vec::new();
        encode(&message, &mut bytes);
        let bit = bit as usize % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        SimulatedEvent::Changed(from, bytes)
    }

    /// A message that has changed comes to a rank, which does with it what the control thread does.
    pub(super) fn on_changed(&mut self, rank: u32, from: u32, mut bytes: Vec<u8>) {
        if self.unnoticed.get(&(rank, from)).is_some_and(|ends| *ends > 0) {
            // The end of this connection is on its way.
            return self.drop_unread(rank, from);
        }
        let Some(node) = &mut self.nodes[rank as usize] else { return };
        let (peer, at) = (JobRank::new(from), node.clock.shows(self.now));
        match take_message(&mut bytes) {
            Ok(Some(message)) => node.control.plane.on_message(peer, message, at),
            Err(BadFrame::Malformed(error)) => {
                node.control.plane.on_disconnected(peer, Certainty::Confirmed, error.to_string(), at);
            }
            Ok(None) | Err(BadFrame::Changed) => {
                node.control.on_ended(peer, None, at);
                self.close(rank, from);
            }
        }
    }

    /// A rank reads nothing more from a connection.
    fn drop_unread(&mut self, rank: u32, from: u32) {
        let is_end = |event: &SimulatedEvent| matches!(event, SimulatedEvent::Reset(other) if *other == from);
        let mut ends = self.queue.iter().filter(|(_, (to, event))| *to == rank && is_end(event));
        let end = ends.next().map(|(key, _)| *key);
        self.queue.retain(|key, (to, event)| {
            let is_of_it = *to == rank && event.brings_from() == Some(from);
            !(is_of_it && end.is_none_or(|end| *key < end))
        });
    }

    /// A rank closes its connection to another one.
    fn close(&mut self, rank: u32, from: u32) {
        self.drop_unread(rank, from);
        if self.links.remove(&(rank.min(from), rank.max(from))) {
            *self.unnoticed.entry((from, rank)).or_default() += 1;
            self.deliver(rank, from, SimulatedEvent::Reset(rank));
        } else {
            // The other rank has ended before. Its goodbye may have been among the bytes that nobody has read.
            self.queue.retain(|_, (to, event)| {
                let is_end = matches!(event,
                    SimulatedEvent::Reset(gone) | SimulatedEvent::ProcessEnded(gone) if *gone == from);
                *to != rank || !is_end
            });
            if self.are_on_one_host(rank, from) {
                self.push(rank, INTERVALS.suspect, SimulatedEvent::ProcessEnded(from));
            }
        }
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
        let crosses = |link: &&(u32, u32)| side.contains(&link.0) != side.contains(&link.1);
        let crossing: Vec<(u32, u32)> = self.links.iter().filter(crosses).copied().collect();
        match cut {
            Cut::Silence => {}
            Cut::Resets => crossing.into_iter().for_each(|link| self.break_connection(link)),
        }
        self.cut = Some((side, self.now + span, cut));
    }
}
