//! Finds the earlier steps that a step must wait for, because both touch the same bytes.

use std::collections::HashMap;

use crate::{Action, Layout, Slot, Step, StepIndex};

/// The accesses so far, recorded for a call out of place and for a call in place.
///
/// A schedule serves both calls. Out of place, a copy from input to output is a write. In place, the copy does nothing,
/// but every other write to the output overwrites the input.
#[derive(Debug)]
pub(crate) struct Hazards {
    layout: Layout,
    in_place: bool,
    apart: HashMap<ChunkSlot, History>,
    together: HashMap<u32, History>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ChunkSlot {
    Output(u32),
    Scratch(u32),
}

impl Hazards {
    pub(crate) fn new(layout: Layout, in_place: bool) -> Self {
        Self { layout, in_place, apart: HashMap::new(), together: HashMap::new() }
    }

    /// Adds the accesses of `step`. Returns the steps to wait for, unsorted and possibly with repetitions.
    pub(crate) fn access(&mut self, index: StepIndex, step: &Step) -> Vec<StepIndex> {
        let mut found = Vec::new();
        let (read, written) = (step.action.reads(), step.action.writes());
        if let Some(place) = read.and_then(|slot| self.place(slot, step.extent)) {
            self.apart.entry(place).or_default().read(index, &mut found);
        }
        if let Some(place) = written.and_then(|slot| self.place(slot, step.extent)) {
            self.apart.entry(place).or_default().write(index, step.extent, &mut found);
        }
        if self.in_place && !self.vanishes(step) {
            if let Some(location) = read.and_then(|slot| self.location(slot, step.extent)) {
                self.together.entry(location).or_default().read(index, &mut found);
            }
            if let Some(location) = written.and_then(|slot| self.location(slot, step.extent)) {
                // In place, a location has one length, under each of its extents.
                self.together.entry(location).or_default().write(index, location, &mut found);
            }
        }
        found
    }

    /// Out of place no step writes the input, so only outputs and scratch chunks matter.
    fn place(&self, slot: Slot, extent: u32) -> Option<ChunkSlot> {
        match slot {
            Slot::Input => None,
            Slot::Output => self.layout.output(extent).map(ChunkSlot::Output),
            Slot::Scratch(scratch) => Some(ChunkSlot::Scratch(scratch)),
        }
    }

    /// The location of a slot in a call in place, where input and output share memory. `None` for an input that the
    /// output does not contain, and for scratch, which `place` handles.
    fn location(&self, slot: Slot, extent: u32) -> Option<u32> {
        match slot {
            Slot::Input => {
                self.layout.input(extent).filter(|location| self.layout.output_extent(*location).is_some())
            }
            Slot::Output => self.layout.output(extent),
            Slot::Scratch(_) => None,
        }
    }

    /// Whether a copy goes from a chunk onto itself.
    fn vanishes(&self, step: &Step) -> bool {
        let copied = Action::Copy { source: Slot::Input, destination: Slot::Output };
        step.action == copied && self.layout.input(step.extent) == self.layout.output(step.extent)
    }
}

/// The steps that touched some bytes: the last writer, and the readers since. When a scratch chunk changes its extent,
/// the writer also waits for all earlier steps. The reason: extents differ in length, so the steps of a short extent do
/// not cover the later pieces of a longer one.
#[derive(Debug, Default)]
struct History {
    extent: u32,
    writer: Option<StepIndex>,
    readers: Vec<StepIndex>,
    retired: Vec<StepIndex>,
}

impl History {
    fn read(&mut self, index: StepIndex, found: &mut Vec<StepIndex>) {
        found.extend(self.writer);
        self.readers.push(index);
    }

    fn write(&mut self, index: StepIndex, extent: u32, found: &mut Vec<StepIndex>) {
        // A reduction into its own operand was just added as a reader.
        self.readers.retain(|reader| *reader != index);
        found.extend(self.writer);
        found.append(&mut self.readers.clone());
        if self.writer.is_some() && self.extent != extent {
            self.retired.extend(self.writer);
            self.retired.append(&mut self.readers);
            found.extend_from_slice(&self.retired);
        }
        self.readers.clear();
        self.writer = Some(index);
        self.extent = extent;
    }
}
