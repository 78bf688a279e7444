//! The dials of control connections in a simulated job: what comes of an attempt. When to dial, and when to give up, is
//! the control plane's own to say.

use std::time::Duration;

use unisono_communicator::JobRank;

use super::{MS, SimulatedEvent, Simulation};
use crate::handshake::Refusal;
use crate::{DialFailure, Presence};

impl Simulation {
    /// Dials a rank for a control connection, each part of which may take `timeout`.
    pub(super) fn connect(&mut self, rank: u32, peer: u32, timeout: Duration) {
        let link = (rank.min(peer), rank.max(peer));
        if self.links.contains(&link) {
            return; // The other side has dialled.
        }
        let answers_at = self.passes_at(rank, peer).max(self.stopped_until(peer).unwrap_or(self.now));
        let counts_as_lost =
            |node: &super::SimulatedRank| node.control.plane.presence(JobRank::new(rank)) == Presence::Lost;
        let failed = if self.is_refused(rank, peer) {
            Some((MS, DialFailure::Absent("nobody listens there".to_owned())))
        } else if answers_at > self.now + timeout {
            Some((timeout, DialFailure::Transient("no answer".to_owned())))
        } else if self.nodes[peer as usize].as_ref().is_none_or(counts_as_lost) {
            Some((MS, DialFailure::Refused(Refusal::Lost { from: rank, to: peer })))
        } else {
            None
        };
        if let Some((after, failure)) = failed {
            return self.push(rank, after, SimulatedEvent::DialFailed(peer, failure));
        }
        self.links.insert(link);
        // A stopped rank takes no part in a handshake.
        let earliest = self.last_arrival.entry((peer, rank)).or_insert(answers_at);
        *earliest = answers_at.max(*earliest);
        self.deliver(peer, rank, SimulatedEvent::Connected(peer));
        self.deliver(rank, peer, SimulatedEvent::Connected(rank));
    }

    /// A dial has failed, unless the other side has dialled meanwhile.
    pub(super) fn on_dial_failed(&mut self, rank: u32, peer: u32, failure: DialFailure) {
        if !self.links.contains(&(rank.min(peer), rank.max(peer))) {
            let slot = crate::slots::Slot::control(JobRank::new(peer));
            self.with_control(rank, |control, now| control.on_dial_failed(slot, failure, now));
        }
    }
}
