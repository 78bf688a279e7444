//! What is being verified: the schedules of all ranks, with steps numbered across ranks.

use super::counterexample::{Fault, Place};
use crate::{Algorithm, Layout, Schedule, Shape, Step};

/// The verdict of one check.
pub(super) type Checked<T> = Result<T, Fault>;

/// The schedules of all ranks of one shape.
pub(super) struct Case<'a> {
    pub(super) algorithm: &'a Algorithm,
    pub(super) shape: Shape,
    pub(super) chunks: u32,
    pub(super) schedules: &'a [Schedule],
    pub(super) layouts: Vec<Layout>,
    /// The number of the first step of each rank, and the number of all steps.
    first: Vec<u32>,
    /// The rank of each step.
    rank_of: Vec<u32>,
}

impl<'a> Case<'a> {
    pub(super) fn new(algorithm: &'a Algorithm, shape: &Shape, schedules: &'a [Schedule]) -> Self {
        let chunks = (algorithm.chunks)(shape);
        let layout = |rank| Layout::new(algorithm.collective, shape, rank, chunks);
        let layouts = (0..shape.ranks).map(layout).collect();
        let (mut first, mut rank_of) = (vec![0], Vec::new());
        for (rank, schedule) in (0..).zip(schedules) {
            rank_of.resize(rank_of.len() + schedule.steps.len(), rank);
            first.push(rank_of.len() as u32);
        }
        Self { algorithm, shape: *shape, chunks, schedules, layouts, first, rank_of }
    }

    /// The number of steps of all ranks.
    pub(super) fn steps(&self) -> u32 {
        self.rank_of.len() as u32
    }

    pub(super) fn rank_of(&self, step: u32) -> u32 {
        self.rank_of[step as usize]
    }

    /// The number of a rank's first step: added to an index in its list it gives the step's number.
    pub(super) fn first(&self, rank: u32) -> u32 {
        self.first[rank as usize]
    }

    pub(super) fn step(&self, step: u32) -> &Step {
        let rank = self.rank_of(step);
        &self.schedules[rank as usize].steps[(step - self.first(rank)) as usize]
    }

    /// The steps, of the same rank, that `step` waits for, as indices in the rank's list.
    pub(super) fn dependencies(&self, step: u32) -> &[u32] {
        let rank = self.rank_of(step);
        self.schedules[rank as usize].dependencies((step - self.first(rank)) as usize)
    }

    pub(super) fn place(&self, step: u32) -> Place {
        let rank = self.rank_of(step);
        Place { rank, index: step - self.first(rank), step: *self.step(step) }
    }
}
