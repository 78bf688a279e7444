//! The ways in which this rank finds out that processes of other ranks on its host have ended, or only wait for a
//! processor.

use std::time::Instant;

use unisono_communicator::JobRank;

use super::super::command::THREAD_NAME;
use super::super::starvation::{Seen, state_of};
use super::super::tasks::{TaskResult, find_absent};
use super::Driver;

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

    /// Finds out whether a rank of this host is gone that others have reported as lost.
    pub(super) fn find_absent(&mut self, peer: JobRank) {
        if self.watches.contains_key(&peer) {
            return; // Its end shows by itself.
        }
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
