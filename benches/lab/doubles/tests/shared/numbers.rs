//! The numbers of three ranks' calls.

pub(crate) const SIZE: usize = 3;

/// Number `at` of rank `rank`'s input.
pub(crate) fn input(rank: usize, at: usize) -> i32 {
    (rank * 100 + at) as i32 + 1
}

pub(crate) fn inputs(rank: usize, count: usize) -> Vec<i32> {
    (0..count).map(|at| input(rank, at)).collect()
}

pub(crate) fn sums(from: usize, count: usize) -> Vec<i32> {
    (from..from + count).map(|at| (0..SIZE).map(|rank| input(rank, at)).sum()).collect()
}
