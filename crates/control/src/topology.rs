//! The ranks that a control plane keeps connections to, and the pairs of ranks that exchange heartbeats. Pure functions
//! of the set of live ranks.

use unisono_communicator::JobRank;

/// To how many successors a rank sends heartbeats, so how many ranks watch it: when one of them dies too, the other is
/// left.
pub(crate) const WATCHERS: usize = 2;

/// The ranks of the job that take part.
#[derive(Clone, Debug)]
pub(crate) struct Topology {
    rank: JobRank,
    live: Vec<bool>,
}

impl Topology {
    /// All of `size` ranks, seen from `rank`.
    pub(crate) fn new(rank: JobRank, size: u32) -> Topology {
        Topology { rank, live: vec![true; size as usize] }
    }

    /// Takes a rank out.
    pub(crate) fn remove(&mut self, rank: JobRank) {
        if let Some(live) = self.live.get_mut(rank.index()) {
            *live = false;
        }
    }

    /// Whether a rank takes part.
    pub(crate) fn is_live(&self, rank: JobRank) -> bool {
        self.live.get(rank.index()).is_some_and(|&live| live)
    }

    /// The nearest live ranks that send us heartbeats.
    pub(crate) fn watched(&self) -> Vec<JobRank> {
        self.nearest(self.rank, self.live.len() - 1)
    }

    /// The nearest live ranks to which we send heartbeats.
    pub(crate) fn watchers(&self) -> Vec<JobRank> {
        self.nearest(self.rank, 1)
    }

    /// The ranks to which `rank` would send heartbeats if these took part.
    pub(crate) fn watchers_among(
        &self,
        rank: JobRank,
        take_part: impl Fn(JobRank) -> bool,
    ) -> impl Iterator<Item = JobRank> {
        self.going(rank, 1).filter(move |&other| take_part(other)).take(WATCHERS)
    }

    /// The ranks to dial so that every needed connection exists. Of two ranks that both need a connection, the lower
    /// one dials.
    pub(crate) fn to_dial(&self) -> Vec<JobRank> {
        let ours = self.wanted(self.rank);
        let is_ours = |&peer: &JobRank| self.rank < peer || !self.wanted(peer).contains(&self.rank);
        ours.into_iter().filter(is_ours).collect()
    }

    /// Every connection that `rank` needs: to the ranks at distance 1, 2, 4, ... both ways, so that news reaches all
    /// ranks in log2 steps, where the next live successor replaces a dead rank; and the connections of heartbeats.
    pub(crate) fn wanted(&self, rank: JobRank) -> Vec<JobRank> {
        let size = self.live.len();
        let mut list = Vec::new();
        let mut distance = 1;
        while distance < size {
            list.extend(self.from(rank, distance).next());
            list.extend(self.from(rank, size - distance).next());
            distance *= 2;
        }
        list.extend(self.nearest(rank, 1));
        list.extend(self.nearest(rank, size - 1));
        list.sort_unstable();
        list.dedup();
        list
    }

    /// The live ranks other than `rank` from the rank at `distance` on, upwards and around.
    fn from(&self, rank: JobRank, distance: usize) -> impl Iterator<Item = JobRank> + '_ {
        let size = self.live.len();
        let ranks = (0..size).map(move |step| upwards(rank, distance + step, size));
        ranks.filter(move |&other| other != rank && self.is_live(other))
    }

    /// The [`WATCHERS`] nearest live ranks going by `step` (1 upwards, size - 1 downwards).
    fn nearest(&self, rank: JobRank, step: usize) -> Vec<JobRank> {
        self.going(rank, step).filter(|&other| self.is_live(other)).take(WATCHERS).collect()
    }

    /// All ranks but `rank`, going from it by `step`.
    fn going(&self, rank: JobRank, step: usize) -> impl Iterator<Item = JobRank> + use<> {
        let size = self.live.len();
        (1..size).map(move |turn| upwards(rank, turn * step, size))
    }
}

/// The rank that is so far upwards of `rank` and around.
fn upwards(rank: JobRank, distance: usize, size: usize) -> JobRank {
    JobRank::new(((rank.index() + distance) % size) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without(rank: u32, size: u32, dead: &[u32]) -> Topology {
        let mut topology = Topology::new(JobRank::new(rank), size);
        dead.iter().for_each(|&dead| topology.remove(JobRank::new(dead)));
        topology
    }

    fn numbers(ranks: Vec<JobRank>) -> Vec<u32> {
        ranks.into_iter().map(JobRank::get).collect()
    }

    #[test]
    fn nearest_ranks_skip_the_dead() {
        assert_eq!(numbers(without(1, 5, &[]).watchers()), [2, 3]);
        assert_eq!(numbers(without(1, 5, &[]).watched()), [0, 4]);
        assert_eq!(numbers(without(1, 5, &[2, 0]).watchers()), [3, 4]);
        assert_eq!(numbers(without(1, 5, &[2, 0]).watched()), [4, 3]);
        assert_eq!(numbers(without(0, 2, &[]).watchers()), [1]);
        assert!(without(0, 4, &[1, 2, 3]).wanted(JobRank::new(0)).is_empty());
        assert!(without(0, 1, &[]).watchers().is_empty() && without(0, 1, &[]).to_dial().is_empty());
    }

    #[test]
    fn watching_and_beating_agree() {
        for size in 1..20 {
            let dead: Vec<u32> = (0..size).filter(|rank| rank % 3 == 2).collect();
            for rank in (0..size).filter(|rank| !dead.contains(rank)) {
                for watcher in numbers(without(rank, size, &dead).watchers()) {
                    assert!(numbers(without(watcher, size, &dead).watched()).contains(&rank));
                }
            }
        }
    }

    /// The longest way that news takes when everybody forwards it once to whom it is connected.
    fn hops(size: u32, dead: &[u32]) -> usize {
        let live: Vec<u32> = (0..size).filter(|rank| !dead.contains(rank)).collect();
        let mut linked = vec![vec![]; size as usize];
        for &rank in &live {
            for peer in numbers(without(rank, size, dead).to_dial()) {
                assert!(!linked[rank as usize].contains(&peer), "{rank} and {peer} both dial");
                linked[rank as usize].push(peer);
                linked[peer as usize].push(rank);
            }
        }
        for &rank in &live {
            let wanted = numbers(without(rank, size, dead).wanted(JobRank::new(rank)));
            let is_made = |peer: &u32| live.contains(peer) && linked[rank as usize].contains(peer);
            assert!(wanted.iter().all(is_made), "{rank} of {size} wants {wanted:?}");
        }
        let mut farthest = 0;
        for &start in &live {
            let mut far = vec![usize::MAX; size as usize];
            let mut queue = std::collections::VecDeque::from([start]);
            far[start as usize] = 0;
            while let Some(rank) = queue.pop_front() {
                for &peer in &linked[rank as usize] {
                    if far[peer as usize] == usize::MAX {
                        far[peer as usize] = far[rank as usize] + 1;
                        queue.push_back(peer);
                    }
                }
            }
            farthest = farthest.max(live.iter().map(|&rank| far[rank as usize]).max().unwrap_or(0));
        }
        farthest
    }

    #[test]
    fn news_crosses_in_log2_hops() {
        for size in 1..=64u32 {
            let log2 = size.next_power_of_two().trailing_zeros() as usize;
            assert!(hops(size, &[]) <= log2, "{size}: {}", hops(size, &[]));
            let third: Vec<u32> = (0..size).filter(|rank| rank % 3 == 1).collect();
            assert!(hops(size, &third) <= log2 + 1, "{size} without every third: {}", hops(size, &third));
        }
    }
}
