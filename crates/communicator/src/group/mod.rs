//! A group: its ranks, and which of them this process is.

pub(crate) mod rank;

use std::fmt;
use std::sync::Arc;

use crate::group::rank::{GroupRank, JobRank};

/// The process of a rank, as a person can find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The name of its host.
    pub host: Arc<str>,
    /// Its process id as it sees it; in a container this may differ from the host's.
    pub pid: u32,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} on {}", self.pid, self.host)
    }
}

/// The members of a communicator, in rank order, and this process's place among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    rank: GroupRank,
    job_ranks: Arc<[JobRank]>,
    hosts: Arc<[u32]>,
    epoch: u32,
    /// The process of every rank of the job; empty when they are not known.
    processes: Arc<[Process]>,
}

impl Group {
    /// The group of `job_ranks`, `hosts[r]` being the number of the host that rank r of the group runs on.
    ///
    /// # Panics
    /// When `rank` is not below the number of ranks, or the lists differ in length: the caller has broken an invariant.
    pub fn new(rank: GroupRank, job_ranks: Arc<[JobRank]>, hosts: Arc<[u32]>, epoch: u32) -> Group {
        assert_eq!(job_ranks.len(), hosts.len(), "one host per rank");
        assert!(rank.index() < job_ranks.len(), "rank {rank} of {}", job_ranks.len());
        Group { rank, job_ranks, hosts, epoch, processes: Arc::new([]) }
    }

    /// The same group, with the process of every rank of the job.
    #[must_use]
    pub fn with_processes(self, processes: Arc<[Process]>) -> Group {
        Group { processes, ..self }
    }

    /// The group of some of its ranks, in a new order. `None` when this process is not among them.
    ///
    /// # Panics
    /// When one of `ranks` is not of this group: the caller has broken an invariant.
    pub fn subgroup(&self, ranks: &[GroupRank], epoch: u32) -> Option<Group> {
        let rank = GroupRank::new(ranks.iter().position(|&rank| rank == self.rank)? as u32);
        let job_ranks = ranks.iter().map(|&rank| self.job_rank(rank)).collect();
        let hosts = ranks.iter().map(|rank| self.hosts[rank.index()]).collect();
        Some(Group::new(rank, job_ranks, hosts, epoch).with_processes(self.processes.clone()))
    }

    /// The whole job: `size` ranks, all on one host. The ranks of the group are those of the job.
    pub fn world(rank: u32, size: u32) -> Group {
        Group::world_on(rank, vec![0; size as usize].into())
    }

    /// The whole job, `hosts[r]` being the number of the host that rank r runs on.
    pub fn world_on(rank: u32, hosts: Arc<[u32]>) -> Group {
        Group::new(GroupRank::new(rank), JobRank::all(hosts.len() as u32).collect(), hosts, 0)
    }

    /// This process's rank in the group, from 0.
    pub fn rank(&self) -> u32 {
        self.rank.get()
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.job_ranks.len() as u32
    }

    /// This process's rank in the group, like [`Group::rank`].
    pub fn own_rank(&self) -> GroupRank {
        self.rank
    }

    /// This process's rank in the job.
    pub fn own_job_rank(&self) -> JobRank {
        self.job_rank(self.rank)
    }

    /// The ranks of the group, in order.
    pub fn ranks(&self) -> impl ExactSizeIterator<Item = GroupRank> + DoubleEndedIterator + Clone + use<> {
        GroupRank::all(self.size())
    }

    /// The rank in the job of every rank of this group.
    pub fn job_ranks(&self) -> &[JobRank] {
        &self.job_ranks
    }

    /// The rank in the job of one rank of this group.
    ///
    /// # Panics
    /// When the group has no such rank: the caller has broken an invariant.
    pub fn job_rank(&self, rank: GroupRank) -> JobRank {
        self.job_ranks[rank.index()]
    }

    /// The rank in this group of a rank of the job; `None` when that is not a member.
    pub fn group_rank_of(&self, rank: JobRank) -> Option<GroupRank> {
        self.ranks().find(|&member| self.job_rank(member) == rank)
    }

    /// The host number of every rank of this group.
    pub fn hosts(&self) -> &[u32] {
        &self.hosts
    }

    /// The process of a rank of the job, if that is known.
    pub fn process(&self, rank: JobRank) -> Option<&Process> {
        self.processes.get(rank.index())
    }

    /// How many different hosts the group spans.
    pub fn host_count(&self) -> u32 {
        let mut hosts = self.hosts.to_vec();
        hosts.sort_unstable();
        hosts.dedup();
        hosts.len() as u32
    }

    /// How many failures the group has survived: 0 at first, one more after each shrink.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_tells_ranks_of_the_job_from_its_own() {
        let own = [2, 0, 3].map(GroupRank::new);
        let group = Group::world(0, 4).subgroup(&own, 0).unwrap();
        let (own_rank, own_job_rank) = (group.own_rank(), group.own_job_rank());
        assert_eq!((group.rank(), own_rank, own_job_rank), (1, GroupRank::new(1), JobRank::new(0)));
        assert_eq!(group.job_ranks(), [2, 0, 3].map(JobRank::new));
        assert_eq!(group.job_rank(GroupRank::new(2)), JobRank::new(3));
        let group_ranks = JobRank::all(4).map(|rank| group.group_rank_of(rank)).collect::<Vec<_>>();
        assert_eq!(group_ranks, [Some(1), None, Some(0), Some(2)].map(|rank| rank.map(GroupRank::new)));
    }
}
