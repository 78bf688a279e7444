//! The ways in which a rank concludes that other ranks on its host are gone. A rank on another host that reports an end
//! may only have been separated from this host by the network; see [`crate::hosts`].

use std::time::{Duration, Instant};

use unisono_communicator::JobRank;

use super::{ControlPlane, Effect};
use crate::connections::ConnectionStep;
use crate::plane::Presence;
use crate::slots::Slot;

impl ControlPlane {
    /// The process of a rank on this host has ended. Its last messages count first: where its control connection is
    /// being read, the end of that connection decides. Where there is none, this rank waits for the goodbye that others
    /// may have read.
    pub fn on_process_ended(&mut self, peer: JobRank, reason: String, now: Instant) {
        let was_read = self.dials.follows_another(Slot::control(peer));
        let is_lost = self.plane.presence(peer) == Presence::Lost;
        let is_reading = self.connections.opened(peer).is_some();
        let is_decided = (was_read || is_lost) && !is_reading;
        let grace = if is_decided { Duration::ZERO } else { self.dials.patience() };
        self.process_ends.note(peer, reason, now + grace);
        self.judge_ended(now);
    }

    /// No goodbye of a rank can come any more: if its process has ended, it is gone.
    pub(super) fn decide(&mut self, peer: JobRank, now: Instant) {
        if self.process_ends.decide(peer, now) {
            self.judge_ended(now);
        }
    }

    /// Publishes the loss of the ranks whose process has ended and whose goodbye has not come in time.
    pub(super) fn judge_ended(&mut self, now: Instant) {
        for (peer, reason) in self.process_ends.take_due(now) {
            self.plane.on_process_gone(peer, reason, now);
        }
    }

    /// A rank counts as lost: no connection to it is needed. If it is on this host and nothing proves yet that it is
    /// gone, this rank finds out.
    pub(super) fn on_lost(&mut self, peer: JobRank, now: Instant) {
        if peer == self.plane.rank() {
            // A rank that counts as lost itself makes no new connections.
            return self.dials.clear();
        }
        self.dials.remove_rank(peer);
        // The news of its loss was the last message to that rank. More would pile up, since it may not read.
        let number = self.connections.close(peer);
        let close = ConnectionStep::Close;
        number.into_iter().for_each(|number| self.push_step(Slot::control(peer), number, close));
        if self.plane.needs_proof(peer) {
            self.decide(peer, now);
            self.effects.push(Effect::FindAbsent(peer));
        }
    }
}

#[cfg(test)]
mod tests {
    use unisono_communicator::Certainty;

    use super::*;
    use crate::connections::End;
    use crate::control_plane::node::{HIGHER, LOWER, Node, data};
    use crate::dials::DialFailure;
    use crate::wire::{ConnectionRole, Message, Topic};

    fn lost(rank: JobRank) -> Topic {
        Topic::Lost { rank, certainty: Certainty::Confirmed, reason: "gone".to_owned() }
    }

    /// The connection is made again, and the owner has not read it yet.
    #[test]
    fn the_last_messages_of_an_ended_process_are_read_on_a_new_connection_too() {
        let (mut node, number) = Node::connected();
        node.control.on_ended(HIGHER, number, End::Closed("its end".to_owned()), node.now);
        let again = node.accept(Slot::control(HIGHER));
        node.control.on_acknowledged(again, Ok(()), node.now);
        node.control.on_process_ended(HIGHER, "ended".to_owned(), node.now);
        node.hear(HIGHER, again, Topic::Goodbye);
        assert_eq!(node.control.plane.presence(HIGHER), Presence::Left);
    }

    #[test]
    fn the_owner_looks_whether_a_lost_rank_of_this_host_is_gone() {
        let (mut node, connection) = Node::connected();
        let certainty = Certainty::Suspected;
        node.hear(LOWER, connection, Topic::Lost { rank: HIGHER, certainty, reason: "silent".to_owned() });
        let effects = node.control.take_effects(node.now);
        assert!(effects.iter().any(|effect| matches!(effect, Effect::FindAbsent(HIGHER))), "{effects:?}");
    }

    /// The engine would be told that a rank has left the job which has not.
    #[test]
    fn a_dial_of_a_lost_rank_fails_without_a_word() {
        let ((mut node, control), slot) = (Node::connected(), data(HIGHER, ConnectionRole::First));
        node.register();
        node.control.want(slot, node.now);
        node.hear(LOWER, control, lost(HIGHER));
        assert_eq!(node.dials().0, 1, "before the news");
        node.control.on_dial_failed(slot, DialFailure::Transient("no answer".to_owned()), node.now);
        let (dials, failures) = node.dials();
        assert!(dials == 0 && failures.is_empty(), "{dials} dials, {failures:?}");
    }

    #[test]
    fn a_rank_that_counts_as_lost_itself_dials_nobody_again() {
        let ((mut node, control), slot) = (Node::connected(), data(HIGHER, ConnectionRole::First));
        node.register();
        node.control.want(slot, node.now);
        node.hear(LOWER, control, lost(JobRank::new(1)));
        assert_eq!(node.dials().0, 1, "before the news");
        node.control.on_dial_failed(slot, DialFailure::Transient("no answer".to_owned()), node.now);
        assert_eq!(node.dials().0, 0);
    }

    #[test]
    fn the_connection_of_a_lost_rank_is_closed_behind_the_news_of_its_loss() {
        let (mut node, connection) = Node::connected();
        node.hear(LOWER, connection, lost(HIGHER));
        let effects = node.control.take_effects(node.now);
        let is_news = |effect: &Effect| match effect {
            Effect::Send(to, Message::News(news)) => {
                *to == HIGHER && matches!(news.topic, Topic::Lost { .. })
            }
            _ => false,
        };
        let is_close = |effect: &Effect| match effect {
            Effect::Connection { number, step: ConnectionStep::Close, .. } => *number == connection,
            _ => false,
        };
        let (news, close) = (effects.iter().position(is_news), effects.iter().position(is_close));
        assert!(news.zip(close).is_some_and(|(news, close)| news < close), "{effects:?}");
    }
}
