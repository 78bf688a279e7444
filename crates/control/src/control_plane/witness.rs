//! How a rank concludes that other ranks on its host are gone. A rank on another host that reports an end may only have
//! been separated from this host by the network; see [`crate::hosts`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use unisono_communicator::JobRank;

use super::{ControlPlane, Effect, Step};
use crate::plane::Presence;
use crate::slots::Slot;

/// The processes on this host that have ended, and whose ranks may have said goodbye.
pub(super) struct ProcessEnds {
    patience: Duration,
    ends: BTreeMap<JobRank, ProcessEnd>,
}

/// A rank's process has ended.
struct ProcessEnd {
    reason: String,
    /// Until when other ranks may still forward its goodbye.
    goodbye_by: Instant,
}

impl ProcessEnds {
    /// None has ended. A goodbye may take as long as the detector waits.
    pub(super) fn new(patience: Duration) -> ProcessEnds {
        ProcessEnds { patience, ends: BTreeMap::new() }
    }
}

impl ControlPlane {
    /// The process of a rank on this host has ended. What it has sent on its control connection counts first: where
    /// such a connection is being read, its end decides. Where there is none, this rank waits for the goodbye that
    /// others may have read.
    pub fn on_process_ended(&mut self, peer: JobRank, reason: String, now: Instant) {
        let was_read = self.dials.follows_another(Slot::control(peer));
        let is_lost = self.plane.presence(peer) == Presence::Lost;
        let is_reading = self.connections.opened(peer).is_some();
        let grace = if (was_read || is_lost) && !is_reading { Duration::ZERO } else { self.ends.patience };
        self.ends.ends.insert(peer, ProcessEnd { reason, goodbye_by: now + grace });
        self.judge_ended(now);
    }

    /// No goodbye of a rank can come any more: if its process has ended, it is gone.
    pub(super) fn decide(&mut self, peer: JobRank, now: Instant) {
        if let Some(end) = self.ends.ends.get_mut(&peer) {
            end.goodbye_by = now;
            self.judge_ended(now);
        }
    }

    /// Publishes the loss of the ranks whose process has ended and whose goodbye has not come in time.
    pub(super) fn judge_ended(&mut self, now: Instant) {
        let is_due = |end: &ProcessEnd| end.goodbye_by <= now;
        let due: Vec<JobRank> =
            self.ends.ends.iter().filter(|(_, end)| is_due(end)).map(|(peer, _)| *peer).collect();
        for peer in due {
            if let Some(end) = self.ends.ends.remove(&peer) {
                self.plane.on_process_gone(peer, end.reason, now);
            }
        }
    }

    /// A rank counts as lost: no connection to it is needed. If it is on this host and nothing proves yet that it is
    /// gone, this rank finds out.
    pub(super) fn on_lost(&mut self, peer: JobRank, now: Instant) {
        self.dials.remove_rank(peer);
        // The news of its loss was the last message to that rank. More would pile up, since it may not read.
        let number = self.connections.close(peer);
        number.into_iter().for_each(|number| self.push_step(Slot::control(peer), number, Step::Close));
        if self.plane.needs_proof(peer) {
            self.decide(peer, now);
            self.effects.push(Effect::FindAbsent(peer));
        }
    }
}
