//! The connections that the two ranks of a slot keep: connections whose two sides have proven their identity go in,
//! then verdicts and acknowledgements; the steps of each connection come out. The owner has the streams.

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
        self.on_proven(slot, now)
    }

    /// This rank has dialled another one, and both have proven their identity; as [`ControlPlane::on_accepted`].
    pub fn on_dialled(&mut self, slot: Slot, now: Instant) -> Option<ConnectionNumber> {
        // Nothing needs a connection of a communicator that is gone.
        let is_wanted = slot.role == ConnectionRole::Control || self.communicators.get(slot.key).is_some();
        if is_wanted { self.on_proven(slot, now) } else { None }
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

    fn on_proven(&mut self, slot: Slot, now: Instant) -> Option<ConnectionNumber> {
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
            self.place(slot, number, false, now);
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
        // Otherwise this verdict is late: the lower rank has given the connection up, and a later one exists.
        let is_last = !is_control || self.connections.opened(slot.peer).is_none_or(|open| open < number);
        if verdict == Ok(Verdict::Keep) && is_last {
            return self.place(slot, number, true, now);
        }
        self.push_step(slot, number, ConnectionStep::Close);
        match verdict {
            Ok(Verdict::Keep) => {}
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
                if slot.role != ConnectionRole::Control && !self.dials.are_wanted(slot) {
                    // The higher rank may have sent its news on it, and only the next connection tells it that they are
                    // lost.
                    self.dial(slot, self.dials.patience());
                }
            }
        }
    }

    fn place(&mut self, slot: Slot, number: ConnectionNumber, is_kept: bool, now: Instant) {
        let placed = self.connections.slots.place(slot, number, is_kept);
        self.on_placed(slot, number, placed, now);
    }

    fn on_placed(&mut self, slot: Slot, number: ConnectionNumber, placed: Placed, now: Instant) {
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
            Placed::Again => {
                self.push_step(slot, number, ConnectionStep::Close);
                let topic = self.communicators.connection_lost(slot);
                self.publish(topic, now);
            }
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
    pub(super) fn place_parked(&mut self, key: CommunicatorKey, now: Instant) {
        for (slot, number, placed) in self.connections.slots.create(key) {
            self.on_placed(slot, number, placed, now);
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::control_plane::node::{HIGHER, HISTORY, KEY, LOWER, Node, data};
    use crate::intervals::Intervals;
    use crate::wire::{Departure, Topic};
    use crate::{DialTimeouts, Request};

    #[test]
    fn the_lower_rank_keeps_one_connection_and_the_higher_one_heeds_the_last_verdict() {
        let mut node = Node::new();
        let slot = Slot::control(LOWER);
        let numbers = [(); 3].map(|()| node.control.on_dialled(slot, node.now).unwrap());
        assert!(
            node.steps().iter().all(|(_, step)| matches!(step, Ok(ConnectionStep::AwaitVerdict(Some(_)))))
        );
        let keep = || Ok(Verdict::Keep);
        node.control.on_verdict(numbers[1], keep(), node.now);
        node.control.on_verdict(numbers[0], keep(), node.now);
        node.control.on_verdict(numbers[2], keep(), node.now);
        node.control.on_verdict(numbers[2], keep(), node.now);
        let refused = node.control.on_dialled(slot, node.now).unwrap();
        node.control.on_verdict(refused, Ok(Verdict::Drop), node.now);
        let [used, close] = [ConnectionStep::Use, ConnectionStep::Close].map(Ok);
        let waits = Ok(ConnectionStep::AwaitVerdict(Some(DialTimeouts::default().attempt)));
        let mut steps =
            vec![(numbers[1], used), (numbers[0], close), (numbers[1], close), (numbers[2], used)];
        steps.extend([(refused, waits), (refused, close)]);
        assert_eq!(node.steps(), steps, "a late verdict counts for nothing, and a newer one replaces");
        let (mut node, _) = Node::connected();
        let second = node.control.on_dialled(Slot::control(HIGHER), node.now).unwrap();
        assert_eq!(node.steps(), [(second, Ok(ConnectionStep::Drop))]);
    }

    #[test]
    fn a_rank_that_dials_again_is_doubted_until_it_says_something() {
        for speaks in [true, false] {
            let (mut node, first) = Node::connected();
            let second = node.accept(Slot::control(HIGHER));
            let effects = node.control.take_effects(node.now);
            let beats = |effect: &Effect| matches!(effect, Effect::Send(HIGHER, Message::Beat));
            assert!(effects.iter().any(beats), "{effects:?}");
            if speaks {
                node.control.on_message(HIGHER, first, Message::Beat, node.now);
            } else {
                node.control.on_message(HIGHER, second, Message::Beat, node.now);
            }
            let third = node.accept(Slot::control(HIGHER));
            let steps = node.steps();
            match (speaks, &steps[..]) {
                (true, [(number, Ok(ConnectionStep::Drop))]) => assert_eq!(*number, third),
                (false, [(ended, Ok(ConnectionStep::Close)), (number, Ok(ConnectionStep::Keep(_)))]) => {
                    assert_eq!((*ended, *number), (first, third));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_dropped_control_connection_is_dialled_again() {
        let (mut node, slot) = (Node::new(), Slot::control(LOWER));
        node.control.want(slot, node.now);
        let number = node.control.on_dialled(slot, node.now).unwrap();
        drop(node.steps());
        node.control.on_verdict(number, Ok(Verdict::Drop), node.now);
        let effects = node.control.take_effects(node.now);
        let dials =
            |effect: &Effect| matches!(effect, Effect::Dial { slot: dialled, .. } if *dialled == slot);
        assert!(effects.iter().any(dials), "the other side may keep one that has ended here: {effects:?}");
    }

    #[test]
    fn the_end_of_an_old_control_connection_says_nothing_about_the_new_one() {
        let (mut node, number) = Node::connected();
        let old = ConnectionNumber::default();
        assert_ne!(old, number);
        node.control.on_ended(HIGHER, old, End::Closed("its end".to_owned()), node.now);
        assert_eq!(node.control.connections.opened(HIGHER), Some(number));
        let effects = node.control.take_effects(node.now);
        assert!(!effects.iter().any(|effect| matches!(effect, Effect::Dial { .. })), "{effects:?}");
    }

    #[test]
    fn a_departure_is_told_behind_the_last_connection_for_messages() {
        let (mut node, control) = Node::connected();
        let slot = data(HIGHER, ConnectionRole::PointToPoint);
        let early = node.accept(slot);
        assert!(node.steps().is_empty(), "it waits for its communicator");
        node.register();
        assert!(matches!(node.steps()[..], [(number, Ok(ConnectionStep::Keep(_)))] if number == early));
        let departure = Departure::before_first_call();
        let members = JobRank::all(3).collect();
        node.hear(HIGHER, control, Topic::Closed { key: KEY, members, departure });
        assert!(node.steps().is_empty());
        node.control.on_acknowledged(early, Ok(()), node.now);
        assert_eq!(node.steps(), [(early, Ok(ConnectionStep::Use)), (early, Err(HIGHER))]);
    }

    #[test]
    fn nothing_of_a_communicator_that_is_gone_is_agreed_on() {
        let mut node = Node::new();
        node.register();
        let number = node.control.on_dialled(data(LOWER, ConnectionRole::First), node.now).unwrap();
        node.control.request(Request::Unregister { key: KEY, ours: HISTORY }, node.now);
        assert_eq!(node.steps().last(), Some(&(number, Ok(ConnectionStep::Close))));
        node.control.on_verdict(number, Ok(Verdict::Keep), node.now);
        assert!(node.steps().is_empty());
        assert_eq!(node.control.on_dialled(data(LOWER, ConnectionRole::First), node.now), None);
        let late = node.accept(data(HIGHER, ConnectionRole::First));
        assert_eq!(node.steps(), [(late, Ok(ConnectionStep::Drop))], "this rank has left");
    }

    #[test]
    fn a_data_connection_that_ends_before_both_sides_have_it_fails_its_communicator() {
        let mut higher = Node::new();
        higher.register();
        let slot = data(LOWER, ConnectionRole::First);
        let numbers = [(); 2].map(|()| higher.accept(slot));
        drop(higher.steps());
        higher.control.on_verdict(numbers[0], Ok(Verdict::Keep), higher.now);
        assert_eq!(higher.steps(), [(numbers[0], Ok(ConnectionStep::Use))]);
        higher.control.on_verdict(numbers[1], Ok(Verdict::Keep), higher.now);
        assert_eq!(higher.steps(), [(numbers[1], Ok(ConnectionStep::Close))]);
        let cause = higher.control.communicators.first_cause();
        assert_eq!(cause.map(|cause| cause.lost_ranks()), Some(vec![LOWER]), "what it has sent is lost");

        let mut lower = Node::new();
        lower.register();
        let number = lower.accept(data(HIGHER, ConnectionRole::First));
        lower.control.on_acknowledged(number, Err("reset".to_owned()), lower.now);
        let effects = lower.control.take_effects(lower.now);
        let dials = |effect: &Effect| matches!(effect, Effect::Dial { slot, .. } if slot.key == KEY);
        assert!(effects.iter().any(dials), "only another connection tells the higher rank: {effects:?}");
    }

    #[test]
    fn the_end_of_a_process_counts_when_no_goodbye_can_come() {
        let patience = Intervals::default().suspect;
        let presence_after = |says_goodbye: bool, reads_end: bool, waited: Duration| {
            let (mut node, number) = Node::connected();
            node.control.on_process_ended(HIGHER, "ended".to_owned(), node.now);
            if says_goodbye {
                node.hear(HIGHER, number, Topic::Goodbye);
            }
            if reads_end {
                node.control.on_ended(HIGHER, number, End::Closed("its end".to_owned()), node.now);
            }
            node.now += waited;
            node.control.judge_ended(node.now);
            drop(node.steps());
            node.control.plane.presence(HIGHER)
        };
        assert_eq!(presence_after(false, false, patience / 2), Presence::Live, "its messages are being read");
        assert_eq!(presence_after(false, false, patience), Presence::Lost);
        assert_eq!(presence_after(false, true, Duration::ZERO), Presence::Lost, "everything was read");
        assert_eq!(presence_after(true, true, patience), Presence::Left);
    }

    #[test]
    fn a_rank_that_listens_no_more_is_lost_at_once_only_if_it_was_heard() {
        let presence_after = |was_heard: bool| {
            let (mut node, number) = if was_heard { Node::connected() } else { Node::unheard() };
            node.control.on_ended(HIGHER, number, End::Closed("its end".to_owned()), node.now);
            let absent = DialFailure::Absent("nobody listens".to_owned());
            node.control.on_dial_failed(Slot::control(HIGHER), absent, node.now);
            drop(node.steps());
            node.control.plane.presence(HIGHER)
        };
        assert_eq!(presence_after(true), Presence::Lost, "it would have said goodbye");
        assert_eq!(presence_after(false), Presence::Live, "its goodbye may be on its way by others");
    }
}
