//! What the driver of a control thread does for its engine, without sockets: commands, and data connections that are
//! dialled until they are there. It takes the place of the job's driver, `slots.rs` and the handshake.

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use unisono_communicator::JobRank;
use unisono_engine::Lane;

use super::MS;
use super::job::{CutLink, Job, Outside};
use super::pipe::Pipe;
use crate::handshake::Refusal;
use crate::slots::Slot;
use crate::wire::{CommunicatorKey, ConnectionRole};
use crate::{ControlPlane, DialFailure, Presence, Request};

/// How long a rank that leaves waits for its first connections, as over sockets.
const CONNECTED_WAIT: Duration = Duration::from_secs(5);

/// What an engine's thread sends to its control thread.
pub(in super::super) enum Command {
    Request(Request),
    /// [`Request::Revoke`]. The sender is dropped once it has been handled.
    Revoke(Request, Sender<Infallible>),
    /// A connection for data is wanted.
    Want(Slot),
    Leave,
}

/// An attempt to make a connection for data.
#[derive(Clone, Copy)]
pub(in super::super) struct Dial {
    pub(super) slot: Slot,
    /// When the attempt is given up.
    pub(super) until: Instant,
}

/// Each lane has one stream here, whichever way its data goes.
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
                let is_taken = self.is_connected(rank, slot);
                self.simulation.with_control(rank, |control, now| control.want(slot, is_taken, now));
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

    /// The engine's thread asks for the connection of a communicator to a rank of the job.
    pub(super) fn dial(&mut self, rank: u32, key: CommunicatorKey, peer: u32, lane: Lane) {
        let slot = Slot { key, role: role_of(lane), peer: JobRank::new(peer) };
        let pause = Duration::from_micros(50 + self.simulation.random.below(500));
        self.simulation.schedule(rank, pause, Outside::Command(Command::Want(slot)));
    }

    fn is_connected(&self, rank: u32, Slot { key, role, peer }: Slot) -> bool {
        let lane = Lane::ALL.into_iter().find(|lane| role_of(*lane) == role);
        lane.is_some_and(|lane| self.connection(rank, key, peer.get(), lane).is_some())
    }

    pub(super) fn on_dial(&mut self, rank: u32, dial: Dial) {
        let Dial { slot, until } = dial;
        let (key, peer, now) = (slot.key, slot.peer.get(), self.simulation.now);
        if !self.simulation.has_member(rank, key) || self.is_connected(rank, slot) {
            return;
        }
        let failed = |job: &mut Job, failure: DialFailure| {
            job.simulation.with_control(rank, |control, now| control.on_dial_failed(slot, failure, now));
        };
        if self.simulation.is_refused(rank, peer) {
            return failed(self, DialFailure::Absent("nobody listens there".to_owned()));
        }
        // What the other side does with a dial, it does once the dial and the rank meet.
        let answers_at = self.simulation.passes_at(rank, peer);
        let answers_at = answers_at.max(self.simulation.stopped_until(peer).unwrap_or(now));
        if answers_at > now && now >= until {
            return failed(self, DialFailure::Transient("no answer".to_owned()));
        }
        if answers_at > now {
            return self.simulation.schedule(rank, answers_at.min(until) - now, Outside::Dial(dial));
        }
        if self.simulation.presence(peer, rank) == Presence::Lost {
            return failed(self, DialFailure::Refused(Refusal::Lost { from: rank, to: peer }));
        }
        if self.simulation.presence(rank, peer) != Presence::Live {
            return failed(self, DialFailure::Transient("it has closed the connection".to_owned()));
        }
        if self.simulation.has_member(peer, key) {
            return self.connect(rank, slot);
        }
        // It is parked until its communicator exists there.
        let pause = MS * (1 + self.simulation.random.below(10) as u32);
        self.simulation.schedule(rank, pause, Outside::Dial(Dial { slot, until: until.max(now + pause) }));
    }

    fn connect(&mut self, rank: u32, slot: Slot) {
        let Slot { key, role, peer } = slot;
        let peer = peer.get();
        let (low, high) = (rank.min(peer), rank.max(peer));
        let first = self.pipes.len();
        for ends in [(low, high), (high, low)] {
            let mut pipe = Pipe::new(ends, self.simulation.now, &mut self.simulation.random);
            let is_cut = |cut: &CutLink| (cut.from, cut.to) == ends && key.epoch == 0;
            pipe.lost_after = self.cut_link.filter(is_cut).map(|cut| cut.after_bytes);
            self.pipes.push(pipe);
        }
        self.connections.insert((key, low, high, role as usize), (first, first + 1));
        for (side, other) in [(rank, peer), (peer, rank)] {
            let slot = Slot { peer: JobRank::new(other), ..slot };
            self.simulation.with_control(side, |control, now| control.on_connected(slot, now));
            self.seats[side as usize].woken.store(true, Ordering::Relaxed);
        }
    }
}
