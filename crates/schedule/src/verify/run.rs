//! The symbolic run: every piece of every chunk, with scratch as the windows that it is.

use super::case::{Case, Checked};
use super::counterexample::Fault;
use super::graph::{Graph, Order};
use super::matching::{ALONE, Matching};
use super::trees::{Trees, UNWRITTEN};
use crate::{Action, Slot};

/// What the window of a scratch chunk holds: a value, and which piece of which extent it is.
#[derive(Clone, Copy)]
struct Held {
    tree: u32,
    extent: u32,
    piece: u32,
}

/// The memory of all ranks while one order of events is run.
pub(super) struct Run<'a> {
    case: &'a Case<'a>,
    graph: &'a Graph<'a>,
    trees: &'a mut Trees,
    in_place: bool,
    most_pieces: u32,
    /// Trees by (rank, location of the output, piece).
    outputs: Vec<u32>,
    /// Windows by (scratch chunk, half), ranks one after the other.
    windows: Vec<Held>,
    first_window: Vec<u32>,
}

/// What holds of all outputs of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) canonical: bool,
    pub(super) keeps_order: bool,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        case: &'a Case<'a>,
        graph: &'a Graph<'a>,
        trees: &'a mut Trees,
        in_place: bool,
    ) -> Self {
        let most_pieces = graph.pieces.iter().copied().max().unwrap_or(0).max(1);
        let (mut first_window, mut windows) = (Vec::new(), 0);
        for schedule in case.schedules {
            first_window.push(windows);
            windows += 2 * schedule.scratch_chunks;
        }
        let empty = Held { tree: UNWRITTEN, extent: 0, piece: 0 };
        let width = case.layouts[0].width();
        let outputs = vec![UNWRITTEN; (case.shape.ranks * width * most_pieces) as usize];
        let windows = vec![empty; windows as usize];
        let mut made = Self { case, graph, trees, in_place, most_pieces, outputs, windows, first_window };
        made.begin();
        made
    }

    /// What outputs hold before the first step: the root's vector in a broadcast, and inputs in place.
    fn begin(&mut self) {
        for (rank, layout) in (0..).zip(&self.case.layouts) {
            for location in 0..layout.width() {
                let input = self.in_place && layout.input_extent(location).is_some();
                if layout.output_extent(location).is_some() && (input || layout.starts_with_output()) {
                    let start = self.output(rank, location, 0);
                    self.outputs[start..start + self.most_pieces as usize].fill(Trees::leaf(rank));
                }
            }
        }
    }

    fn output(&self, rank: u32, location: u32, piece: u32) -> usize {
        ((rank * self.case.layouts[0].width() + location) * self.most_pieces + piece) as usize
    }

    fn window(&self, rank: u32, scratch: u32, piece: u32) -> usize {
        (self.first_window[rank as usize] + 2 * scratch + piece % 2) as usize
    }

    /// Runs all events.
    pub(super) fn run(&mut self, matching: &Matching, order: &Order) -> Checked<()> {
        let mut sent = Vec::new();
        for group in order.groups.windows(2) {
            let events = &order.events[group[0] as usize..group[1] as usize];
            // In a group everybody sends before anybody receives.
            sent.clear();
            for event in events {
                let step = self.graph.step_of[*event as usize];
                let carries = self.graph.pieces[self.case.step(step).extent as usize] > 0;
                let piece = self.graph.piece(*event);
                if let (true, Some(slot)) = (carries, self.case.step(step).action.reads()) {
                    sent.push((step, piece, self.read(step, slot, piece)?));
                }
            }
            for (step, piece, tree) in sent.iter().copied() {
                let partner = matching.partner[step as usize];
                self.arrive(if partner == ALONE { step } else { partner }, piece, tree)?;
            }
        }
        Ok(())
    }

    fn read(&self, step: u32, slot: Slot, piece: u32) -> Checked<u32> {
        let (rank, extent) = (self.case.rank_of(step), self.case.step(step).extent);
        let layout = &self.case.layouts[rank as usize];
        let tree = match slot {
            // Slots that a rank does not hold were refused before.
            Slot::Input => {
                let shared =
                    layout.input(extent).filter(|l| self.in_place && layout.output_extent(*l).is_some());
                shared.map_or(Trees::leaf(rank), |l| self.outputs[self.output(rank, l, piece)])
            }
            Slot::Output => {
                let location = layout.output(extent).unwrap_or(0);
                self.outputs[self.output(rank, location, piece)]
            }
            Slot::Scratch(scratch) => {
                let held = self.windows[self.window(rank, scratch, piece)];
                if held.tree != UNWRITTEN && (held.extent, held.piece) != (extent, piece) {
                    let (place, holds) = (self.case.place(step), (held.extent, held.piece));
                    return Err(Fault::Window { place, piece, holds });
                }
                held.tree
            }
        };
        if tree == UNWRITTEN {
            return Err(Fault::Unwritten { place: self.case.place(step), slot, holds: None });
        }
        Ok(tree)
    }

    /// The value of a transfer, or of a copy, reaches the step that stores it.
    fn arrive(&mut self, step: u32, piece: u32, tree: u32) -> Checked<()> {
        let rank = self.case.rank_of(step);
        let (tree, destination) = match self.case.step(step).action {
            Action::Recv { destination, .. } | Action::Copy { destination, .. } => (tree, destination),
            Action::RecvReduce { operand, destination, operand_is_left, completes, .. } => {
                let own = self.read(step, operand, piece)?;
                let (left, right) = if operand_is_left { (own, tree) } else { (tree, own) };
                let sum = self.trees.sum(left, right);
                let sum = sum.map_err(|ranks| Fault::Twice { place: self.case.place(step), ranks })?;
                if self.trees.is_full(sum) != completes {
                    let missing = self.trees.compare(sum, None).0;
                    return Err(Fault::Completes { place: self.case.place(step), missing });
                }
                (sum, destination)
            }
            Action::Send { .. } => return Ok(()),
        };
        let extent = self.case.step(step).extent;
        match destination {
            // Refused before.
            Slot::Input => {}
            Slot::Output => {
                let location = self.case.layouts[rank as usize].output(extent).unwrap_or(0);
                let at = self.output(rank, location, piece);
                self.outputs[at] = tree;
            }
            Slot::Scratch(scratch) => {
                let at = self.window(rank, scratch, piece);
                self.windows[at] = Held { tree, extent, piece };
            }
        }
        Ok(())
    }

    /// Every output is what the collective promises, and the same sum on all ranks.
    pub(super) fn outputs(&mut self) -> Checked<Sums> {
        let reduces = self.case.algorithm.collective.reduces();
        let canonical = if reduces { self.trees.canonical() } else { UNWRITTEN };
        let mut sums = Sums { canonical: true, keeps_order: true };
        let mut of_extent: Vec<Option<(u32, u32)>> = vec![None; self.case.chunks as usize];
        for (rank, layout) in (0..).zip(&self.case.layouts) {
            for location in 0..layout.width() {
                let Some(extent) = layout.output_extent(location) else { continue };
                for piece in 0..self.graph.pieces[extent as usize] {
                    let tree = self.outputs[self.output(rank, location, piece)];
                    let (missing, surplus) = match layout.source(extent) {
                        Some(source) if tree == Trees::leaf(source) => continue,
                        None if self.trees.is_full(tree) => (Vec::new(), Vec::new()),
                        source => self.trees.compare(tree, source),
                    };
                    if !missing.is_empty() || !surplus.is_empty() {
                        return Err(Fault::Output { rank, extent, piece, missing, surplus });
                    }
                    sums.canonical &= tree == canonical;
                    sums.keeps_order &= self.trees.keeps_order(tree);
                    let (other, its) = *of_extent[extent as usize].get_or_insert((rank, tree));
                    if its != tree {
                        let (one, other) = ((other, self.trees.text(its)), (rank, self.trees.text(tree)));
                        return Err(Fault::Trees { extent, one, other });
                    }
                }
            }
        }
        Ok(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::matching;
    use crate::{Schedule, Shape, find_by_name};

    /// Runs a ring reduce-scatter whole step by whole step, as if scratch chunks were as large as chunks.
    #[test]
    fn a_window_that_moved_on_is_noticed() {
        let (ring, shape) = (find_by_name("reduce_scatter/ring").unwrap(), Shape::new(4));
        let schedules: Vec<Schedule> = (0..4).map(|rank| ring.schedule(&shape, rank)).collect();
        let case = Case::new(ring, &shape, &schedules);
        let matching = matching::check(&case).unwrap();
        let run_in_step_order = |pieces: u32| {
            let pieces = vec![pieces; 4];
            let (whole, cut) = (Graph::new(&case, &matching, &[1; 4]), Graph::new(&case, &matching, &pieces));
            let steps = whole.order().unwrap().events.into_iter().map(|event| whole.step_of[event as usize]);
            let steps: Vec<u32> = steps.collect();
            let of = |step: &u32| {
                let step = *step;
                (0..cut.events()).filter(|event| cut.step_of[*event as usize] == step).collect::<Vec<u32>>()
            };
            let events: Vec<u32> = steps.iter().flat_map(of).collect();
            let groups = (0..=events.len() as u32).collect();
            let mut trees = Trees::new(4);
            Run::new(&case, &cut, &mut trees, false).run(&matching, &Order { events, groups })
        };
        assert_eq!(run_in_step_order(2), Ok(()));
        let fault = run_in_step_order(3).unwrap_err();
        assert!(matches!(fault, Fault::Window { piece: 0, holds: (_, 2), .. }), "{fault}");
    }
}
