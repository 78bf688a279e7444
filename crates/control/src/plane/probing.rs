//! The plane's search for the ranks of hosts that may have gone silently; see [`crate::probes`].

use std::collections::BTreeSet;
use std::time::Instant;

use unisono_communicator::{Certainty, JobRank, monotonic_ns};

use super::{Action, Plane, Presence};
use crate::probes::probers;
use crate::wire::Message;

impl Plane {
    /// A rank counts as lost. When nothing proves its end and it lies on another host, that host may be gone.
    pub(super) fn probe_host_of(&mut self, lost: JobRank, certainty: Certainty, now: Instant) {
        if certainty == Certainty::Suspected
            && !self.hosts.are_same(self.rank, lost)
            && let Some(host) = self.hosts.number(lost)
        {
            self.probes.suspect(host, now);
            for host in self.hosts_without_watchers() {
                self.probes.add(host, now);
            }
        }
        if self.presence(self.rank) == Presence::Live {
            self.probes.hosts().into_iter().for_each(|host| self.probe(host, now));
        }
    }

    /// The hosts with a live rank whose watchers may all have gone silently: they are on a host with a suspect, or lost
    /// without a proof of their end. So hosts that have gone together are found one behind the other.
    fn hosts_without_watchers(&self) -> BTreeSet<u32> {
        let is_silent = |rank: JobRank| {
            let peer = &self.peers[rank.index()];
            peer.presence == Presence::Lost && !peer.is_proven_gone
        };
        let may_be_gone = |rank: JobRank| {
            is_silent(rank) || self.hosts.number(rank).is_some_and(|host| self.probes.has_suspect(host))
        };
        let takes_part = |rank: JobRank| is_silent(rank) || self.topology.is_live(rank);
        let is_unwatched = |rank: &JobRank| self.topology.watchers_among(*rank, takes_part).all(may_be_gone);
        let ranks = JobRank::all(self.hosts.ranks()).filter(|rank| self.topology.is_live(*rank));
        ranks.filter(is_unwatched).filter_map(|rank| self.hosts.number(rank)).collect()
    }

    /// Probes this rank's share of the ranks of a host that may be gone, and every rank there that it watches in the
    /// place of lost ranks: their other probers may be gone too.
    fn probe(&mut self, host: u32, now: Instant) {
        let live = JobRank::all(self.hosts.ranks()).filter(|rank| self.presence(*rank) == Presence::Live);
        let live = live.filter_map(|rank| Some((rank, self.hosts.number(rank)?)));
        let (suspects, survivors): (Vec<_>, Vec<_>) = live.partition(|(_, number)| *number == host);
        let suspects = suspects.into_iter().map(|(rank, _)| rank);
        let watched = self.topology.watched();
        let is_ours = |suspect: &JobRank| {
            watched.contains(suspect) || probers(*suspect, &survivors).any(|rank| rank == self.rank)
        };
        let ours: Vec<JobRank> = suspects.filter(is_ours).collect();
        ours.into_iter().for_each(|rank| self.begin_to_probe(host, rank, now));
    }

    /// Probes one rank, wherever the others of its host are.
    pub(super) fn probe_rank(&mut self, rank: JobRank, now: Instant) {
        let host = self.hosts.number(rank).unwrap_or_default();
        self.probes.add(host, now);
        self.begin_to_probe(host, rank, now);
        self.watch(now);
    }

    fn begin_to_probe(&mut self, host: u32, rank: JobRank, now: Instant) {
        if self.probes.begin(host, rank) {
            // Any answer will do.
            let asked_ns = monotonic_ns(now);
            if self.has_open(rank) {
                self.push(Action::Send(rank, Message::AskClock { asked_ns }));
            }
            self.connect(rank);
        }
    }

    /// Something has come from a rank, which may be an answer to a probe.
    pub(super) fn on_answer(&mut self, from: JobRank, now: Instant) {
        let host = self.hosts.number(from).unwrap_or_default();
        if let Some(others) = self.probes.on_answer(host, from) {
            self.watch(now);
            others.into_iter().for_each(|rank| self.detector.heard(rank, now));
        }
    }

    /// Whether this rank probes another one, which has not answered.
    pub fn is_probed(&self, rank: JobRank) -> bool {
        self.probes.unanswered().any(|probed| probed == rank)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::hosts::Hosts;
    use crate::intervals::Intervals;
    use crate::wire::Topic;

    /// Ticks until so much time has passed.
    fn pass(plane: &mut Plane, now: &mut Instant, span: Duration) {
        let end = *now + span;
        while plane.due() < end {
            *now = plane.due();
            plane.on_tick(*now);
        }
        *now = end;
    }

    #[test]
    fn a_probed_rank_gets_the_patience_twice_when_another_one_of_its_host_answers() {
        let patience = Intervals::default().suspect;
        for answers in [true, false] {
            let (mut now, [own, lost, speaks, silent]) = (Instant::now(), [0, 2, 3, 4].map(JobRank::new));
            let hosts = Hosts::new([0, 1, 1, 1, 1].into());
            let mut plane = Plane::new(own, hosts, Intervals::default(), now);
            let certainty = Certainty::Suspected;
            plane.publish(Topic::Lost { rank: lost, certainty, reason: String::new() }, now);
            assert!(plane.is_probed(speaks) && plane.is_probed(silent));
            pass(&mut plane, &mut now, patience * 3 / 4);
            if answers {
                plane.on_message(speaks, Message::Beat, now);
            }
            pass(&mut plane, &mut now, patience / 2);
            let expected = if answers { Presence::Live } else { Presence::Lost };
            assert_eq!(plane.presence(silent), expected, "answered: {answers}");
            pass(&mut plane, &mut now, patience);
            assert_eq!(plane.presence(silent), Presence::Lost);
        }
    }

    #[test]
    fn a_probed_rank_with_a_connection_is_asked_for_an_answer() {
        let (now, [own, lost, connected, unconnected]) = (Instant::now(), [0, 2, 3, 4].map(JobRank::new));
        let mut plane = Plane::new(own, Hosts::new([0, 1, 1, 1, 1].into()), Intervals::default(), now);
        plane.on_connected(connected, now);
        plane.take_actions();
        let certainty = Certainty::Suspected;
        plane.publish(Topic::Lost { rank: lost, certainty, reason: String::new() }, now);
        let actions = plane.take_actions();
        let is_asked = |asked: JobRank| {
            let mut sent = actions.iter().filter_map(|action| match action {
                Action::Send(rank, Message::AskClock { .. }) => Some(*rank),
                _ => None,
            });
            sent.any(|rank| rank == asked)
        };
        assert!(is_asked(connected) && !is_asked(unconnected), "{actions:?}");
    }
}
