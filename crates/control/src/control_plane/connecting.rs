//! The connections of one rank, from the wish to the end: the dials, and the meaning of a failure for the plane and the
//! communicators. The owner dials, and reports the result.

use std::time::{Duration, Instant};

use unisono_communicator::{Certainty, JobRank};

use super::{ControlPlane, Effect};
use crate::connections::{ConnectionStep, End};
use crate::dials::{AfterFailure, DialFailure, Failure};
use crate::handshake::Refusal;
use crate::plane::Presence;
use crate::slots::Slot;
use crate::wire::{ConnectionRole, News};

impl ControlPlane {
    /// A connection for data is wanted.
    pub fn want(&mut self, slot: Slot, now: Instant) {
        // A rank that has left may have made the connection before, and sent everything that it had to send.
        if self.plane.presence(slot.peer) != Presence::Live && !self.connections.slots.is_taken(slot) {
            self.fail(slot, left(), now);
        } else {
            self.begin_to_dial(slot, None, now);
        }
    }

    pub(super) fn begin_to_dial(&mut self, slot: Slot, ended: Option<String>, now: Instant) {
        self.dials.want(slot, ended, now);
        self.dial(slot, Duration::ZERO);
    }

    /// Dials, unless a connection of this slot is on its way.
    pub(super) fn dial(&mut self, slot: Slot, pause: Duration) {
        if !self.connections.slots.is_taken(slot) {
            self.effects.push(Effect::Dial { slot, pause, timeout: self.attempt_timeout(slot) });
        }
    }

    /// The time limit of each part of an attempt to make this connection.
    pub(super) fn attempt_timeout(&self, slot: Slot) -> Duration {
        let is_control = slot.role == ConnectionRole::Control;
        let (is_heard, is_probed) = (self.plane.has_heard(slot.peer), self.plane.is_probed(slot.peer));
        self.dials.attempt_timeout(is_control && is_heard, is_control && is_probed)
    }

    /// A connection is there.
    pub fn on_connected(&mut self, slot: Slot, now: Instant) {
        self.dials.remove(slot);
        match slot.role {
            ConnectionRole::Control => {
                self.plane.on_connected(slot.peer, now);
                self.stores.on_connected(slot.peer);
            }
            ConnectionRole::First | ConnectionRole::Second | ConnectionRole::PointToPoint => {
                self.communicators.connected(slot);
            }
        }
    }

    /// The control connection to a rank that was in use has ended. Unless the rank is gone, it is made again.
    pub(super) fn end(&mut self, peer: JobRank, end: End, now: Instant) {
        let slot = Slot::control(peer);
        let number = self.connections.close(peer);
        number.into_iter().for_each(|number| self.push_step(slot, number, ConnectionStep::Close));
        self.end_stores_of_left(peer);
        let reason = match end {
            End::Closed(reason) => Some(reason),
            End::Changed => None,
            End::Nonsense(reason) | End::ProcessEnded(reason) => {
                return self.plane.on_disconnected(peer, Certainty::Confirmed, reason, now);
            }
        };
        self.connections.slots.release(slot);
        // A rank from which nothing has ever come would not have said goodbye.
        let ended = reason.filter(|_| self.plane.has_heard(peer));
        let may_be_gone = ended.is_some();
        if self.plane.on_ended(peer, now) {
            self.begin_to_dial(slot, ended, now);
            if may_be_gone {
                self.decide(peer, now);
            }
        }
    }

    /// If a rank has left, no answer of its store can come any more once its connection has ended. The news that it has
    /// left may come by another way, and overtake its last answers.
    pub(super) fn end_stores_of_left(&mut self, peer: JobRank) {
        let has_left = self.plane.presence(peer) == Presence::Left;
        if has_left && self.connections.opened(peer).is_none() {
            let evidence = "it has left the job, and its store with it";
            self.stores.on_gone_holder(peer, peer, Certainty::Confirmed, evidence);
        }
    }

    /// A dial has failed, or the connection that it has made. That counts unless another connection of this slot is on
    /// its way.
    pub fn on_dial_failed(&mut self, slot: Slot, failure: DialFailure, now: Instant) {
        if self.connections.slots.is_taken(slot) || !self.dials.are_wanted(slot) {
            return;
        }
        if self.plane.presence(slot.peer) != Presence::Live {
            return self.fail(slot, left(), now);
        }
        let next = match failure {
            DialFailure::Transient(problem) => self.dials.failed(slot, problem, now),
            DialFailure::Absent(problem) => self.dials.absent(slot, problem, now),
            DialFailure::Own(error) => {
                let Some(since) = self.dials.unable(slot, now) else { return };
                let patience = self.dials.attempt_timeout(false, false);
                // No descriptor may be left: unauthenticated connections hold some until their handshake times out.
                // A trouble that lasts longer fails this rank's call, and never shows the other's death.
                // Control connections wait until it is over, unless a caller that begins waits for them.
                if slot.role == ConnectionRole::Control {
                    self.fall_short(&error, (since, patience), now);
                } else if now.saturating_duration_since(since) >= patience {
                    return self.fail(slot, Failure::Error(error), now);
                }
                self.dials.failed(slot, error.to_string(), now)
            }
            // Every rank has proven that it knows the secret when it joined: a byte was changed on its way.
            DialFailure::Refused(refusal @ (Refusal::Secret | Refusal::Protocol))
                if slot.role == ConnectionRole::Control =>
            {
                self.dials.failed(slot, refusal.to_string(), now)
            }
            DialFailure::Refused(Refusal::Lost { .. }) if self.dials.is_news_overdue(slot, now) => {
                return self.on_taken_for_lost(slot.peer, now);
            }
            // The news may still be on its way. A report of this rank would race it: some ranks would hear that the
            // other one is lost before they hear that this one is.
            DialFailure::Refused(refusal @ Refusal::Lost { .. }) => {
                self.dials.failed(slot, refusal.to_string(), now)
            }
            DialFailure::Refused(refusal) => AfterFailure::GiveUp(Failure::Error(refusal.into())),
        };
        match next {
            AfterFailure::Dial(pause) => self.dial(slot, pause),
            AfterFailure::GiveUp(failure) => self.fail(slot, failure, now),
            AfterFailure::Nothing => {}
        }
    }

    /// Another rank says that this one counts as lost there. The news of that has not come in its time: the network was
    /// cut meanwhile, and each of the two sides counts the other one as lost. Within a host there are no two sides, so
    /// this rank is lost.
    fn on_taken_for_lost(&mut self, by: JobRank, now: Instant) {
        if !self.plane.is_on_this_host(by) {
            let reason = "it counts this rank as lost".to_owned();
            return self.plane.on_disconnected(by, Certainty::Suspected, reason, now);
        }
        let topic = self.plane.own_loss(by);
        let topics =
            self.communicators.happened(&News { origin: by, sequence: 0, topic: topic.clone() }, now);
        self.publish(topics.into_iter().chain([topic]), now);
    }

    /// A connection that is wanted will never come.
    pub fn fail(&mut self, slot: Slot, failure: Failure, now: Instant) {
        self.dials.remove(slot);
        if slot.role != ConnectionRole::Control {
            return self.communicators.not_connected(slot, failure);
        }
        let (certainty, reason) = match failure {
            Failure::Gone(certainty, reason) => (certainty, reason),
            Failure::Error(error) => (Certainty::Confirmed, error.to_string()),
        };
        self.plane.on_disconnected(slot.peer, certainty, reason, now);
    }
}

fn left() -> Failure {
    Failure::Gone(Certainty::Confirmed, "it has left the job".to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use unisono_communicator::Error;

    use super::*;
    use crate::connections::ConnectionNumber;
    use crate::control_plane::node::{HIGHER, Node, data};
    use crate::hosts::Hosts;
    use crate::wire::Topic;
    use crate::{DialTimeouts, intervals::Intervals};

    /// The presence of both ranks as rank 0 sees them, at the first refusal and when the news is overdue.
    fn refused_as_lost(hosts: [u32; 2]) -> [(Presence, Presence); 2] {
        let (intervals, now) = (Intervals::default(), Instant::now());
        let [own, other] = [0, 1].map(JobRank::new);
        let times = (intervals, DialTimeouts::default());
        let mut control = ControlPlane::new(own, Hosts::new(hosts.into()), times, now);
        drop(control.take_effects(now));
        [Duration::ZERO, intervals.suspect].map(|after| {
            let failure = DialFailure::Refused(Refusal::Lost { from: 0, to: 1 });
            control.on_dial_failed(Slot::control(other), failure, now + after);
            let effects = control.take_effects(now + after);
            let dials = effects.iter().filter(|effect| matches!(effect, Effect::Dial { .. })).count();
            assert_eq!(dials, usize::from(after.is_zero()), "{effects:?}");
            (control.plane.presence(own), control.plane.presence(other))
        })
    }

    #[test]
    fn a_rank_that_is_told_that_it_is_lost_waits_for_the_news_first() {
        let none = (Presence::Live, Presence::Live);
        assert_eq!(refused_as_lost([0, 1]), [none, (Presence::Live, Presence::Lost)], "two sides of a cut");
        assert_eq!(refused_as_lost([0, 0]), [none, (Presence::Lost, Presence::Live)], "no two sides");
    }

    /// A rank with a communicator that wants its first connection to the higher rank, which has a control connection.
    fn wanting() -> (Node, ConnectionNumber, Slot) {
        let ((mut node, control), slot) = (Node::connected(), data(HIGHER, ConnectionRole::First));
        node.register();
        node.control.want(slot, node.now);
        assert!(matches!(node.dials(), (1, failures) if failures.is_empty()));
        (node, control, slot)
    }

    fn no_answer() -> DialFailure {
        DialFailure::Transient("no answer".to_owned())
    }

    /// Its call would wait until the time of all attempts is up.
    #[test]
    fn a_rank_that_leaves_while_it_is_dialled_is_dialled_no_more() {
        let (mut node, control, slot) = wanting();
        node.control.on_dial_failed(slot, no_answer(), node.now);
        assert!(matches!(node.dials(), (1, failures) if failures.is_empty()), "it lives");
        node.hear(HIGHER, control, Topic::Goodbye);
        node.control.on_dial_failed(slot, no_answer(), node.now);
        let (dials, failures) = node.dials();
        assert_eq!(dials, 0, "nobody is there to answer");
        let told = failures.iter().map(Error::to_string).collect::<Vec<_>>();
        assert!(matches!(&told[..], [told] if told.contains("it has left the job")), "{told:?}");
    }

    /// The other rank has dialled too. Its connection would come to a communicator that has failed.
    #[test]
    fn a_failed_dial_counts_for_nothing_while_another_connection_is_on_its_way() {
        let (mut node, _, slot) = wanting();
        let number = node.accept(slot);
        node.now += DialTimeouts::default().total;
        node.control.on_dial_failed(slot, no_answer(), node.now);
        let (dials, failures) = node.dials();
        assert!(dials == 0 && failures.is_empty(), "{dials} dials, {failures:?}");
        node.control.on_acknowledged(number, Err("reset".to_owned()), node.now);
        let (_, failures) = node.dials();
        assert_eq!(failures.len(), 1, "now none is on its way, and the time is up");
    }
}
