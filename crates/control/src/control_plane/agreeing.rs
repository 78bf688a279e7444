//! Which connections the two ranks of a slot keep: connections whose two sides have proven their identity go in, then
//! verdicts and acknowledgements; the steps of each connection come out. The owner has the streams.

use std::time::Instant;

use unisono_communicator::{Error, JobRank};

use super::{ControlPlane, Effect};
use crate::connections::{ConnectionNumber, ConnectionStep, End};
use crate::dials::{DialFailure, Failure};
use crate::handshake::Verdict;
use crate::plane::Presence;
use crate::slots::{Placed, Slot};
use crate::wire::{CommunicatorKey, ConnectionRole, Message};

impl ControlPlane {
    /// Another rank has dialled this one, and both have proven their identity. Returns the number under which the owner
    /// keeps the stream; nothing when it is to be closed.
    pub fn on_accepted(&mut self, slot: Slot, now: Instant) -> Option<ConnectionNumber> {
        if slot.role == ConnectionRole::Control && self.connections.slots.decides(slot) {
            self.doubt(slot.peer, now);
        }
        self.on_proven(slot)
    }

    /// This rank has dialled another one, and both have proven their identity; as [`ControlPlane::on_accepted`].
    pub fn on_dialled(&mut self, slot: Slot) -> Option<ConnectionNumber> {
        // Nothing needs a connection of a communicator that is gone.
        let is_wanted = slot.role == ConnectionRole::Control || self.communicators.get(slot.key).is_some();
        if is_wanted { self.on_proven(slot) } else { None }
    }

    /// A rank dials although its control connection exists as far as this rank knows. Either both have dialled at once,
    /// or the other rank has seen the connection end and this one has not. A message on the connection makes its end
    /// visible here; without that, the next dial of the other rank counts as the end.
    fn doubt(&mut self, peer: JobRank, now: Instant) {
        match self.connections.doubt(peer) {
            None => {}
            Some(false) => self.effects.push(Effect::Send(peer, Message::Beat)),
            Some(true) => {
                self.end(peer, End::Closed("its control connection ended: it dials again".to_owned()), now)
            }
        }
    }

    fn on_proven(&mut self, slot: Slot) -> Option<ConnectionNumber> {
        if self.plane.presence(slot.peer) == Presence::Lost {
            // A rank that counts as lost gets no new connections.
            return None;
        }
        let is_control = slot.role == ConnectionRole::Control;
        if !is_control && self.communicators.get(slot.key).is_none() {
            self.on_unknown(slot);
        }
        let number = self.connections.count_one();
        if self.connections.slots.decides(slot) {
            self.place(slot, number, false);
        } else {
            self.connections.begin(number, slot);
            let timeout = is_control.then(|| self.attempt_timeout(slot));
            self.push_step(slot, number, ConnectionStep::AwaitVerdict(timeout));
        }
        Some(number)
    }

    /// The lower rank has decided on a connection; or has closed it before, or not answered in time.
    pub fn on_verdict(&mut self, number: ConnectionNumber, verdict: Result<Verdict, String>, now: Instant) {
        let Some(slot) = self.connections.finish(number) else { return };
        let is_control = slot.role == ConnectionRole::Control;
        match verdict {
            // This verdict is late: the lower rank has given the connection up, and a later one exists.
            Ok(Verdict::Keep)
                if is_control && self.connections.opened(slot.peer).is_some_and(|open| open > number) =>
            {
                self.push_step(slot, number, ConnectionStep::Close);
            }
            Ok(Verdict::Keep) => self.place(slot, number, true),
            // The other side may still have the connection that has ended here. It refuses no control connection: such
            // a word was changed on its way.
            Ok(Verdict::Drop | Verdict::Refuse(_)) if is_control => {
                self.on_dial_failed(
                    slot,
                    DialFailure::Transient("it has another connection".to_owned()),
                    now,
                );
            }
            // The connection that is kept instead is on its way.
            Ok(Verdict::Drop) => {}
            Ok(Verdict::Refuse(_)) if self.connections.slots.is_taken(slot) => {}
            Ok(Verdict::Refuse(problem)) => {
                self.fail(slot, Failure::Error(Error::Refused { problem }), now);
            }
            Err(problem) => self.on_dial_failed(slot, DialFailure::Transient(problem), now),
        }
    }

    /// The higher rank has acknowledged the connection that this one keeps; or has not, in its time.
    pub fn on_acknowledged(
        &mut self,
        number: ConnectionNumber,
        acknowledged: Result<(), String>,
        now: Instant,
    ) {
        let Some(slot) = self.connections.finish(number) else { return };
        match acknowledged {
            Ok(()) => self.use_connection(slot, number),
            Err(problem) => {
                self.connections.slots.release(slot);
                self.on_dial_failed(slot, DialFailure::Transient(problem), now);
            }
        }
    }

    fn place(&mut self, slot: Slot, number: ConnectionNumber, is_kept: bool) {
        let placed = self.connections.slots.place(slot, number, is_kept);
        self.on_placed(slot, number, placed);
    }

    fn on_placed(&mut self, slot: Slot, number: ConnectionNumber, placed: Placed) {
        match placed {
            Placed::Keep => {
                self.connections.begin(number, slot);
                self.push_step(slot, number, ConnectionStep::Keep(self.attempt_timeout(slot)));
            }
            Placed::Drop => self.push_step(slot, number, ConnectionStep::Drop),
            Placed::Deliver => self.use_connection(slot, number),
            Placed::Parked(oldest) => {
                oldest.into_iter().for_each(|number| self.push_step(slot, number, ConnectionStep::Close));
            }
            Placed::Close => self.push_step(slot, number, ConnectionStep::Close),
        }
    }

    fn use_connection(&mut self, slot: Slot, number: ConnectionNumber) {
        if slot.role == ConnectionRole::Control {
            let replaced = self.connections.open(slot.peer, number);
            replaced.into_iter().for_each(|number| self.push_step(slot, number, ConnectionStep::Close));
        }
        self.push_step(slot, number, ConnectionStep::Use);
    }

    pub(super) fn push_step(&mut self, slot: Slot, number: ConnectionNumber, step: ConnectionStep) {
        self.effects.push(Effect::Connection { slot, number, step });
    }

    /// A communicator exists from now on: the connections that have waited for it are placed.
    pub(super) fn place_parked(&mut self, key: CommunicatorKey) {
        for (slot, number, placed) in self.connections.slots.create(key) {
            self.on_placed(slot, number, placed);
        }
        let parked: Vec<Slot> = self.connections.slots.parked().map(|(slot, _)| slot).collect();
        parked.into_iter().for_each(|slot| self.on_unknown(slot));
    }

    /// A communicator is gone. The other side parks a connection of a communicator, also of a dropped communicator,
    /// until the connection ends.
    pub(super) fn close_connections_of(&mut self, key: CommunicatorKey) {
        self.dials.remove_communicator(key);
        for (number, slot) in self.connections.remove(key) {
            self.push_step(slot, number, ConnectionStep::Close);
        }
    }

    /// The connections that wait for their communicator. The owner looks from time to time whether they have ended.
    pub fn parked(&self) -> impl Iterator<Item = ConnectionNumber> {
        self.connections.slots.parked().map(|(_, number)| number)
    }

    /// A connection that waits for its communicator has ended, and the owner has closed it.
    pub fn unpark(&mut self, number: ConnectionNumber) {
        self.connections.slots.unpark(number);
    }

    /// A message has come on a control connection.
    pub fn on_message(&mut self, peer: JobRank, number: ConnectionNumber, message: Message, now: Instant) {
        self.connections.heard(peer, number);
        self.plane.on_message(peer, message, now);
    }

    /// A control connection has ended. If it was in use, it is made again, and a dial tells whether the rank is gone.
    pub fn on_ended(&mut self, peer: JobRank, number: ConnectionNumber, end: End, now: Instant) {
        // Another may have taken its place before its end was noticed.
        if self.connections.opened(peer) == Some(number) {
            self.end(peer, end, now);
        }
    }
}
