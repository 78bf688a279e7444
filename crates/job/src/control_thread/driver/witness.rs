//! How this rank finds out that other ranks on its host have ended, or only wait for a processor. A rank on another
//! host that reports an end may only have been separated from this host by the network; see [`unisono_control::hosts`].

use std::time::{Duration, Instant};

use unisono_communicator::JobRank;
use unisono_control::Presence;

use super::super::command::THREAD_NAME;
use super::super::starvation::{Seen, state_of};
use super::super::tasks::{TaskResult, find_absent};
use super::Driver;

/// A rank's process has ended.
pub(super) struct ProcessEnd {
    reason: String,
    /// Until when other ranks may still forward its goodbye.
    goodbye_by: Instant,
}

impl Driver {
    /// Begins to watch the processes of this host.
    pub(super) fn watch_processes(&mut self) {
        for (peer, watch) in &self.watches {
            let (peer, watch, events) = (*peer, watch.clone(), self.events.clone());
            // The loop may have ended before.
            tokio::spawn(async move {
                events.send(TaskResult::ProcessEnded { peer, reason: watch.ended().await }).await
            });
        }
    }

    /// Looks at the silent ranks of this host: excuses a rank that waits for a processor, and notes why another stands
    /// still. Only ranks of the same host can see that.
    pub(super) fn look_at_silent(&mut self, now: Instant) {
        for rank in self.control.plane.silent_neighbours(now) {
            let process = |rank: JobRank| self.identity.processes.get(rank.index());
            let Some((own, other)) = process(self.identity.rank).zip(process(rank)) else { continue };
            match state_of(THREAD_NAME, own, other) {
                Some(Seen::Starving) => self.control.plane.excuse(rank, now),
                Some(Seen::Stopped) => {
                    self.control.plane.note_seen(rank, "its process is stopped (as by SIGSTOP)")
                }
                Some(Seen::Traced) => {
                    self.control.plane.note_seen(rank, "a debugger has stopped its process")
                }
                None => {}
            }
        }
    }

    /// The process of a rank on this host has ended. What it has sent on its control connection counts first: where
    /// such a connection is being read, its end decides. Where there is none, this rank waits for the goodbye that
    /// others may have read.
    pub(super) fn on_process_ended(&mut self, peer: JobRank, reason: String, now: Instant) {
        let was_read = self.control.is_made_again(peer);
        let is_lost = self.control.plane.presence(peer) == Presence::Lost;
        let is_reading = self.control_connections.contains_key(&peer);
        let grace = if (was_read || is_lost) && !is_reading {
            Duration::ZERO
        } else {
            self.settings.intervals.suspect
        };
        self.ended.insert(peer, ProcessEnd { reason, goodbye_by: now + grace });
        self.judge_ended(now);
    }

    /// No goodbye of a rank can come any more: if its process has ended, it is gone.
    pub(super) fn decide(&mut self, peer: JobRank, now: Instant) {
        if let Some(end) = self.ended.get_mut(&peer) {
            end.goodbye_by = now;
            self.judge_ended(now);
        }
    }

    /// Publishes the loss of the ranks whose process has ended and whose goodbye has not come in time.
    pub(super) fn judge_ended(&mut self, now: Instant) {
        let due: Vec<JobRank> =
            self.ended.iter().filter(|(_, end)| end.goodbye_by <= now).map(|(peer, _)| *peer).collect();
        for peer in due {
            if let Some(end) = self.ended.remove(&peer) {
                self.control.plane.on_process_gone(peer, end.reason, now);
            }
        }
    }

    /// A rank of this host was reported as lost, and it is not yet proven that it is gone: this rank finds out.
    pub(super) fn witness(&mut self, peer: JobRank) {
        if !self.control.plane.needs_proof(peer) {
            return;
        }
        self.decide(peer, Instant::now());
        if !self.watches.contains_key(&peer) {
            let address = self.identity.addresses[peer.index()];
            let (options, patience) = (self.settings.socket_options, self.settings.intervals.suspect);
            let events = self.events.clone();
            tokio::spawn(async move {
                if let Some(reason) = find_absent(address, options, patience).await {
                    // The loop may have ended before.
                    let _ = events.send(TaskResult::ProcessEnded { peer, reason }).await;
                }
            });
        }
    }
}
