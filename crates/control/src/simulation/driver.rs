//! What the driver of a control thread does for its engine, without sockets: commands, and data connections that are
//! dialled until they are there. It takes the place of the job's driver, `slots.rs` and the handshake.

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use unisono_communicator::{Certainty, JobRank};
use unisono_engine::Lane;

use super::job::{CutLink, Job, Outside};
use super::pipe::Pipe;
use super::{INTERVALS, MS};
use crate::local_communicator::Failure;
use crate::slots::Slot;
use crate::wire::{CommunicatorKey, ConnectionRole};
use crate::{ControlPlane, Presence, Request};

/// How long a rank that leaves waits for its first connections, as over sockets.
const CONNECTED_WAIT: Duration = Duration::from_secs(5);

/// What an engine's thread sends to its control thread.
pub(in super::super) enum Command {
    Request(Request),
    /// [`Request::Revoke`]. The sender is dropped once it has been handled.
    Revoke(Request, Sender<Infallible>),
    Leave,
}

/// A connection to `peer` that is wanted.
#[derive(Clone, Copy)]
pub(in super::super) struct Dial {
    key: CommunicatorKey,
    peer: u32,
    lane: Lane,
    absent_since: Option<Instant>,
}

impl Job {
    /// A command has come to the control thread.
    pub(super) fn on_command(&mut self, rank: u32, command: Command) {
        match command {
            Command::Request(request) => self.simulation.request(rank, request),
            Command::Revoke(request, handed_over) => {
                self.simulation.request(rank, request);
                drop(handed_over);
            }
            Command::Leave => {
                self.simulation.with_plane(rank, |plane, _| plane.begin_to_leave());
                self.leave(rank, self.simulation.now + CONNECTED_WAIT);
            }
        }
    }

    /// A rank leaves its world, once its first connections exist or that takes too long: it closes its communicators,
    /// and says goodbye. Everything that it has sent arrives, and then the ends of its streams.
    pub(super) fn leave(&mut self, rank: u32, by: Instant) {
        if !self.simulation.is_connected(rank) && self.simulation.now < by {
            return self.simulation.schedule(rank, MS, Outside::Leave { by });
        }
        self.simulation.with_control(rank, ControlPlane::leave);
        for index in 0..self.pipes.len() {
            if self.pipes[index].from == rank {
                self.end(index);
            } else if self.pipes[index].to == rank {
                self.pipes[index].is_refused = true;
            }
        }
        self.simulation.kill(rank);
    }

    /// The two directions of a connection as `rank` sees them, outwards and inwards, if it exists.
    pub(super) fn connection(
        &self,
        rank: u32,
        key: CommunicatorKey,
        peer: u32,
        lane: Lane,
    ) -> Option<(usize, usize)> {
        let (up, down) = *self.connections.get(&(key, rank.min(peer), rank.max(peer), lane as usize))?;
        Some(if rank < peer { (up, down) } else { (down, up) })
    }

    /// Starts to dial the connection of a communicator to a rank of the job.
    pub(super) fn dial(&mut self, rank: u32, key: CommunicatorKey, peer: u32, lane: Lane) {
        let dial = Dial { key, peer, lane, absent_since: None };
        let pause = Duration::from_micros(50 + self.simulation.random.below(500));
        self.simulation.schedule(rank, pause, Outside::Dial(dial));
    }

    pub(super) fn on_dial(&mut self, rank: u32, dial: Dial) {
        let Dial { key, peer, lane, absent_since } = dial;
        if !self.simulation.has_member(rank, key) || self.connection(rank, key, peer, lane).is_some() {
            return;
        }
        let now = self.simulation.now;
        let gone = |job: &mut Job, reason: &str| {
            let slot = Slot { key, role: ConnectionRole::First, peer: JobRank::new(peer) };
            let failure = Failure::Gone(Certainty::Confirmed, reason.to_owned());
            job.simulation
                .with_control(rank, |control, _| control.communicators.not_connected(slot, failure));
        };
        if self.simulation.presence(rank, peer) != Presence::Live {
            return gone(self, "it has left the job");
        }
        let passes_at = self.simulation.passes_at(rank, peer);
        let is_refused = self.simulation.is_refused(rank, peer);
        let absent_since = is_refused.then(|| absent_since.unwrap_or(now));
        if absent_since.is_some_and(|since| now - since >= INTERVALS.suspect) {
            return gone(self, "nobody listens there");
        }
        // A rank that counts us as lost does not answer; a connection to a communicator that does not exist yet is
        // parked.
        let is_taken = passes_at == now
            && self.simulation.has_member(peer, key)
            && self.simulation.presence(peer, rank) == Presence::Live
            && self.simulation.stopped_until(peer).is_none();
        if is_taken {
            return self.connect(rank, dial);
        }
        // A dial whose packets are lost cannot be told from a slow one. A refused dial is repeated at once.
        let wait = if is_refused { Duration::ZERO } else { passes_at - now };
        let pause = wait + MS * (1 + self.simulation.random.below(10) as u32);
        self.simulation.schedule(rank, pause, Outside::Dial(Dial { absent_since, ..dial }));
    }

    fn connect(&mut self, rank: u32, Dial { key, peer, lane, .. }: Dial) {
        let (low, high) = (rank.min(peer), rank.max(peer));
        let first = self.pipes.len();
        for ends in [(low, high), (high, low)] {
            let mut pipe = Pipe::new(ends, self.simulation.now, &mut self.simulation.random);
            let is_cut = |cut: &CutLink| (cut.from, cut.to) == ends && key.epoch == 0;
            pipe.lost_after = self.cut_link.filter(is_cut).map(|cut| cut.after_bytes);
            self.pipes.push(pipe);
        }
        self.connections.insert((key, low, high, lane as usize), (first, first + 1));
        for side in [rank, peer] {
            self.seats[side as usize].woken.store(true, Ordering::Relaxed);
        }
    }
}
