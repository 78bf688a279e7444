//! A communicator's ranks, and the rank of this process among them.

pub(crate) mod options;
pub(crate) mod process;
pub(crate) mod rank;

use std::sync::Arc;

use crate::call::operation::Operation;
use crate::call::skipped::SkippedOperations;
use crate::comms_log::CommsLogger;
use crate::group::options::GroupOptions;
use crate::group::process::Process;
use crate::group::rank::{GroupRank, JobRank};

/// The members of a communicator in rank order, and this process's rank among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    rank: GroupRank,
    job_ranks: Arc<[JobRank]>,
    hosts: Arc<[u32]>,
    id: u64,
    epoch: u32,
    options: GroupOptions,
    skipped: SkippedOperations,
    /// Records the calls of this rank.
    comms_logger: CommsLogger,
    /// The process of every rank of the job; empty when unknown.
    processes: Arc<[Process]>,
}

impl Group {
    /// The group of `job_ranks`. `hosts[r]` is the number of the host on which rank r of the group runs.
    ///
    /// # Panics
    /// When `rank` is not below the number of ranks, or the lists differ in length: the caller has broken an invariant.
    pub fn new(rank: GroupRank, job_ranks: Arc<[JobRank]>, hosts: Arc<[u32]>, epoch: u32) -> Group {
        assert_eq!(job_ranks.len(), hosts.len(), "one host per rank");
        assert!(rank.index() < job_ranks.len(), "rank {rank} of {}", job_ranks.len());
        let (options, skipped) = (GroupOptions::new(), SkippedOperations::default());
        let comms_logger = CommsLogger::default();
        Group {
            rank,
            job_ranks,
            hosts,
            id: 0,
            epoch,
            options,
            skipped,
            comms_logger,
            processes: Arc::new([]),
        }
    }

    /// The same group, known by this id.
    #[must_use]
    pub fn with_id(self, id: u64) -> Group {
        Group { id, ..self }
    }

    /// The same group, with these options.
    #[must_use]
    pub fn with_options(self, options: GroupOptions) -> Group {
        Group { options, ..self }
    }

    /// The same group, in which these operations do nothing.
    #[must_use]
    pub fn with_skipped(self, skipped: SkippedOperations) -> Group {
        Group { skipped, ..self }
    }

    /// The same group, whose calls this log records.
    #[must_use]
    pub fn with_comms_logger(self, comms_logger: CommsLogger) -> Group {
        Group { comms_logger, ..self }
    }

    /// The same group, with the process of every rank of the job.
    #[must_use]
    pub fn with_processes(self, processes: Arc<[Process]>) -> Group {
        Group { processes, ..self }
    }

    /// The group of some of its ranks, in a new order, with its options. `None` when this process is not among them.
    ///
    /// # Panics
    /// When one of `ranks` is not in this group: the caller has broken an invariant.
    pub fn subgroup(&self, ranks: &[GroupRank], epoch: u32) -> Option<Group> {
        let rank = GroupRank::new(ranks.iter().position(|&rank| rank == self.rank)? as u32);
        let job_ranks = ranks.iter().map(|&rank| self.job_rank(rank)).collect();
        let hosts = ranks.iter().map(|rank| self.hosts[rank.index()]).collect();
        let group = Group::new(rank, job_ranks, hosts, epoch).with_processes(self.processes.clone());
        let group = group.with_options(self.options).with_skipped(self.skipped);
        Some(group.with_comms_logger(self.comms_logger.clone()))
    }

    /// The whole job: `size` ranks, all on one host. Ranks of the group are ranks of the job.
    pub fn world(rank: u32, size: u32) -> Group {
        Group::world_on(rank, vec![0; size as usize].into())
    }

    /// The whole job. `hosts[r]` is the number of the host on which rank r runs.
    pub fn world_on(rank: u32, hosts: Arc<[u32]>) -> Group {
        Group::new(GroupRank::new(rank), JobRank::all(hosts.len() as u32).collect(), hosts, 0)
    }

    /// The communication log of this rank, which all communicators of its job share.
    pub fn comms_logger(&self) -> &CommsLogger {
        &self.comms_logger
    }

    /// This process's rank in the group, from 0.
    pub fn rank(&self) -> u32 {
        self.rank.get()
    }

    /// The number of ranks.
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

    /// The job ranks of all ranks, in order of the group.
    pub fn job_ranks(&self) -> &[JobRank] {
        &self.job_ranks
    }

    /// The job rank of one rank of this group.
    ///
    /// # Panics
    /// When the group has no such rank: the caller has broken an invariant.
    pub fn job_rank(&self, rank: GroupRank) -> JobRank {
        self.job_ranks[rank.index()]
    }

    /// The group rank of a rank of the job; `None` when it is not a member.
    pub fn group_rank_of(&self, rank: JobRank) -> Option<GroupRank> {
        self.ranks().find(|&member| self.job_rank(member) == rank)
    }

    /// The host number of every rank of this group.
    pub fn hosts(&self) -> &[u32] {
        &self.hosts
    }

    /// The ranks of this group on this rank's host, in order. The ranks found their hosts when they met; no launcher
    /// is asked.
    pub fn ranks_on_host(&self) -> impl Iterator<Item = GroupRank> + '_ {
        let own = self.hosts[self.rank.index()];
        self.ranks().filter(move |rank| self.hosts[rank.index()] == own)
    }

    /// This process's place among the ranks of this group on its host, from 0.
    ///
    /// ```
    /// use unisono_communicator::Group;
    /// let group = Group::world_on(3, [0, 1, 0, 1].into());
    /// assert_eq!((group.local_rank(), group.local_size()), (1, 2));
    /// ```
    pub fn local_rank(&self) -> u32 {
        self.ranks_on_host().take_while(|rank| *rank != self.rank).count() as u32
    }

    /// The number of ranks of this group on this rank's host.
    pub fn local_size(&self) -> u32 {
        self.ranks_on_host().count() as u32
    }

    /// The operations that do nothing.
    pub fn skipped(&self) -> SkippedOperations {
        self.skipped
    }

    /// Whether calls of `operation` do nothing; see [`SkippedOperations`].
    #[inline]
    pub fn skips(&self, operation: Operation) -> bool {
        self.skipped.contains(operation)
    }

    /// The same group, in which every operation works; `None` when that holds for this one.
    pub fn without_skipped(&self) -> Option<Group> {
        (!self.skipped.is_empty()).then(|| self.clone().with_skipped(SkippedOperations::default()))
    }

    /// Its options: its own, or from the communicator from which it was made.
    #[inline]
    pub fn options(&self) -> &GroupOptions {
        &self.options
    }

    /// The process of a rank of the job, if known.
    pub fn process(&self, rank: JobRank) -> Option<&Process> {
        self.processes.get(rank.index())
    }

    /// The number of different hosts that the group spans.
    pub fn host_count(&self) -> u32 {
        let mut hosts = self.hosts.to_vec();
        hosts.sort_unstable();
        hosts.dedup();
        hosts.len() as u32
    }

    /// A number that tells the group from the other groups of its job that this rank is in: 0 for all ranks. All its
    /// members have the same id, as long as the group is there; flight records and the log show it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The number of failures that the group has survived: 0 at first, one more after each shrink.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: A6
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

    /// The hosts go with the ranks into a group of another order, and into a group of that group.
    ///
    /// Rows: A6
    #[test]
    fn a_group_has_the_hosts_of_its_ranks() {
        let own = [3, 2, 0].map(GroupRank::new);
        let group = Group::world_on(0, [5, 1, 5, 1].into()).subgroup(&own, 0).unwrap();
        assert_eq!((group.hosts(), group.host_count()), (&[1, 5, 5][..], 2));
        assert_eq!((group.local_rank(), group.local_size()), (1, 2));
        assert!(group.ranks_on_host().eq([1, 2].map(GroupRank::new)));
        let pair = group.subgroup(&[2, 0].map(GroupRank::new), 0).unwrap();
        assert_eq!((pair.hosts(), pair.local_rank(), pair.local_size()), (&[5, 1][..], 0, 1));
    }
}
