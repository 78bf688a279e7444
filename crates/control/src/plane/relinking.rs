//! The connections that the plane of a rank makes, and the time when it makes them.

use std::time::Instant;

use unisono_communicator::JobRank;

use super::{Action, ConnectionState, Plane, Presence};

impl Plane {
    /// This rank is about to say goodbye: from now on, every connection in the place of another one is made at once.
    pub fn begin_to_leave(&mut self) {
        self.is_leaving = true;
        self.connect_wanted();
    }

    /// A rank is gone, and this rank needs other connections. They may wait for the next tick where other ranks may
    /// soon follow: the ranks of a host that has gone, or of a job that ends. Else each of them would be dialled in
    /// turn.
    pub(super) fn relink(&mut self, may_wait: bool) {
        self.is_relink_due |= may_wait;
        if !self.is_relink_due || self.is_leaving {
            self.connect_wanted();
        }
    }

    pub(super) fn connect_wanted(&mut self) {
        self.topology.to_dial().into_iter().for_each(|peer| self.connect(peer));
    }

    /// Dials the ranks that should have dialled this one long ago: they may have died before, and only a dial tells.
    pub(super) fn dial_missing(&mut self, now: Instant) {
        let mut wanted = self.topology.wanted(self.rank);
        wanted.retain(|&peer| self.peers[peer.index()].connection == ConnectionState::None);
        for (rank, peer) in JobRank::all(self.hosts.ranks()).zip(&mut self.peers) {
            peer.missing_since = peer.missing_since.filter(|_| wanted.contains(&rank));
        }
        for peer in wanted {
            let since = *self.peers[peer.index()].missing_since.get_or_insert(now);
            if now.saturating_duration_since(since) > self.patience {
                self.connect(peer);
            }
        }
    }

    /// A communicator has lost a rank that lives as far as the plane knows. If that rank should have dialled this one
    /// and has not, only a dial tells whether it is gone, and the survivors wait for its ballot until then. A rank of
    /// another host from which nothing has ever come is probed, since no dial may ever be answered.
    pub(super) fn look_for(&mut self, rank: JobRank, now: Instant) {
        if self.topology.wanted(self.rank).contains(&rank) {
            self.connect(rank);
            if !self.is_on_this_host(rank) && !self.has_heard(rank) {
                self.probe_rank(rank, now);
            }
        }
    }

    pub(super) fn connect(&mut self, peer: JobRank) {
        // A rank that leaves or counts as lost makes no new connections. A question of this rank to itself needs none.
        let may_dial = self.presence(self.rank) == Presence::Live && peer != self.rank;
        let connection = &mut self.peers[peer.index()].connection;
        if may_dial && *connection == ConnectionState::None {
            *connection = ConnectionState::Dialled;
            self.actions.push(Action::Connect(peer));
        }
    }
}

#[cfg(test)]
mod tests {
    use unisono_communicator::Certainty;

    use super::*;
    use crate::hosts::Hosts;
    use crate::intervals::Intervals;
    use crate::plane_tests::lost_by;
    use crate::wire::{CommunicatorKey, JointNews, Message, Publisher, Topic};

    fn dials(plane: &mut Plane) -> usize {
        plane.take_actions().iter().filter(|action| matches!(action, Action::Connect(_))).count()
    }

    /// All others leave one after the other.
    fn dials_while_others_leave(is_leaving: bool) -> usize {
        let (size, now) = (1024, Instant::now());
        let hosts = Hosts::new(vec![0; size as usize].into());
        let mut plane = Plane::new(JobRank::new(0), hosts, Intervals::default(), now);
        dials(&mut plane);
        if is_leaving {
            plane.begin_to_leave();
        }
        let mut count = 0;
        for rank in (1..size).map(JobRank::new) {
            let origins = vec![Publisher { rank, sequence: 1 }];
            plane.on_message(rank, Message::News(JointNews { origins, topic: Topic::Goodbye }), now);
            count += dials(&mut plane);
        }
        plane.on_tick(now);
        count + dials(&mut plane)
    }

    #[test]
    fn a_late_rank_dials_few_of_the_ranks_that_leave_before_it() {
        assert_eq!(dials_while_others_leave(false), 0, "nobody is left at the tick");
        assert!(dials_while_others_leave(true) > 500, "its goodbye must reach a rank that stays");
    }

    #[test]
    fn a_connection_in_the_place_of_another_one_is_dialled_at_the_next_tick() {
        let (now, [own, leaves, next]) = (Instant::now(), [0, 4, 5].map(JobRank::new));
        let mut plane = Plane::new(own, Hosts::new([0; 64].into()), Intervals::default(), now);
        dials(&mut plane);
        plane.publish(
            Topic::Lost { rank: leaves, certainty: Certainty::Suspected, reason: String::new() },
            now,
        );
        assert_eq!(dials(&mut plane), 0, "others may follow");
        plane.on_tick(now);
        let dialled = |action: &Action| matches!(action, Action::Connect(peer) if *peer == next);
        assert!(plane.take_actions().iter().any(dialled));
    }

    #[test]
    fn a_rank_of_which_a_communicator_says_that_it_is_lost_is_probed_unless_it_was_heard() {
        let (now, [own, other]) = (Instant::now(), [0, 1].map(JobRank::new));
        for (hosts, is_heard, is_probed) in
            [([0, 1], false, true), ([0, 1], true, false), ([0, 0], false, false)]
        {
            let mut plane = Plane::new(own, Hosts::new(hosts.into()), Intervals::default(), now);
            if is_heard {
                plane.on_message(other, Message::Beat, now);
            }
            let cause = lost_by(own, other);
            let (key, members) = (CommunicatorKey { id: 0, epoch: 0 }, JobRank::all(2).collect());
            plane.publish(Topic::Revoked { key, members, cause }, now);
            assert_eq!(plane.is_probed(other), is_probed, "{hosts:?}, heard: {is_heard}");
        }
    }
}
