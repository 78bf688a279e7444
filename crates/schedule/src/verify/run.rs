//! The symbolic run of one piece of every chunk.
//!
//! One piece stands for all. A step reads and writes piece k of one extent only. `races` proves that it reads, in any
//! order of events, the value of the last writer before it in the list of that extent and piece.

use super::case::{Case, Checked, StepNumber};
use super::counterexample::Fault;
use super::graph::Order;
use super::matching::Matching;
use super::trees::{TreeTable, UNWRITTEN};
use crate::{Action, Collective, Slot, canonical_prefix_tree, canonical_tree};

/// The memory of all ranks during a run of the steps in one order.
pub(super) struct Run<'a> {
    case: &'a Case<'a>,
    trees: &'a mut TreeTable,
    in_place: bool,
    /// The tree in each location of the outputs, rank by rank.
    outputs: Vec<u32>,
    first_output: Vec<usize>,
    /// The tree in each scratch chunk, rank by rank.
    scratch: Vec<u32>,
    first_scratch: Vec<usize>,
}

/// The properties that all outputs of a reduction have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) canonical: bool,
    pub(super) keeps_order: bool,
}

impl<'a> Run<'a> {
    pub(super) fn new(case: &'a Case<'a>, trees: &'a mut TreeTable, in_place: bool) -> Self {
        let (mut first_scratch, mut scratch_chunks) = (Vec::new(), 0);
        for schedule in case.schedules {
            first_scratch.push(scratch_chunks);
            scratch_chunks += schedule.scratch_chunks as usize;
        }
        let (mut first_output, mut locations) = (Vec::new(), 0);
        for layout in &case.layouts {
            first_output.push(locations);
            locations += layout.output_locations().len();
        }
        let (outputs, scratch) = (vec![UNWRITTEN; locations], vec![UNWRITTEN; scratch_chunks]);
        let mut made = Self { case, trees, in_place, outputs, first_output, scratch, first_scratch };
        made.begin();
        made
    }

    /// Sets the initial outputs: a broadcast root's vector, and the inputs of calls in place.
    fn begin(&mut self) {
        for (rank, layout) in (0..).zip(&self.case.layouts) {
            for location in layout.output_locations() {
                let input = self.in_place && layout.input_extent(location).is_some();
                if input || layout.starts_with_output() {
                    let at = self.output(rank, location);
                    self.outputs[at] = TreeTable::leaf(rank);
                }
            }
        }
    }

    fn output(&self, rank: u32, location: u32) -> usize {
        let held = self.case.layouts[rank as usize].output_locations();
        self.first_output[rank as usize] + (location - held.start) as usize
    }

    fn scratch(&self, rank: u32, scratch: u32) -> usize {
        self.first_scratch[rank as usize] + scratch as usize
    }

    /// Runs all steps.
    pub(super) fn run(&mut self, matching: &Matching, order: &Order) -> Checked<()> {
        let mut sent = Vec::new();
        for steps in order.groups() {
            // In a group all steps send before any step receives.
            sent.clear();
            for step in steps {
                if let Some(slot) = self.case.step(*step).action.reads() {
                    sent.push((*step, self.read(*step, slot)?));
                }
            }
            for (step, tree) in sent.iter().copied() {
                self.arrive(matching.partner(step).unwrap_or(step), tree)?;
            }
        }
        Ok(())
    }

    fn read(&self, step: StepNumber, slot: Slot) -> Checked<u32> {
        let (rank, extent) = (self.case.rank_of(step), self.case.step(step).extent);
        let layout = &self.case.layouts[rank as usize];
        let tree = match slot {
            // `structure` has refused slots that a rank does not hold.
            Slot::Input => {
                let shared =
                    layout.input(extent).filter(|l| self.in_place && layout.output_extent(*l).is_some());
                shared.map_or(TreeTable::leaf(rank), |l| self.outputs[self.output(rank, l)])
            }
            Slot::Output => self.outputs[self.output(rank, layout.output(extent).unwrap_or(0))],
            Slot::Scratch(scratch) => self.scratch[self.scratch(rank, scratch)],
        };
        if tree == UNWRITTEN {
            return Err(Fault::Unwritten { place: self.case.place(step), slot, holds: None });
        }
        Ok(tree)
    }

    /// Stores the value of a transfer or of a copy.
    fn arrive(&mut self, step: StepNumber, tree: u32) -> Checked<()> {
        let rank = self.case.rank_of(step);
        let (tree, destination) = match self.case.step(step).action {
            Action::Recv { destination, .. } | Action::Copy { destination, .. } => (tree, destination),
            Action::RecvReduce { operand, destination, operand_is_left, completes, .. } => {
                let own = self.read(step, operand)?;
                let (left, right) = if operand_is_left { (own, tree) } else { (tree, own) };
                let sum = self.trees.sum(left, right);
                let sum = sum.map_err(|ranks| Fault::Twice { place: self.case.place(step), ranks })?;
                if self.trees.is_full(sum) != completes {
                    let missing = self.trees.compare(sum, &(0..self.case.shape.ranks)).0;
                    return Err(Fault::Completes { place: self.case.place(step), missing });
                }
                (sum, destination)
            }
            Action::Send { .. } => return Ok(()),
        };
        let extent = self.case.step(step).extent;
        match destination {
            // `structure` has refused this.
            Slot::Input => {}
            Slot::Output => {
                let location = self.case.layouts[rank as usize].output(extent).unwrap_or(0);
                let at = self.output(rank, location);
                self.outputs[at] = tree;
            }
            Slot::Scratch(scratch) => {
                let at = self.scratch(rank, scratch);
                self.scratch[at] = tree;
            }
        }
        Ok(())
    }

    /// Checks that every output is as the collective promises, and that ranks with the same result have the same sum.
    pub(super) fn outputs(&mut self) -> Checked<Sums> {
        let canonical = self.canonical();
        let mut sums = Sums { canonical: true, keeps_order: true };
        let mut of_extent: Vec<Option<(u32, u32)>> = vec![None; self.case.chunks as usize];
        for (rank, layout) in (0..).zip(&self.case.layouts) {
            for location in layout.output_locations() {
                let Some(extent) = layout.output_extent(location) else { continue };
                let tree = self.outputs[self.output(rank, location)];
                let wanted = layout.contributors(extent);
                if !self.trees.is_of(tree, &wanted) {
                    let (missing, surplus) = self.trees.compare(tree, &wanted);
                    return Err(Fault::Output { rank, extent, missing, surplus });
                }
                sums.canonical &= canonical.get(rank as usize).is_none_or(|canonical| tree == *canonical);
                sums.keeps_order &= self.trees.keeps_order(tree);
                let (other, its) = *of_extent[extent as usize].get_or_insert((rank, tree));
                let is_alike = self.case.layouts[other as usize].contributors(extent) == wanted;
                if is_alike && its != tree {
                    let (one, other) = ((other, self.trees.text(its)), (rank, self.trees.text(tree)));
                    return Err(Fault::Trees { extent, one, other });
                }
            }
        }
        Ok(sums)
    }

    /// The canonical tree of each rank's result; empty for a collective that does not reduce.
    fn canonical(&mut self) -> Vec<u32> {
        let ranks = self.case.shape.ranks;
        match self.case.algorithm.collective {
            Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce => {
                let values = self.trees.values(&canonical_tree(ranks));
                vec![values[values.len() - 1]; ranks as usize]
            }
            Collective::Scan => self.prefixes(),
            Collective::Exscan => std::iter::once(UNWRITTEN).chain(self.prefixes()).collect(),
            Collective::AllGather
            | Collective::AllToAll
            | Collective::Broadcast
            | Collective::Gather
            | Collective::Scatter
            | Collective::Barrier => Vec::new(),
        }
    }

    /// The canonical tree of the ranks up to each rank.
    fn prefixes(&mut self) -> Vec<u32> {
        let ranks = self.case.shape.ranks;
        let sums = self.trees.values(&canonical_prefix_tree(ranks)).split_off(ranks as usize);
        std::iter::once(TreeTable::leaf(0)).chain(sums).collect()
    }
}
