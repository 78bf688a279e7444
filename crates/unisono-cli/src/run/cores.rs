//! The cores that a rank is bound to (`--bind-to`). A core here is one hardware thread: the kernel schedules on these.

use std::io;
use std::ops::Range;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

/// The cores that a rank may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Binding {
    /// `Core` where every core then has the same number of ranks, at least two; otherwise `None`, as where the kernel
    /// refuses to bind.
    // Ranks of one core pass each other data that its cache holds, as long as the kernel does not move them to
    // another core (benches/lab). With a core for each rank, bound ranks wait behind other work; with uneven
    // shares, the fullest core computes last.
    Auto,
    /// Its share of the cores that the launcher may use; ranks share evenly when there are more ranks than cores.
    Core,
    /// All that the launcher may use.
    None,
}

impl Binding {
    /// As `--bind-to` names it.
    pub(crate) fn parse(text: &str) -> Result<Binding, String> {
        match text {
            "auto" => Ok(Binding::Auto),
            "core" => Ok(Binding::Core),
            "none" => Ok(Binding::None),
            _ => Err(format!("unknown binding {text:?}, one of: auto, core, none")),
        }
    }

    /// Calls `start`, which starts rank `rank` of `ranks`: a new process has the cores of the thread that starts it.
    pub(super) fn during<R>(
        self,
        rank: u32,
        ranks: u32,
        start: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        let all = match self {
            Binding::None => return start(),
            Binding::Auto | Binding::Core => sched_getaffinity(None),
        };
        let bound = all.and_then(|all| {
            let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| all.is_set(core)).collect();
            let (rank, ranks) = (rank as usize, ranks as usize);
            if self == Binding::Core || shares_cores_evenly(ranks, cores.len()) {
                let mut own = CpuSet::new();
                cores[share(rank, ranks, cores.len())].iter().for_each(|&core| own.set(core));
                sched_setaffinity(None, &own)?;
            }
            Ok(all)
        });
        match (bound, self) {
            (Ok(all), _) => {
                let started = start();
                sched_setaffinity(None, &all)?;
                started
            }
            (Err(_), Binding::Auto) => start(),
            (Err(error), _) => Err(error.into()),
        }
    }
}

/// Whether every core has the same number of ranks, at least two.
fn shares_cores_evenly(ranks: usize, cores: usize) -> bool {
    ranks > cores && ranks.is_multiple_of(cores)
}

/// The cores of one rank, by their places among all. Shares differ by one core at most; with more ranks than cores,
/// each rank has one, together with its neighbours.
fn share(rank: usize, ranks: usize, cores: usize) -> Range<usize> {
    let start = rank * cores / ranks;
    start..((rank + 1) * cores / ranks).max(start + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cores_with_as_many_ranks_each_are_bound_to() {
        for (ranks, cores, is_even) in [
            (1, 1, false),
            (2, 1, true),
            (2, 2, false),
            (3, 2, false),
            (4, 2, true),
            (6, 2, true),
            (4, 8, false),
        ] {
            assert_eq!(shares_cores_evenly(ranks, cores), is_even, "{ranks} ranks, {cores} cores");
        }
    }

    #[test]
    fn shares_are_even_and_use_every_core() {
        assert_eq!([0, 1, 2].map(|rank| share(rank, 3, 8)), [0..2, 2..5, 5..8]);
        assert_eq!([0, 1, 2, 3].map(|rank| share(rank, 4, 2)), [0..1, 0..1, 1..2, 1..2]);
        for (ranks, cores) in [(1, 1), (1, 5), (5, 5), (7, 3), (3, 7), (1024, 100)] {
            let shares: Vec<_> = (0..ranks).map(|rank| share(rank, ranks, cores)).collect();
            let users = |core| shares.iter().filter(|share| share.contains(&core)).count();
            let users: Vec<usize> = (0..cores).map(users).collect();
            let (least, most) = (users.iter().min().unwrap(), users.iter().max().unwrap());
            assert!(*least >= 1 && most - least <= 1, "{ranks} ranks, {cores} cores: {shares:?}");
        }
    }
}
