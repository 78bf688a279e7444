//! Dials, verdicts and acknowledgements over sockets. [`unisono_control`] says which connections are wanted and kept,
//! how long they may take, and whether a failure ends them.

use std::time::{Duration, Instant};

use unisono_communicator::JobRank;
use unisono_control::handshake::{Hello, Purpose, Verdict};
use unisono_control::slots::Slot;
use unisono_control::wire::{CommunicatorKey, ConnectionRole};
use unisono_control::{ConnectionNumber, ConnectionStep};

use super::super::tasks::{Dialler, await_verdict, keep};
use super::Driver;
use crate::connecting::{Authenticated, Stream};

/// Whether a connection for this may be a Unix socket. A second one for collectives is wanted where the first one is
/// TCP.
fn may_lie_within_host(role: ConnectionRole) -> bool {
    match role {
        ConnectionRole::First | ConnectionRole::PointToPoint => true,
        ConnectionRole::Second | ConnectionRole::Control => false,
    }
}

impl Driver {
    pub(super) fn dial(&mut self, slot: Slot, pause: Duration, timeout: Duration) {
        let is_control = slot.role == ConnectionRole::Control;
        let hello = Hello {
            purpose: if is_control { Purpose::Control } else { Purpose::Data },
            job: self.identity.job,
            communicator: slot.key.id,
            epoch: slot.key.epoch,
            lane: slot.role.code(),
            world_size: self.identity.size(),
            from: self.identity.rank.get(),
            to: slot.peer.get(),
        };
        let may_lie_within_host = self.settings.rings.is_some()
            && may_lie_within_host(slot.role)
            && self.identity.is_here(slot.peer);
        let dialler = Dialler {
            secret: self.identity.secret.clone(),
            within_host: may_lie_within_host.then(|| self.identity.local_rank(slot.peer)),
            socket_options: self.settings.socket_options,
            timeout,
        };
        let address = self.identity.addresses[slot.peer.index()];
        self.tasks.spawn(dialler.dial(slot, address, hello, pause));
    }

    pub(super) fn on_accepted(&mut self, accepted: Authenticated) {
        let Authenticated { stream, hello } = accepted;
        let Some(role) = ConnectionRole::from_code(hello.lane) else { return };
        let key = CommunicatorKey { id: hello.communicator, epoch: hello.epoch };
        let is_control = role == ConnectionRole::Control;
        let is_placed = stream.is_tcp() || may_lie_within_host(role);
        if is_control != (hello.purpose == Purpose::Control) || !is_placed {
            return;
        }
        let peer = JobRank::new(hello.from);
        let slot = if is_control { Slot::control(peer) } else { Slot { key, role, peer } };
        let number = self.control.on_accepted(slot, Instant::now());
        self.hold(number, stream);
    }

    /// Keeps a stream under its number. Without one it is closed.
    pub(super) fn hold(&mut self, number: Option<ConnectionNumber>, stream: Stream) {
        if let Some(number) = number {
            self.streams.insert(number, stream);
        }
    }

    /// Takes the next step of a connection.
    pub(super) fn on_step(&mut self, slot: Slot, number: ConnectionNumber, step: ConnectionStep) {
        let stream = self.streams.remove(&number);
        let rings = self.settings.rings.clone();
        match (step, stream) {
            (ConnectionStep::Keep(timeout), Some(stream)) => {
                let task = self.tasks.spawn(keep(number, (stream, rings), timeout));
                self.waiting.insert(number, task);
            }
            (ConnectionStep::AwaitVerdict(timeout), Some(stream)) => {
                let task = self.tasks.spawn(await_verdict(number, (stream, rings), timeout));
                self.waiting.insert(number, task);
            }
            (ConnectionStep::Use, Some(stream)) => self.deliver(slot, number, stream),
            // A new connection has room for a verdict. If it had none, closing it would tell the other side the same.
            (ConnectionStep::Drop, Some(stream)) => drop(stream.try_write(&Verdict::Drop.encode())),
            (ConnectionStep::Close, None) => {
                self.waiting.remove(&number).into_iter().for_each(|task| task.abort());
                let in_use = self.control_connections.get(&slot.peer).map(|connection| connection.number);
                if in_use == Some(number) {
                    self.control_connections.remove(&slot.peer);
                }
            }
            (ConnectionStep::Close, Some(_)) | (_, None) => {}
        }
    }
}
