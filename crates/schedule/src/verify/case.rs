//! The input of a verification: the schedules of all ranks, with steps numbered across ranks.

use super::counterexample::{Fault, StepPlace};
use crate::{Algorithm, Layout, Schedule, Shape, Step, StepIndex};

/// The result of one check.
pub(crate) type Checked<T> = Result<T, Fault>;

/// The number of a step among the steps of all ranks, whereas [`StepIndex`] counts within one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub(crate) struct StepNumber(u32);

impl StepNumber {
    /// The first step of rank 0.
    pub(crate) const FIRST: StepNumber = StepNumber(0);

    pub(crate) const fn as_usize(self) -> usize {
        self.0 as usize
    }
}

pub(crate) struct Case<'a> {
    pub(crate) algorithm: &'a Algorithm,
    pub(crate) shape: Shape,
    pub(crate) chunks: u32,
    pub(crate) schedules: &'a [Schedule],
    pub(crate) layouts: Vec<Layout>,
    /// The number of the first step of each rank, and the number of all steps.
    first: Vec<u32>,
    /// The rank of each step.
    rank_of: Vec<u32>,
}

impl<'a> Case<'a> {
    pub(crate) fn new(algorithm: &'a Algorithm, shape: &Shape, schedules: &'a [Schedule]) -> Self {
        let chunks = algorithm.chunks_of(shape);
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
    pub(crate) fn steps_len(&self) -> usize {
        self.rank_of.len()
    }

    /// The steps of all ranks, rank by rank and in list order.
    pub(crate) fn steps(&self) -> impl Iterator<Item = StepNumber> + use<> {
        (0..self.rank_of.len() as u32).map(StepNumber)
    }

    /// The step at `index` in the list of `rank`.
    pub(crate) fn number(&self, rank: u32, index: StepIndex) -> StepNumber {
        StepNumber(self.first[rank as usize] + index.index() as u32)
    }

    pub(crate) fn rank_of(&self, step: StepNumber) -> u32 {
        self.rank_of[step.as_usize()]
    }

    /// The index of a step in its rank's list.
    pub(crate) fn index_of(&self, step: StepNumber) -> StepIndex {
        StepIndex::new((step.0 - self.first[self.rank_of(step) as usize]) as usize)
    }

    pub(crate) fn step(&self, step: StepNumber) -> &Step {
        &self.schedules[self.rank_of(step) as usize].steps[self.index_of(step).index()]
    }

    /// The steps that `step` waits for, all of the same rank.
    pub(crate) fn dependencies(&self, step: StepNumber) -> impl Iterator<Item = StepNumber> + '_ {
        let rank = self.rank_of(step);
        let indices = self.schedules[rank as usize].dependencies(self.index_of(step));
        indices.iter().map(move |index| self.number(rank, *index))
    }

    pub(crate) fn is_buffered(&self, step: StepNumber) -> bool {
        self.schedules[self.rank_of(step) as usize].is_buffered(self.index_of(step))
    }

    pub(crate) fn place(&self, step: StepNumber) -> StepPlace {
        StepPlace { rank: self.rank_of(step), index: self.index_of(step), step: *self.step(step) }
    }
}
