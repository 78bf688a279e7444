//! Dials. Which connections are wanted, how long, and what their failures mean is for [`unisono_control`] to say.

use std::time::{Duration, Instant};

use unisono_control::DialFailure;
use unisono_control::handshake::{Hello, Purpose};
use unisono_control::slots::Slot;
use unisono_control::wire::ConnectionRole;

use super::super::tasks::Dialler;
use super::Driver;

/// Whether a connection for this may be a Unix socket. A second one for collectives is wanted where the first one is
/// TCP.
pub(super) fn may_lie_within_host(role: ConnectionRole) -> bool {
    match role {
        ConnectionRole::First | ConnectionRole::PointToPoint => true,
        ConnectionRole::Second | ConnectionRole::Control => false,
    }
}

impl Driver {
    /// Dials, unless a connection of this slot is on its way.
    pub(super) fn dial(&mut self, slot: Slot, pause: Duration, timeout: Duration) {
        if self.slots.is_taken(slot) {
            return;
        }
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
        let dialler = Dialler {
            secret: self.identity.secret.clone(),
            within_host: self.settings.rings.is_some()
                && may_lie_within_host(slot.role)
                && self.identity.is_here(slot.peer),
            socket_options: self.settings.socket_options,
            timeout,
        };
        let address = self.identity.addresses[slot.peer.index()];
        self.tasks.spawn(dialler.dial(slot, address, hello, pause));
    }

    /// An attempt to make a connection has failed. That counts unless another attempt is on its way.
    pub(super) fn on_attempt_failed(&mut self, slot: Slot, failure: DialFailure) {
        if !self.slots.is_taken(slot) {
            self.control.on_dial_failed(slot, failure, Instant::now());
        }
    }
}
