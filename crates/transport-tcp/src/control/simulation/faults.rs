//! What goes wrong in a simulated job: ranks die or stop, connections end, the network separates hosts.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use unisono_communicator::JobRank;

use super::{INTERVALS, MS, SimulatedEvent, Simulation};

/// How a cut separates two sides.
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
        self.queue.retain(|(at, _), (to, event)| {
            let is_from_victim = matches!(event, SimulatedEvent::Message(from, _) if *from == rank);
            !is_from_victim || *at <= until[*to as usize]
        });
        self.kill(rank);
    }

    /// A control connection ends on its way. A random part of what was under way still arrives.
    pub(in super::super) fn break_connection(&mut self, (low, high): (u32, u32)) {
        if !self.links.remove(&(low, high)) {
            return;
        }
        let until = self.now + MS * self.random.below(3) as u32;
        self.queue.retain(|(at, _), (to, event)| {
            let is_lost = match event {
                SimulatedEvent::Message(from, _) | SimulatedEvent::Connected(from) => {
                    (*from.min(to), *from.max(to)) == (low, high) && *at > until
                }
                SimulatedEvent::Reset(_)
                | SimulatedEvent::Absent(..)
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

    /// A rank does nothing for a while, at least until the end of an earlier stop: events that wait for it keep their
    /// order.
    pub(in super::super) fn stop(&mut self, rank: u32, span: Duration) {
        let until = self.now + span;
        let entry = self.stopped.entry(rank).or_insert(until);
        *entry = until.max(*entry);
    }

    /// Nothing passes between these ranks and the others for a while. What is under way arrives, or only a part of it
    /// where connections are reset.
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
