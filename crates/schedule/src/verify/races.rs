//! Proof, for any lengths and piece sizes, that conflicting steps of a rank are ordered and read what they should.
//!
//! The hazards are recomputed here from the steps alone. Two steps that touch the same bytes, one of them writing,
//! must be joined by a path of declared dependencies, and every step on the path must have the extent of one of
//! the two. Then piece k of the later one waits for piece min(k, last) of the earlier one *whatever the numbers of
//! pieces are*; a path over a third, shorter extent would not say so, and an empty one waits for piece 0 only. If one
//! of the two is empty itself, it touches no bytes and there is nothing to order.
//!
//! The same paths prove the windows of scratch: let w write what r reads, and x be another writer of the chunk, its
//! piece falling into the same half of the window. If x is before w in the list: its pieces up to k precede w's
//! piece k by the path, its later ones wait for r's piece k by the window rule. If x is after r: its pieces from k
//! on follow r's piece k by the path, its earlier ones precede w's piece k by the window rule.

use std::collections::HashMap;

use super::case::{Case, Checked};
use super::counterexample::{Fault, Place};
use crate::{Action, Layout, Slot, Step};

/// Checks every rank, out of place and, unless the algorithm excludes it, in place.
pub(super) fn check(case: &Case<'_>) -> Checked<()> {
    for rank in 0..case.shape.ranks {
        Rank::new(case, rank, false).check()?;
        if !case.algorithm.requires.out_of_place {
            Rank::new(case, rank, true).check()?;
        }
    }
    Ok(())
}

/// Bytes that steps may share.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Bytes {
    Input(u32),
    Output(u32),
    Scratch(u32),
}

/// The accesses of some bytes so far, as (index of the step, whether it writes).
#[derive(Default)]
struct Accesses {
    list: Vec<(u32, bool)>,
    /// Where in the list the last write is.
    last_write: Option<usize>,
    /// Whether all so far have one extent, so that order is passed on from one to the next.
    mixed: bool,
}

struct Rank<'a> {
    case: &'a Case<'a>,
    layout: &'a Layout,
    steps: &'a [Step],
    rank: u32,
    in_place: bool,
}

impl<'a> Rank<'a> {
    fn new(case: &'a Case<'a>, rank: u32, in_place: bool) -> Self {
        let (layout, steps) = (&case.layouts[rank as usize], &case.schedules[rank as usize].steps[..]);
        Self { case, layout, steps, rank, in_place }
    }

    fn check(&self) -> Checked<()> {
        let mut touched: HashMap<Bytes, Accesses> = HashMap::new();
        for (index, step) in (0..).zip(self.steps) {
            if self.in_place && self.vanishes(step) {
                continue;
            }
            let read = step.action.reads().map(|slot| (slot, self.bytes(slot, step.extent)));
            let written = step.action.writes().map(|slot| self.bytes(slot, step.extent));
            if let Some((slot, bytes)) = read {
                let accesses = touched.entry(bytes).or_default();
                self.written(accesses, index, slot)?;
                if written != Some(bytes) {
                    self.access(accesses, index, false)?;
                }
            }
            if let Some(bytes) = written {
                self.access(touched.entry(bytes).or_default(), index, true)?;
            }
        }
        Ok(())
    }

    fn dependencies(&self, index: u32) -> &[u32] {
        self.case.schedules[self.rank as usize].dependencies(index as usize)
    }

    fn place(&self, index: u32) -> Place {
        self.case.place(self.case.number(self.rank, index))
    }

    /// A copy that, in place, is of a chunk onto itself.
    fn vanishes(&self, step: &Step) -> bool {
        let copied = Action::Copy { source: Slot::Input, destination: Slot::Output };
        step.action == copied && self.layout.input(step.extent) == self.layout.output(step.extent)
    }

    fn bytes(&self, slot: Slot, extent: u32) -> Bytes {
        // Slots that a rank does not hold were refused before.
        let (input, output) =
            (self.layout.input(extent).unwrap_or(0), self.layout.output(extent).unwrap_or(0));
        match slot {
            Slot::Input if self.in_place && self.layout.output_extent(input).is_some() => {
                Bytes::Output(input)
            }
            Slot::Input => Bytes::Input(input),
            Slot::Output => Bytes::Output(output),
            Slot::Scratch(scratch) => Bytes::Scratch(scratch),
        }
    }

    /// Extents that surely have the same length have the same class.
    fn class(&self, index: u32) -> u32 {
        let extent = self.steps[index as usize].extent;
        if !self.in_place {
            return extent;
        }
        let location = self.layout.input(extent).or_else(|| self.layout.output(extent));
        location.unwrap_or(self.layout.width() + extent)
    }

    /// Whether what the step at `index` reads in `slot` was written, and not overwritten.
    fn written(&self, accesses: &Accesses, index: u32, slot: Slot) -> Checked<()> {
        let writer = accesses.last_write.map(|last| accesses.list[last].0);
        let place = self.place(index);
        match (slot, writer) {
            (Slot::Input, Some(by)) => Err(Fault::Overwritten { place, by: self.place(by) }),
            // In place, a copy onto itself is the writer, and out of place it was found missing if it is.
            (Slot::Output, None) if self.in_place || self.layout.starts_with_output() => Ok(()),
            (Slot::Output | Slot::Scratch(_), None) => Err(Fault::Unwritten { place, slot, holds: None }),
            (Slot::Scratch(_), Some(by)) => {
                let holds = self.steps[by as usize].extent;
                if holds == place.step.extent {
                    return Ok(());
                }
                Err(Fault::Unwritten { place, slot, holds: Some(holds) })
            }
            _ => Ok(()),
        }
    }

    /// Adds an access, after checking that it is ordered after all earlier ones it conflicts with.
    fn access(&self, accesses: &mut Accesses, index: u32, writes: bool) -> Checked<()> {
        accesses.mixed |=
            accesses.list.first().is_some_and(|(other, _)| self.class(*other) != self.class(index));
        // With one extent, the last writer and the readers since stand for all before them.
        let from = match accesses.last_write {
            Some(last) if !accesses.mixed => last,
            _ => 0,
        };
        for (earlier, wrote) in &accesses.list[from..] {
            if (writes || *wrote) && !self.ordered(*earlier, index) {
                return Err(Fault::Race { first: self.place(*earlier), second: self.place(index) });
            }
        }
        if writes {
            accesses.last_write = Some(accesses.list.len());
        }
        accesses.list.push((index, writes));
        Ok(())
    }

    /// Whether dependencies lead from `later` back to `earlier` over steps with the extents of these two. In place, a
    /// copy that vanishes is over when the call begins, so it waits for nobody.
    fn ordered(&self, earlier: u32, later: u32) -> bool {
        if self.dependencies(later).contains(&earlier) {
            return true;
        }
        let classes = [self.class(earlier), self.class(later)];
        let (mut waiting, mut seen) = (vec![later], vec![false; later as usize]);
        while let Some(index) = waiting.pop() {
            for dependency in self.dependencies(index) {
                if *dependency == earlier {
                    return true;
                }
                let vanishes = self.in_place && self.vanishes(&self.steps[*dependency as usize]);
                let fits = *dependency > earlier && !vanishes && classes.contains(&self.class(*dependency));
                if fits && !std::mem::replace(&mut seen[*dependency as usize], true) {
                    waiting.push(*dependency);
                }
            }
        }
        false
    }
}
