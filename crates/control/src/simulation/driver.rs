//! The driver of a control thread without sockets: it takes the commands of engines, and gives them streams.

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use unisono_communicator::JobRank;
use unisono_engine::Lane;

use super::MS;
use super::job::{CutLink, Job, Outside};
use super::pipe::Pipe;
use crate::slots::Slot;
use crate::wire::{CommunicatorKey, ConnectionRole};
use crate::{ControlPlane, Request};

/// The time that a rank that leaves waits for its first connections, as over sockets.
const CONNECTED_WAIT: Duration = Duration::from_secs(5);

/// The commands of an engine's thread to its control thread.
pub(in super::super) enum Command {
    Request(Request),
    /// [`Request::Revoke`]. The sender is dropped once it has been handled.
    Revoke(Request, Sender<Infallible>),
    /// A connection for data is wanted.
    Want(Slot),
    Leave,
}

/// Each lane has one stream here, although its data may go either way.
fn role_of(lane: Lane) -> ConnectionRole {
    match lane {
        Lane::Small => ConnectionRole::First,
        Lane::Large => ConnectionRole::Second,
        Lane::PointToPoint => ConnectionRole::PointToPoint,
    }
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
            Command::Want(slot) => {
                self.simulation.with_control(rank, |control, now| control.want(slot, now));
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
        self.connections.get(&(rank, key, peer, role_of(lane))).copied()
    }

    /// The engine's thread asks for the connection of a communicator to a rank of the job.
    pub(super) fn dial(&mut self, rank: u32, key: CommunicatorKey, peer: u32, lane: Lane) {
        let slot = Slot { key, role: role_of(lane), peer: JobRank::new(peer) };
        let pause = Duration::from_micros(50 + self.simulation.random.below(500));
        self.simulation.schedule(rank, pause, Outside::Command(Command::Want(slot)));
    }

    /// The control plane of a rank has a connection for data, which its engine gets: its outward stream, and the inward
    /// one. The first of the two sides makes both.
    pub(super) fn use_connection(&mut self, rank: u32, slot: Slot, connection: usize) {
        let Slot { key, role, peer } = slot;
        let peer = peer.get();
        let (low, high) = (rank.min(peer), rank.max(peer));
        let first = match self.streams.get(&connection) {
            Some(first) => *first,
            None => {
                let first = self.pipes.len();
                for ends in [(low, high), (high, low)] {
                    let mut pipe = Pipe::new(ends, self.simulation.now, &mut self.simulation.random);
                    let is_cut = |cut: &CutLink| (cut.from, cut.to) == ends && key.epoch == 0;
                    pipe.lost_after = self.cut_link.filter(is_cut).map(|cut| cut.after_bytes);
                    self.pipes.push(pipe);
                }
                self.streams.insert(connection, first);
                first
            }
        };
        let (outward, inward) = if rank < peer { (first, first + 1) } else { (first + 1, first) };
        self.connections.insert((rank, key, peer, role), (outward, inward));
        self.simulation.with_control(rank, |control, now| control.on_connected(slot, now));
        self.seats[rank as usize].woken.store(true, Ordering::Relaxed);
    }

    /// A connection was closed by the side that has not used it.
    pub(super) fn end_stream(&mut self, connection: usize) {
        if let Some(&first) = self.streams.get(&connection) {
            for pipe in &mut self.pipes[first..first + 2] {
                (pipe.is_refused, pipe.has_ended) = (true, true);
            }
        }
    }
}
