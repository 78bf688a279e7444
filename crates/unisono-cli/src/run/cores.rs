//! Which cores a rank is bound to (`--bind-to`). A core here is what the kernel schedules on, one hardware thread.

use std::io;
use std::ops::Range;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that a rank may use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Binding {
    /// Its share of those that the launcher may use; ranks share evenly when there are more ranks than cores.
    Core,
    /// All that the launcher may use.
    // The default: the kernel moves a rank away from other work, a rank with threads of its own gets idle cores, and
    // two jobs on one machine would bind to the same cores.
    None,
}

impl Binding {
    /// As `--bind-to` names it.
    pub(crate) fn parse(text: &str) -> Result<Binding, String> {
        match text {
            "core" => Ok(Binding::Core),
            "none" => Ok(Binding::None),
            _ => Err(format!("unknown binding {text:?}, one of: core, none")),
        }
    }

    /// Calls `start`, which starts rank `rank` of `ranks`: a new process has the cores of the thread that starts it.
    pub(super) fn during<R>(
        self,
        rank: u32,
        ranks: u32,
        start: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        match self {
            Binding::None => start(),
            Binding::Core => {
                let all = sched_getaffinity(None)?;
                let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| all.is_set(core)).collect();
                let mut own = CpuSet::new();
                cores[share(rank as usize, ranks as usize, cores.len())]
                    .iter()
                    .for_each(|&core| own.set(core));
                sched_setaffinity(None, &own)?;
                let started = start();
                sched_setaffinity(None, &all)?;
                started
            }
        }
    }
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
