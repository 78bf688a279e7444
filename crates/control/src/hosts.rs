//! The ranks that share a host, and the ranks whose report of a loss is proof.
//!
//! A refused dial or a reset may come from a router that separates two hosts. On the same host it comes from the
//! kernel, which has seen the process end. So a rank that is reported as lost is lost at once, for any evidence, but
//! only the report of a rank on the same host proves that it is gone; see [`crate::wire::Fate`].

use std::sync::Arc;

use unisono_communicator::{Certainty, JobRank};

use crate::wire::{News, Topic};

/// The host of every rank of the job.
#[derive(Clone, Debug)]
pub struct Hosts(Arc<[u32]>);

impl Hosts {
    /// `hosts[r]` is the number of the host of rank r.
    pub fn new(hosts: Arc<[u32]>) -> Hosts {
        Hosts(hosts)
    }

    /// The number of ranks.
    pub fn ranks(&self) -> u32 {
        self.0.len() as u32
    }

    /// The number of the host of a rank of the job.
    pub fn number(&self, rank: JobRank) -> Option<u32> {
        self.0.get(rank.index()).copied()
    }

    /// Whether two ranks of the job share a host.
    pub fn are_same(&self, one: JobRank, other: JobRank) -> bool {
        self.number(one).is_some() && self.number(one) == self.number(other)
    }

    /// The rank that this news proves to be gone.
    pub fn proven_gone(&self, news: &News) -> Option<JobRank> {
        match news.topic {
            Topic::Lost { rank, certainty: Certainty::Confirmed, .. } => {
                self.are_same(news.origin, rank).then_some(rank)
            }
            Topic::Goodbye => Some(news.origin),
            Topic::Lost { certainty: Certainty::Suspected, .. }
            | Topic::Revoked { .. }
            | Topic::Closed { .. }
            | Topic::Ballot { .. }
            | Topic::Decision { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_rank_on_the_same_host_proves_a_loss() {
        let hosts = Hosts::new([0, 0, 1].into());
        let lost = |origin, rank, certainty| {
            let topic = Topic::Lost { rank: JobRank::new(rank), certainty, reason: String::new() };
            hosts.proven_gone(&News { origin: JobRank::new(origin), sequence: 1, topic })
        };
        assert_eq!(lost(0, 1, Certainty::Confirmed), Some(JobRank::new(1)));
        assert_eq!(lost(0, 1, Certainty::Suspected), None);
        assert_eq!(lost(2, 1, Certainty::Confirmed), None, "the way between may be cut");
        assert_eq!(lost(7, 8, Certainty::Confirmed), None, "no ranks of the job");
        let origin = JobRank::new(2);
        let goodbye = News { origin, sequence: 1, topic: Topic::Goodbye };
        assert_eq!(hosts.proven_gone(&goodbye), Some(origin));
    }
}
