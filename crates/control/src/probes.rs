//! Which ranks of a suspected host this rank probes, and which of them have answered.
//!
//! Each rank has two watchers, and they may be on its own host. So when a host goes silently, the ranks that others
//! watch are suspected, and nobody looks for the rest. Then the survivors divide the ranks of that host among them: two
//! survivors probe each rank, far from each other in rank order, since one of them may be on a host that has gone too.
//! The detector watches a probed rank until it answers, with its whole patience, in which the connection and the
//! handshake must come about where there was none. When one rank of the host answers, the host is there and perhaps
//! busy, and its other probed ranks get the patience once more.
//!
//! Two hosts may go at once. A host with a rank whose watchers are all on suspected hosts is probed with them: nobody
//! would notice its end otherwise, until these watchers are known to be lost.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use unisono_communicator::JobRank;

/// How long after the last suspicion a host is probed by ranks that take the place of lost probers, in patiences.
const PATIENCES: u32 = 4;

/// The hosts that are probed, and the ranks there that this rank probes.
#[derive(Debug)]
pub(crate) struct Probes {
    patience: Duration,
    hosts: BTreeMap<u32, ProbedHost>,
}

/// A host that is probed.
#[derive(Debug)]
pub(crate) struct ProbedHost {
    since: Instant,
    /// Whether a rank there is suspected. Else it is probed because the watchers of a rank there may be gone.
    has_suspect: bool,
    /// Whether each probed rank has answered.
    probed: BTreeMap<JobRank, bool>,
}

impl Probes {
    /// No host is suspected.
    pub(crate) fn new(patience: Duration) -> Probes {
        Probes { patience, hosts: BTreeMap::new() }
    }

    /// A rank of this host is suspected.
    pub(crate) fn suspect(&mut self, host: u32, now: Instant) {
        self.add(host, now).has_suspect = true;
    }

    /// A rank of this host has only watchers that may be gone.
    pub(crate) fn add(&mut self, host: u32, now: Instant) -> &mut ProbedHost {
        let (has_suspect, probed) = (false, BTreeMap::new());
        let host = self.hosts.entry(host).or_insert(ProbedHost { since: now, has_suspect, probed });
        host.since = now;
        host
    }

    /// Whether a rank of this host is suspected.
    pub(crate) fn has_suspect(&self, host: u32) -> bool {
        self.hosts.get(&host).is_some_and(|host| host.has_suspect)
    }

    /// Forgets hosts whose last suspicion was long ago. A probe that has no answer yet goes on.
    pub(crate) fn on_time(&mut self, now: Instant) {
        let span = self.patience * PATIENCES;
        let is_recent = |host: &ProbedHost| now.saturating_duration_since(host.since) < span;
        self.hosts
            .retain(|_, host| is_recent(host) || host.probed.values().any(|has_answered| !has_answered));
    }

    /// The probed hosts.
    pub(crate) fn hosts(&self) -> Vec<u32> {
        self.hosts.keys().copied().collect()
    }

    /// This rank probes a rank of a probed host from now on. False when it has done so before.
    pub(crate) fn begin(&mut self, host: u32, rank: JobRank) -> bool {
        self.hosts.get_mut(&host).is_some_and(|host| {
            let is_new = !host.probed.contains_key(&rank);
            host.probed.entry(rank).or_insert(false);
            is_new
        })
    }

    /// The probed ranks that have not answered.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = JobRank> {
        let of_host = |host: &ProbedHost| {
            let unanswered = host.probed.iter().filter(|(_, has_answered)| !**has_answered);
            unanswered.map(|(rank, _)| *rank).collect::<Vec<_>>()
        };
        self.hosts.values().flat_map(of_host)
    }

    /// Something has come from a rank of this host. If that is the first answer from there, returns the probed ranks
    /// that get more time.
    pub(crate) fn on_answer(&mut self, host: u32, rank: JobRank) -> Option<Vec<JobRank>> {
        let probed = &mut self.hosts.get_mut(&host)?.probed;
        let is_first = !probed.values().any(|has_answered| *has_answered);
        let has_answered = probed.get_mut(&rank)?;
        if std::mem::replace(has_answered, true) {
            return None;
        }
        let unanswered = probed.iter().filter(|(_, has_answered)| is_first && !**has_answered);
        Some(unanswered.map(|(rank, _)| *rank).collect())
    }

    /// A rank has left, or counts as lost.
    pub(crate) fn remove(&mut self, rank: JobRank) {
        for host in self.hosts.values_mut() {
            host.probed.remove(&rank);
        }
    }
}

/// The places in the list of a host's ranks that the survivor at `place` of `survivors` probes.
pub(crate) fn divided(place: usize, survivors: usize, host_ranks: usize) -> impl Iterator<Item = usize> {
    let probers = move |of: usize| [of % survivors, (of + survivors / 2) % survivors];
    (0..host_ranks).filter(move |&of| probers(of).contains(&place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_survivors_probe_each_rank_and_all_survivors_share_the_work() {
        for (survivors, host_ranks) in [(1, 3), (2, 8), (7, 8), (16, 64), (64, 1), (1000, 64)] {
            let mut probers = vec![0; host_ranks];
            for place in 0..survivors {
                let ours: Vec<usize> = divided(place, survivors, host_ranks).collect();
                assert!(ours.len() <= 2 * host_ranks.div_ceil(survivors), "{place} of {survivors}: {ours:?}");
                ours.into_iter().for_each(|of| probers[of] += 1);
            }
            assert!(probers.iter().all(|&count| count == 2.min(survivors)), "{survivors}: {probers:?}");
        }
    }

    #[test]
    fn the_first_answer_of_a_host_gives_its_other_ranks_more_time() {
        let (start, patience) = (Instant::now(), Duration::from_secs(1));
        let [one, two, three, elsewhere] = [1, 2, 3, 9].map(JobRank::new);
        let mut probes = Probes::new(patience);
        assert!(!probes.begin(5, one), "nobody suspects the host");
        [5, 6].into_iter().for_each(|host| probes.suspect(host, start));
        for (host, rank) in [(5, one), (5, two), (5, three), (6, elsewhere)] {
            assert!(probes.begin(host, rank) && !probes.begin(host, rank));
        }
        assert_eq!(probes.on_answer(7, one), None, "of no suspected host");
        assert_eq!(probes.on_answer(5, JobRank::new(4)), None, "this rank does not probe it");
        assert_eq!(probes.on_answer(5, two), Some(vec![one, three]));
        assert_eq!(probes.on_answer(5, two), None, "it has answered before");
        assert_eq!(probes.on_answer(5, three), Some(vec![]), "once");
        assert_eq!(probes.unanswered().collect::<Vec<_>>(), [one, elsewhere]);
        probes.remove(one);
        probes.on_time(start + PATIENCES * patience);
        assert_eq!(probes.hosts(), [6], "the probes of the other host are over");
    }
}
