//! A group: its ranks, and which of them this process is.

use std::fmt;
use std::sync::Arc;

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
    rank: u32,
    global_ranks: Arc<[u32]>,
    hosts: Arc<[u32]>,
    epoch: u32,
    /// The process of every rank of the job; empty when they are not known.
    processes: Arc<[Process]>,
}

impl Group {
    /// The group of `global_ranks`, `hosts[r]` being the number of the host that rank r runs on.
    ///
    /// # Panics
    /// When `rank` is not below the number of ranks, or the lists differ in length: the caller has broken an invariant.
    pub fn new(rank: u32, global_ranks: Arc<[u32]>, hosts: Arc<[u32]>, epoch: u32) -> Group {
        assert_eq!(global_ranks.len(), hosts.len(), "one host per rank");
        assert!((rank as usize) < global_ranks.len(), "rank {rank} of {}", global_ranks.len());
        Group { rank, global_ranks, hosts, epoch, processes: Arc::new([]) }
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
    pub fn subgroup(&self, ranks: &[u32], epoch: u32) -> Option<Group> {
        let rank = ranks.iter().position(|&rank| rank == self.rank)? as u32;
        let of = |list: &[u32]| ranks.iter().map(|&rank| list[rank as usize]).collect();
        let group = Group::new(rank, of(&self.global_ranks), of(&self.hosts), epoch);
        Some(group.with_processes(self.processes.clone()))
    }

    /// The whole job: `size` ranks, all on one host.
    pub fn world(rank: u32, size: u32) -> Group {
        Group::new(rank, (0..size).collect(), vec![0; size as usize].into(), 0)
    }

    /// This process's rank, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.global_ranks.len() as u32
    }

    /// The rank in the job of every rank of this group.
    pub fn global_ranks(&self) -> &[u32] {
        &self.global_ranks
    }

    /// The host number of every rank of this group.
    pub fn hosts(&self) -> &[u32] {
        &self.hosts
    }

    /// The process of a rank of the job, if that is known.
    pub fn process(&self, global_rank: u32) -> Option<&Process> {
        self.processes.get(global_rank as usize)
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
