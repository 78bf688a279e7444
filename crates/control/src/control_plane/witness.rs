//! The ways in which a rank concludes that other ranks on its host are gone. A rank on another host that reports an end
//! may only have been separated from this host by the network; see [`crate::hosts`].

use std::time::{Duration, Instant};

use unisono_communicator::JobRank;

use super::{ControlPlane, Effect};
use crate::connections::ConnectionStep;
use crate::plane::Presence;
use crate::slots::Slot;

impl ControlPlane {
    /// The process of a rank on this host has ended. Its last messages count first: where its control connection is
    /// being read, the end of that connection decides. Where there is none, this rank waits for the goodbye that others
    /// may have read.
    pub fn on_process_ended(&mut self, peer: JobRank, reason: String, now: Instant) {
        let was_read = self.dials.follows_another(Slot::control(peer));
        let is_lost = self.plane.presence(peer) == Presence::Lost;
        let is_reading = self.connections.opened(peer).is_some();
        let is_decided = (was_read || is_lost) && !is_reading;
        let grace = if is_decided { Duration::ZERO } else { self.dials.patience() };
        self.process_ends.note(peer, reason, now + grace);
        self.judge_ended(now);
    }

    /// No goodbye of a rank can come any more: if its process has ended, it is gone.
    pub(super) fn decide(&mut self, peer: JobRank, now: Instant) {
        if self.process_ends.decide(peer, now) {
            self.judge_ended(now);
        }
    }

    /// Publishes the loss of the ranks whose process has ended and whose goodbye has not come in time.
    pub(super) fn judge_ended(&mut self, now: Instant) {
        for (peer, reason) in self.process_ends.take_due(now) {
            self.plane.on_process_gone(peer, reason, now);
        }
    }

    /// A rank counts as lost: no connection to it is needed. If it is on this host and nothing proves yet that it is
    /// gone, this rank finds out.
    pub(super) fn on_lost(&mut self, peer: JobRank, now: Instant) {
        if peer == self.plane.rank() {
            // A rank that counts as lost itself makes no new connections.
            return self.dials.clear();
        }
        self.dials.remove_rank(peer);
        // The news of its loss was the last message to that rank. More would pile up, since it may not read.
        let number = self.connections.close(peer);
        let close = ConnectionStep::Close;
        number.into_iter().for_each(|number| self.push_step(Slot::control(peer), number, close));
        if self.plane.needs_proof(peer) {
            self.decide(peer, now);
            self.effects.push(Effect::FindAbsent(peer));
        }
    }
}
