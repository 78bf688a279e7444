//! The ranks of a suspected host that this rank probes, and the ranks among them that have answered.
//!
//! Each rank has two watchers, and they may be on its own host. So when a host goes silently, the ranks that others
//! watch are suspected, and nobody looks for the rest. Then the survivors divide the ranks of that host among them: two
//! survivors probe each rank, on two hosts, since one of these hosts may have gone too.
//! The detector watches a probed rank until it answers, with its whole patience, in which the connection and the
//! handshake must come about where there was none. When one rank of the host answers, the host is there and perhaps
//! busy, and its other probed ranks get the patience once more.
//!
//! Two hosts may go at once. A host with a rank whose watchers are all on suspected hosts is probed with them: nobody
//! would notice its end otherwise, until these watchers are known to be lost.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use unisono_communicator::JobRank;

use crate::hash::hash;

/// The time after the last suspicion for which a host is probed by ranks that take the place of lost probers, in
/// patiences.
const PATIENCES: u32 = 4;

/// The hosts that are probed, and the ranks there that this rank probes.
#[derive(Debug)]
pub(crate) struct Probes {
    patience: Duration,
    hosts: BTreeMap<u32, ProbedHost>,
}

/// A host that is probed.
#[derive(Debug)]
struct ProbedHost {
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
        self.entry(host, now).has_suspect = true;
    }

    /// A rank of this host has only watchers that may be gone.
    pub(crate) fn add(&mut self, host: u32, now: Instant) {
        self.entry(host, now);
    }

    fn entry(&mut self, host: u32, now: Instant) -> &mut ProbedHost {
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

/// The live ranks among `survivors`, with the numbers of their hosts, that probe `suspect`: by rendezvous hashing, so
/// that the loss of a prober moves only its own share, and the shares are alike. The second one is on another host,
/// where there is one.
///
/// Source: D. Thaler and C. Ravishankar, "Using name-based mappings to increase hit rates" (1998).
pub(crate) fn probers(suspect: JobRank, survivors: &[(JobRank, u32)]) -> impl Iterator<Item = JobRank> {
    let weight = |prober: JobRank| hash([suspect, prober].map(|rank| u64::from(rank.get())).into_iter());
    let first = survivors.iter().min_by_key(|(rank, _)| weight(*rank));
    let is_second = |(rank, host): &(JobRank, u32)| first.map(|(_, first)| (host == first, weight(*rank)));
    let others = survivors.iter().filter(|one| Some(*one) != first);
    let second = others.min_by_key(|one| is_second(one));
    first.into_iter().chain(second).map(|(rank, _)| *rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of suspects, of 64, that each survivor probes, of so many hosts with 16 ranks each.
    fn shares(survivors: &[(JobRank, u32)]) -> BTreeMap<JobRank, usize> {
        let mut shares = BTreeMap::new();
        for suspect in (1000..1064).map(JobRank::new) {
            let probers: Vec<JobRank> = probers(suspect, survivors).collect();
            let hosts: Vec<u32> = probers.iter().map(|rank| rank.get() / 16).collect();
            assert!(
                probers.len() == 2.min(survivors.len()) && (survivors.len() <= 16 || hosts[0] != hosts[1])
            );
            probers.into_iter().for_each(|rank| *shares.entry(rank).or_insert(0) += 1);
        }
        shares
    }

    #[test]
    fn two_survivors_on_two_hosts_probe_each_rank_and_the_shares_are_alike() {
        for ranks in [1, 2, 16, 32, 64, 1000] {
            let survivors: Vec<(JobRank, u32)> =
                (0..ranks).map(|rank| (JobRank::new(rank), rank / 16)).collect();
            let most = shares(&survivors).into_values().max();
            assert!(most.is_some_and(|most| most <= 10 + 128 / survivors.len()), "{ranks}: {most:?}");
        }
        assert_eq!(probers(JobRank::new(1), &[]).count(), 0);
    }

    #[test]
    fn a_lost_prober_moves_only_its_own_share() {
        let survivors: Vec<(JobRank, u32)> = (0..64).map(|rank| (JobRank::new(rank), rank / 16)).collect();
        let fewer = &survivors[1..];
        for suspect in (1000..1064).map(JobRank::new) {
            let before: Vec<JobRank> = probers(suspect, &survivors).collect();
            let after: Vec<JobRank> = probers(suspect, fewer).collect();
            assert!(before == after || before.contains(&survivors[0].0), "{suspect}: {before:?}, {after:?}");
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
