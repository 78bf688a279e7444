//! A group: which ranks belong together, who we are among them.

use std::sync::Arc;

/// The members of a communicator, in rank order, and this process's place among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    rank: u32,
    global_ranks: Arc<[u32]>,
    hosts: Arc<[u32]>,
    epoch: u32,
}

impl Group {
    /// The group of `global_ranks`, `hosts[r]` being the number of the host that rank r runs on.
    ///
    /// # Panics
    /// When `rank` is not below the number of ranks, or the lists differ in length: a caller's broken invariant.
    pub fn new(rank: u32, global_ranks: Arc<[u32]>, hosts: Arc<[u32]>, epoch: u32) -> Group {
        assert_eq!(global_ranks.len(), hosts.len(), "one host per rank");
        assert!((rank as usize) < global_ranks.len(), "rank {rank} of {}", global_ranks.len());
        Group { rank, global_ranks, hosts, epoch }
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
