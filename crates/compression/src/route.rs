//! The way of elements to their owners: straight, or first to one rank of each host.

use std::fmt;

use unisono_communicator::{CostModel, Group};

/// The way of elements to the ranks that sum them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// Every rank encodes its vector and sends each owner its share.
    Direct,
    /// Two levels: the ranks of a host sum their vectors first, in f32 and without loss, each a part of them; they
    /// encode the sum of a host and send it to owners on other hosts. So a network interface carries the codes of one
    /// rank, not of all ranks of the host, and each rank keeps residuals for its part alone. (The exact first level of
    /// hierarchical schemes such as ZeRO++'s qgZ; Wang et al. 2023, section 4.3.)
    TwoLevels,
    /// Codes are added on their way, by any algorithm of a reduce-scatter: a ring for long vectors. They have scales
    /// that all ranks share, and integers of 8, 16 or 32 bits that hold the sum of all ranks' codes, so that no hop
    /// rounds anything, and the error of an average does not grow with the number of ranks. For all-reduces by
    /// symmetric [`crate::Int8`] and [`crate::Int4`].
    SummedCodes,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Route::Direct => "direct",
            Route::TwoLevels => "two levels",
            Route::SummedCodes => "summed codes",
        })
    }
}

/// The ranks of a group in the teams that sum before they encode: all ranks of a host, or each rank alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Teams {
    /// The ranks of each team, in their order.
    teams: Vec<Vec<usize>>,
    /// For each rank its team, and its place there.
    places: Vec<(usize, usize)>,
}

impl Teams {
    pub(crate) fn new(route: Route, group: &Group) -> Teams {
        match route {
            Route::Direct | Route::SummedCodes => Teams::alone(group.size() as usize),
            Route::TwoLevels => Teams::of(group.hosts()),
        }
    }

    /// Every rank is a team.
    pub(crate) fn alone(ranks: usize) -> Teams {
        Teams::of(&(0..ranks as u32).collect::<Vec<u32>>())
    }

    /// Ranks of the same number are a team.
    pub(crate) fn of(numbers: &[u32]) -> Teams {
        let mut known: Vec<u32> = Vec::new();
        let mut teams: Vec<Vec<usize>> = Vec::new();
        let mut places = Vec::with_capacity(numbers.len());
        for (rank, number) in numbers.iter().enumerate() {
            let team = known.iter().position(|known| known == number).unwrap_or_else(|| {
                known.push(*number);
                teams.push(Vec::new());
                teams.len() - 1
            });
            places.push((team, teams[team].len()));
            teams[team].push(rank);
        }
        Teams { teams, places }
    }

    /// The number of teams.
    pub(crate) fn count(&self) -> usize {
        self.teams.len()
    }

    /// Whether there is a team of several ranks.
    pub(crate) fn has_members(&self) -> bool {
        self.teams.len() < self.places.len()
    }

    /// The ranks of the team of `rank`.
    pub(crate) fn team(&self, rank: usize) -> &[usize] {
        &self.teams[self.places[rank].0]
    }

    /// The rank that sums the elements of the team for `owner`. A rank sums its own share in its team, and the shares
    /// of other teams' ranks are divided evenly.
    fn collector_of(&self, team: usize, owner: usize) -> usize {
        let ranks = &self.teams[team];
        ranks[self.places[owner].1 % ranks.len()]
    }

    /// Whether `rank` sums the elements of its team for `owner`.
    pub(crate) fn collects(&self, rank: usize, owner: usize) -> bool {
        self.collector_of(self.places[rank].0, owner) == rank
    }

    /// The owners for whom `rank` sums, in their order.
    pub(crate) fn owners(&self, rank: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.places.len()).filter(move |owner| self.collects(rank, *owner))
    }

    /// The ranks that send something to `owner`, in their order: one of each team.
    pub(crate) fn senders(&self, owner: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.places.len()).filter(move |rank| self.collects(*rank, owner))
    }
}

impl Route {
    /// The cheaper way for vectors of `elements` that are encoded in `words` words, by the figures of the group's
    /// network: the same on all ranks.
    ///
    /// A host's interface carries the codes of all its collectors for other hosts' owners, and the sums that come back;
    /// within a host, f32 move once more in two levels. The work of kernels counts as a reduction.
    pub(crate) fn cheaper(model: &CostModel, group: &Group, elements: usize, words: usize) -> Route {
        let cost = |route| predicted_fs(model, group, route, elements, words);
        let by_hosts = Teams::of(group.hosts());
        // On one host there is nothing to send between hosts.
        let has_both = by_hosts.has_members() && by_hosts.teams.len() > 1;
        if has_both && cost(Route::TwoLevels) < cost(Route::Direct) {
            Route::TwoLevels
        } else {
            Route::Direct
        }
    }
}

/// Femtoseconds of the way to the owners, for the fullest host.
fn predicted_fs(model: &CostModel, group: &Group, route: Route, elements: usize, words: usize) -> u128 {
    let teams = Teams::new(route, group);
    let (hosts, ranks) = (Teams::of(group.hosts()), group.size() as usize);
    let (raw, encoded) = (4 * elements as u128, 4 * words as u128);
    let slowest = hosts.teams.iter().map(|host| {
        let messages: usize =
            host.iter().map(|rank| teams.owners(*rank).filter(|owner| !host.contains(owner)).count()).sum();
        let network = encoded * messages as u128 / ranks as u128 * u128::from(model.network_fs_per_byte);
        let crowding = u128::from(model.ranks_per_core_thousandths.max(1_000));
        let work = host.iter().map(|rank| {
            let team = teams.team(*rank).len() as u128;
            let collected = raw * teams.owners(*rank).count() as u128 / ranks as u128;
            let moved = raw - collected + collected * (team - 1);
            let summed = if team > 1 { collected * team } else { 0 };
            u128::from(model.wire_fs_per_byte) * moved
                + u128::from(model.reduce_fs_per_byte) * (summed + collected)
        });
        network + work.max().unwrap_or_default() * crowding / 1_000
    });
    slowest.max().unwrap_or_default()
}
