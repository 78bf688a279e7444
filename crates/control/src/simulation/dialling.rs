//! The dials of control connections in a simulated job.

use std::time::Duration;

use unisono_communicator::{Certainty, JobRank};

use super::{INTERVALS, MS, SimulatedEvent, Simulation};
use crate::Presence;

/// How long a rank dials a rank that counts it as lost.
const DIAL_PATIENCE: Duration = Duration::from_secs(1);

/// How long a rank dials a rank from which nothing comes, as over sockets.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);

impl Simulation {
    /// Dials a rank for a control connection.
    pub(super) fn connect(&mut self, rank: u32, peer: u32) {
        // If nothing has ever come from the rank, other ranks may still forward its goodbye.
        let wait = if self.has_heard(rank, peer) { MS } else { INTERVALS.suspect };
        self.connect_or_miss(rank, peer, wait);
    }

    /// Connects two ranks. After a refusal the other rank counts as absent, once `wait` has passed.
    pub(super) fn connect_or_miss(&mut self, rank: u32, peer: u32, wait: Duration) {
        let answers_at = self.passes_at(rank, peer).max(self.stopped_until(peer).unwrap_or(self.now));
        match &self.nodes[peer as usize] {
            _ if self.is_refused(rank, peer) => {
                self.push(rank, wait, SimulatedEvent::Absent(peer, Certainty::Confirmed))
            }
            None => {}
            _ if answers_at >= self.now + DIAL_TIMEOUT => {
                self.push(rank, DIAL_TIMEOUT, SimulatedEvent::Absent(peer, Certainty::Suspected));
            }
            // A rank that counts us as lost does not answer.
            Some(node) if node.control.plane.presence(JobRank::new(rank)) == Presence::Lost => {
                self.push(rank, DIAL_PATIENCE, SimulatedEvent::Absent(peer, Certainty::Suspected));
            }
            // If it is there, the other side has dialled it.
            Some(_) if self.links.insert((rank.min(peer), rank.max(peer))) => {
                // A stopped rank takes no part in a handshake.
                let earliest = self.last_arrival.entry((peer, rank)).or_insert(answers_at);
                *earliest = answers_at.max(*earliest);
                self.deliver(peer, rank, SimulatedEvent::Connected(peer));
                self.deliver(rank, peer, SimulatedEvent::Connected(rank));
            }
            Some(_) => {}
        }
    }
}
