//! Proves, for any lengths and piece sizes, that conflicting steps of a rank are ordered, and that steps read the right
//! values.
//!
//! The hazards are recomputed from the steps alone. If two steps touch the same bytes and one of them writes, a path of
//! declared dependencies must join them, and every step on the path must have the extent of one of the two. Then piece
//! k of the later step waits for piece min(k, last) of the earlier one, *for any numbers of pieces*. A path over a
//! third, shorter extent would not imply this, nor would one over an empty extent, whose steps wait for piece 0 only.
//! An empty step touches no bytes and needs no order.
//!
//! The same paths make scratch windows safe. Let w write a piece that r reads, and let x be another writer whose piece
//! falls into the same half of the window. If x is before w in the list, its pieces up to k precede piece k of w by the
//! path, and its later pieces wait for piece k of r by the window rule. If x is after r, its pieces from k on follow
//! piece k of r by the path, and its earlier pieces precede piece k of w by the window rule.

use std::collections::HashMap;

use super::case::{Case, Checked};
use super::counterexample::{Fault, StepPlace};
use crate::{Action, Layout, Schedule, Slot, Step, StepIndex};

/// Checks every rank out of place and, unless the algorithm excludes it, in place.
pub(super) fn check(case: &Case<'_>) -> Checked<()> {
    for rank in 0..case.shape.ranks {
        Rank::new(case, rank, false).check()?;
        if !case.algorithm.requires.out_of_place {
            Rank::new(case, rank, true).check()?;
        }
    }
    Ok(())
}

/// Bytes that two steps may both touch.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Bytes {
    Input(u32),
    Output(u32),
    Scratch(u32),
}

/// The accesses to some bytes so far, as (index of the step, whether it writes).
#[derive(Default)]
struct Accesses {
    list: Vec<(StepIndex, bool)>,
    /// The position of the last write in the list.
    last_write: Option<usize>,
    /// Whether the accesses have several extents. With one extent, a step ordered after the last writer is ordered
    /// after all steps before that writer.
    mixed: bool,
}

struct Rank<'a> {
    case: &'a Case<'a>,
    layout: &'a Layout,
    schedule: &'a Schedule,
    rank: u32,
    in_place: bool,
}

impl<'a> Rank<'a> {
    fn new(case: &'a Case<'a>, rank: u32, in_place: bool) -> Self {
        let (layout, schedule) = (&case.layouts[rank as usize], &case.schedules[rank as usize]);
        Self { case, layout, schedule, rank, in_place }
    }

    fn check(&self) -> Checked<()> {
        let mut touched: HashMap<Bytes, Accesses> = HashMap::new();
        for (index, step) in self.schedule.indexed() {
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

    fn extent(&self, index: StepIndex) -> u32 {
        self.schedule.steps[index.index()].extent
    }

    fn place(&self, index: StepIndex) -> StepPlace {
        self.case.place(self.case.number(self.rank, index))
    }

    /// Whether a step copies, in place, a chunk onto itself.
    fn vanishes(&self, step: &Step) -> bool {
        let copied = Action::Copy { source: Slot::Input, destination: Slot::Output };
        step.action == copied && self.layout.input(step.extent) == self.layout.output(step.extent)
    }

    fn bytes(&self, slot: Slot, extent: u32) -> Bytes {
        // `structure` has refused slots that a rank does not hold.
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

    /// The class of an extent: extents of one class have the same length in every call.
    fn class(&self, index: StepIndex) -> u32 {
        let extent = self.extent(index);
        if !self.in_place {
            return extent;
        }
        let location = self.layout.input(extent).or_else(|| self.layout.output(extent));
        location.unwrap_or(self.layout.width() + extent)
    }

    /// Checks that the bytes which the step at `index` reads in `slot` were written, and not overwritten since.
    fn written(&self, accesses: &Accesses, index: StepIndex, slot: Slot) -> Checked<()> {
        let writer = accesses.last_write.map(|last| accesses.list[last].0);
        let place = self.place(index);
        match (slot, writer) {
            (Slot::Input, Some(by)) => Err(Fault::Overwritten { place, by: self.place(by) }),
            // In place, a copy onto itself counts as the writer. The check out of place has found it if it is missing.
            (Slot::Output, None) if self.in_place || self.layout.starts_with_output() => Ok(()),
            (Slot::Output | Slot::Scratch(_), None) => Err(Fault::Unwritten { place, slot, holds: None }),
            (Slot::Scratch(_), Some(by)) => {
                let holds = self.extent(by);
                if holds == place.step.extent {
                    return Ok(());
                }
                Err(Fault::Unwritten { place, slot, holds: Some(holds) })
            }
            _ => Ok(()),
        }
    }

    /// Adds an access, after checking that it is ordered after all earlier accesses with which it conflicts.
    fn access(&self, accesses: &mut Accesses, index: StepIndex, writes: bool) -> Checked<()> {
        accesses.mixed |=
            accesses.list.first().is_some_and(|(other, _)| self.class(*other) != self.class(index));
        // With one extent, the last writer and the readers since suffice: they are ordered after all steps before them.
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

    /// Whether dependencies lead from `later` back to `earlier`, over steps with the extents of these two. In place, no
    /// path goes over a copy onto itself, which ends at once and waits for nothing.
    fn ordered(&self, earlier: StepIndex, later: StepIndex) -> bool {
        if self.schedule.dependencies(later).contains(&earlier) {
            return true;
        }
        let classes = [self.class(earlier), self.class(later)];
        let (mut waiting, mut seen) = (vec![later], vec![false; later.index()]);
        while let Some(index) = waiting.pop() {
            for dependency in self.schedule.dependencies(index) {
                if *dependency == earlier {
                    return true;
                }
                let vanishes = self.in_place && self.vanishes(&self.schedule.steps[dependency.index()]);
                let fits = *dependency > earlier && !vanishes && classes.contains(&self.class(*dependency));
                if fits && !std::mem::replace(&mut seen[dependency.index()], true) {
                    waiting.push(*dependency);
                }
            }
        }
        false
    }
}
