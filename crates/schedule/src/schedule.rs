//! A schedule: the steps of one rank, and the steps that each waits for.

use std::fmt;

use crate::{Action, Slot, Step, StepIndex};

/// The steps of one rank, in order.
///
/// A schedule has no pointers, bytes, element types or sockets. The page of the crate defines how steps wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The rank whose steps these are.
    pub rank: u32,
    /// The number of extents.
    pub chunks: u32,
    /// The number of scratch chunks of this rank.
    pub scratch_chunks: u32,
    /// The steps.
    pub steps: Vec<Step>,
    dependencies: Lists,
    scratch_steps: Lists,
    /// For each step, whether it is a buffered send.
    buffered: Vec<bool>,
}

impl Schedule {
    /// A schedule in which step i waits for the earlier steps `dependencies[i]`.
    ///
    /// For schedules that no [`crate::Builder`] made. Nothing is checked here: the verifier does that.
    ///
    /// ```
    /// # mod unisono { pub use unisono_schedule as schedule; }
    /// use unisono::schedule::{Action, Schedule, Slot, Step, StepIndex};
    /// let copy = Step { extent: 0, action: Action::Copy { source: Slot::Input, destination: Slot::Output } };
    /// let schedule = Schedule::new(0, 1, 0, vec![copy], &[vec![]]);
    /// assert!(schedule.dependencies(StepIndex::new(0)).is_empty());
    /// ```
    pub fn new(
        rank: u32,
        chunks: u32,
        scratch_chunks: u32,
        steps: Vec<Step>,
        dependencies: &[Vec<StepIndex>],
    ) -> Self {
        let mut touching = vec![Vec::new(); scratch_chunks as usize];
        for (index, step) in indexed(&steps) {
            let (read, written) = (step.action.reads(), step.action.writes());
            let written = written.filter(|slot| Some(*slot) != read);
            for slot in [read, written].into_iter().flatten() {
                // The verifier reports a slot out of range.
                if let Slot::Scratch(scratch) = slot
                    && let Some(list) = touching.get_mut(scratch as usize)
                {
                    list.push(index);
                }
            }
        }
        let dependencies =
            Lists::new((0..steps.len()).map(|step| dependencies.get(step).map_or(&[][..], |d| d)));
        let scratch_steps = Lists::new(touching.iter().map(Vec::as_slice));
        let buffered = buffered(&steps, &dependencies);
        Self { rank, chunks, scratch_chunks, steps, dependencies, scratch_steps, buffered }
    }

    /// The steps with their indices, in order.
    pub fn indexed(&self) -> impl DoubleEndedIterator<Item = (StepIndex, &Step)> {
        indexed(&self.steps)
    }

    /// The earlier steps that `step` waits for, ascending. Its piece k waits for piece min(k, last) of each.
    #[inline]
    pub fn dependencies(&self, step: StepIndex) -> &[StepIndex] {
        self.dependencies.get(step.index())
    }

    /// Whether `step` is a send that must be buffered, as in MPI's buffered mode: the link copies the bytes, so that
    /// they may be overwritten at once.
    ///
    /// Such a send has a reduction of the same extent waiting for it, as in an exchange, where each peer adds to the
    /// value that it has sent. If the send lasted until the peer has received it, both peers would wait for ever.
    pub fn is_buffered(&self, step: StepIndex) -> bool {
        self.buffered[step.index()]
    }

    /// The steps that read or write a scratch chunk, in order.
    pub fn scratch_steps(&self, scratch: u32) -> &[StepIndex] {
        self.scratch_steps.get(scratch as usize)
    }
}

fn indexed(steps: &[Step]) -> impl DoubleEndedIterator<Item = (StepIndex, &Step)> {
    steps.iter().enumerate().map(|(index, step)| (StepIndex::new(index), step))
}

fn buffered(steps: &[Step], dependencies: &Lists) -> Vec<bool> {
    let mut buffered = vec![false; steps.len()];
    let reductions = indexed(steps).filter(|(_, step)| matches!(step.action, Action::RecvReduce { .. }));
    for (index, step) in reductions {
        for earlier in dependencies.get(index.index()) {
            // The verifier reports a dependency that does not exist.
            let Some(other) = steps.get(earlier.index()) else { continue };
            buffered[earlier.index()] |=
                other.extent == step.extent && matches!(other.action, Action::Send { .. });
        }
    }
    buffered
}

/// Lists of step indices (compressed sparse rows).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lists {
    starts: Vec<u32>,
    items: Vec<StepIndex>,
}

impl Lists {
    fn new<'a>(lists: impl Iterator<Item = &'a [StepIndex]>) -> Self {
        let mut made = Self { starts: vec![0], items: Vec::new() };
        for list in lists {
            made.items.extend_from_slice(list);
            made.starts.push(made.items.len() as u32);
        }
        made
    }

    #[inline]
    fn get(&self, list: usize) -> &[StepIndex] {
        &self.items[self.starts[list] as usize..self.starts[list + 1] as usize]
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input => formatter.pad("input"),
            Self::Output => formatter.pad("output"),
            Self::Scratch(scratch) => formatter.pad(&format!("scratch {scratch}")),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extent = format!("extent {}", self.extent);
        match self.action {
            Action::Send { peer, source } => {
                write!(formatter, "{:<11}  to   {peer:<4}  {extent:<10}  {source} -> wire", "send")
            }
            Action::Recv { peer, destination } => {
                write!(formatter, "{:<11}  from {peer:<4}  {extent:<10}  wire -> {destination}", "recv")
            }
            Action::RecvReduce { peer, operand, destination, operand_is_left, completes } => {
                write!(formatter, "{:<11}  from {peer:<4}  {extent:<10}  ", "recv_reduce")?;
                match operand_is_left {
                    true => write!(formatter, "{operand} + wire -> {destination}")?,
                    false => write!(formatter, "wire + {operand} -> {destination}")?,
                }
                formatter.write_str(if completes { ", complete" } else { "" })
            }
            Action::Copy { source, destination } => {
                write!(formatter, "{:<11}  {:<9}  {extent:<10}  {source} -> {destination}", "copy", "")
            }
        }
    }
}

/// One line per step, for people.
///
/// ```
/// let ring = unisono_schedule::find_by_name("all_reduce/ring").unwrap();
/// let text = ring.schedule(&unisono_schedule::Shape::new(2), 0).to_string();
/// assert!(text.contains("recv_reduce  from 1     extent 0    wire + input -> output, complete"), "{text}");
/// ```
impl fmt::Display for Schedule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, chunks, scratch_chunks, .. } = self;
        writeln!(formatter, "rank {rank}: {chunks} extents, {scratch_chunks} scratch chunks")?;
        for (index, step) in self.indexed() {
            let line = format!("{index:>5}  {step}");
            match self.dependencies(index) {
                [] => writeln!(formatter, "{line}")?,
                list => {
                    let list: Vec<String> = list.iter().map(StepIndex::to_string).collect();
                    writeln!(formatter, "{line:<75}  after {}", list.join(", "))?;
                }
            }
        }
        Ok(())
    }
}
