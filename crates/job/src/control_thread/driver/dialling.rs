//! Connections that are wanted and not there yet: when they are dialled, and when they are given up.

use std::time::{Duration, Instant};

use unisono_communicator::{Certainty, Error};
use unisono_control::Presence;
use unisono_control::handshake::{Hello, Purpose, Refusal};
use unisono_control::local_communicator::Failure;
use unisono_control::slots::Slot;
use unisono_control::wire::ConnectionRole;

use super::super::tasks::{DialFailure, Dialler};
use super::Driver;

/// Pauses between attempts to reach a rank.
const DIAL_PAUSE_MIN: Duration = Duration::from_millis(5);
const DIAL_PAUSE_MAX: Duration = Duration::from_millis(500);

/// A connection that is wanted and not there yet.
pub(super) struct Wanted {
    until: Instant,
    pause: Duration,
    /// How the connection before it ended, if the other side would have said goodbye before it left.
    ended: Option<String>,
    /// Since when no process has listened at that address.
    absent_since: Option<Instant>,
    /// Since when this rank itself has not been able to connect.
    unable_since: Option<Instant>,
}

impl Wanted {
    /// Whether there was one before, which has been read to its end.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }
}

/// Whether a connection for this may be a Unix socket. A second one for collectives is wanted where the first one is
/// TCP.
pub(super) fn may_lie_within_host(role: ConnectionRole) -> bool {
    match role {
        ConnectionRole::First | ConnectionRole::PointToPoint => true,
        ConnectionRole::Second | ConnectionRole::Control => false,
    }
}

impl Driver {
    /// Starts to dial a connection that is wanted, unless it is on its way; `ended` says how the connection before it
    /// ended, if anything has ever come from the other side.
    pub(super) fn want(&mut self, slot: Slot, ended: Option<String>) {
        // A rank that has left may have made the connection before, and sent everything that it had to send.
        if self.control.plane.presence(slot.peer) != Presence::Live && !self.slots.is_taken(slot) {
            return self.fail(slot, Failure::Gone(Certainty::Confirmed, "it has left the job".to_owned()));
        }
        let until = Instant::now() + self.settings.dial_timeout;
        // A dial may be accepted just before a dying process closes its listener; the next one then tells.
        let pause = if ended.is_some() { Duration::ZERO } else { DIAL_PAUSE_MIN };
        self.wanted.insert(slot, Wanted { until, pause, ended, absent_since: None, unable_since: None });
        if !self.slots.is_taken(slot) {
            self.dial(slot, Duration::ZERO);
        }
    }

    fn dial(&mut self, slot: Slot, pause: Duration) {
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
            timeout: self.attempt_timeout(slot),
        };
        let address = self.identity.addresses[slot.peer.index()];
        self.tasks.spawn(dialler.dial(slot, address, hello, pause));
    }

    /// How long any part of making a connection may take. A rank whose control connection is made again is silent
    /// meanwhile, and so is a rank that is probed: a lost packet must not use up the detector's patience.
    pub(super) fn attempt_timeout(&self, slot: Slot) -> Duration {
        let (plane, patience) = (&self.control.plane, self.settings.intervals.suspect);
        match slot.role {
            ConnectionRole::Control if plane.has_heard(slot.peer) => patience / 4,
            // The other side may never have been reached, and be busy.
            ConnectionRole::Control if plane.is_probed(slot.peer) => patience / 2,
            ConnectionRole::Control
            | ConnectionRole::First
            | ConnectionRole::Second
            | ConnectionRole::PointToPoint => self.settings.handshake_timeout,
        }
    }

    pub(super) fn on_dial_failed(&mut self, slot: Slot, failure: DialFailure) {
        match failure {
            DialFailure::Transient(problem) => self.retry(slot, problem),
            DialFailure::Gone(problem) => self.on_absent(slot, problem),
            DialFailure::Own(error) => self.on_own_failure(slot, error),
            // Every rank has proven that it knows the secret when it joined: a byte was changed on its way.
            DialFailure::Refused(refusal @ (Refusal::Secret | Refusal::Protocol))
                if slot.role == ConnectionRole::Control =>
            {
                self.retry(slot, refusal.to_string());
            }
            DialFailure::Refused(refusal) => self.fail(slot, Failure::Error(refusal.into())),
        }
    }

    /// No process listens there. A rank from which something has come would have said goodbye. Any other rank may have
    /// left, and its goodbye may still be on its way, so this rank waits for it as long as the detector would. If the
    /// rank has died, the ranks that were connected to it report that sooner.
    fn on_absent(&mut self, slot: Slot, problem: String) {
        let Some(wanted) = self.wanted.get_mut(&slot) else { return };
        if let Some(ended) = wanted.ended.clone() {
            return self.fail(slot, Failure::Gone(Certainty::Confirmed, format!("{ended}; {problem}")));
        }
        let since = *wanted.absent_since.get_or_insert_with(Instant::now);
        let left = self.settings.intervals.suspect.saturating_sub(since.elapsed());
        if left.is_zero() {
            self.fail(slot, Failure::Gone(Certainty::Confirmed, problem));
        } else {
            // The last attempt is at the end of that time, not a doubled pause later.
            wanted.pause = wanted.pause.min(left);
            self.retry(slot, problem);
        }
    }

    /// This rank cannot connect. No descriptor may be left: unauthenticated connections hold some until their handshake
    /// times out. A trouble that lasts longer fails this rank's call, and is never taken for the death of the other
    /// rank. Control connections wait until it is over, unless a caller that begins waits for them.
    fn on_own_failure(&mut self, slot: Slot, error: Error) {
        let now = Instant::now();
        let Some(wanted) = self.wanted.get_mut(&slot) else { return };
        wanted.until = now + self.settings.dial_timeout;
        let since = *wanted.unable_since.get_or_insert(now);
        if slot.role == ConnectionRole::Control {
            let patience = self.settings.handshake_timeout;
            self.control.fall_short(&error, (since, patience), now);
        }
        if slot.role != ConnectionRole::Control && now - since >= self.settings.handshake_timeout {
            self.fail(slot, Failure::Error(error));
        } else {
            self.retry(slot, error.to_string());
        }
    }

    /// Dials a wanted connection again, until its time is up or the other side has left.
    pub(super) fn retry(&mut self, slot: Slot, problem: String) {
        if self.slots.is_taken(slot) {
            return;
        }
        if self.control.plane.presence(slot.peer) != Presence::Live {
            return self.fail(slot, Failure::Gone(Certainty::Confirmed, "it has left the job".to_owned()));
        }
        let Some(wanted) = self.wanted.get_mut(&slot) else { return };
        if Instant::now() >= wanted.until {
            return self.fail(slot, Failure::Gone(Certainty::Suspected, problem));
        }
        let pause = wanted.pause;
        wanted.pause = (pause * 2).clamp(DIAL_PAUSE_MIN, DIAL_PAUSE_MAX);
        self.dial(slot, pause);
    }

    /// Gives up a connection that is still wanted and not there.
    pub(super) fn fail(&mut self, slot: Slot, failure: Failure) {
        if self.slots.is_taken(slot) {
            return;
        }
        self.wanted.remove(&slot);
        if slot.role != ConnectionRole::Control {
            return self.control.communicators.not_connected(slot, failure);
        }
        let (certainty, reason) = match failure {
            Failure::Gone(certainty, reason) => (certainty, reason),
            Failure::Error(error) => (Certainty::Confirmed, error.to_string()),
        };
        self.control.plane.on_disconnected(slot.peer, certainty, reason, Instant::now());
    }
}
