//! The builder: an algorithm lists sends and receives, and the builder infers which steps wait for which.

use std::collections::HashMap;

use crate::hazards::Hazards;
use crate::{Action, Collective, Layout, Schedule, Shape, Slot, Step, StepIndex};

/// The side of the local operand in a reduction. It decides the order of operands, and so the bits of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// `own + wire`.
    Left,
    /// `wire + own`.
    Right,
}

/// Collects the steps of one rank.
///
/// The builder knows where this rank's newest value of each extent is ([`Builder::value`]) and where its next value
/// belongs ([`Builder::place`]). So the same code serves all-reduce, with partial sums in the output, and
/// reduce-scatter, with partial sums in scratch. It infers dependencies for calls out of place and in place.
///
/// ```
/// # mod unisono { pub use unisono_schedule::*; pub use unisono_schedule as schedule; }
/// use unisono::Collective;
/// use unisono::schedule::{Builder, Own, Shape};
/// // All-reduce of two ranks, as rank 0 does it: exchange everything, the lower rank's value on the left.
/// let mut builder = Builder::new(Collective::AllReduce, &Shape::new(2), 0, 1);
/// let sent = builder.send(1, 0);
/// let received = builder.recv_reduce(1, 0, Own::Left, true);
/// let schedule = builder.finish();
/// /// // In place the receive overwrites the bytes that the send reads.
/// assert_eq!(schedule.dependencies(received), [sent]);
/// ```
#[derive(Debug)]
pub struct Builder {
    collective: Collective,
    shape: Shape,
    rank: u32,
    chunks: u32,
    layout: Layout,
    steps: Vec<Step>,
    dependencies: Vec<Vec<StepIndex>>,
    scratch_chunks: u32,
    /// The slot of each extent's newest value, if this rank has written one.
    values: HashMap<u32, Slot>,
    /// The scratch chunk of each extent that the output does not hold.
    scratch_of: HashMap<u32, Slot>,
    hazards: Hazards,
}

impl Builder {
    /// An empty schedule for `rank`, whose vector is cut into `chunks`. It is right in place and out of place.
    pub fn new(collective: Collective, shape: &Shape, rank: u32, chunks: u32) -> Self {
        Self::with_aliasing(collective, shape, rank, chunks, true)
    }

    /// As [`Builder::new`]. Without `in_place` the schedule has fewer dependencies, and is right out of place only.
    pub fn with_aliasing(
        collective: Collective,
        shape: &Shape,
        rank: u32,
        chunks: u32,
        in_place: bool,
    ) -> Self {
        let layout = Layout::new(collective, shape, rank, chunks);
        Self {
            collective,
            shape: *shape,
            rank,
            chunks,
            layout,
            steps: Vec::new(),
            dependencies: Vec::new(),
            scratch_chunks: 0,
            values: HashMap::new(),
            scratch_of: HashMap::new(),
            hazards: Hazards::new(layout, in_place),
        }
    }

    /// The collective.
    pub fn collective(&self) -> Collective {
        self.collective
    }

    /// The shape of the group.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The rank of the steps.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of ranks.
    pub fn ranks(&self) -> u32 {
        self.shape.ranks
    }

    /// The root.
    pub fn root(&self) -> u32 {
        self.shape.root
    }

    /// The number of extents.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// The rank `distance` after this rank, modulo the number of ranks.
    pub fn ahead(&self, distance: u32) -> u32 {
        (self.rank + distance) % self.shape.ranks
    }

    /// The rank `distance` before this rank, modulo the number of ranks; `distance` is at most that number.
    pub fn behind(&self, distance: u32) -> u32 {
        (self.rank + self.shape.ranks - distance) % self.shape.ranks
    }

    /// The slot of this rank's newest value of `extent`: the last written value, or else the initial one.
    pub fn value(&self, extent: u32) -> Slot {
        let initial = if self.layout.starts_with_output() { Slot::Output } else { Slot::Input };
        self.values.get(&extent).copied().unwrap_or(initial)
    }

    /// The slot for a value of `extent`: the output if it holds that extent, else a scratch chunk.
    pub fn place(&mut self, extent: u32) -> Slot {
        if self.layout.output(extent).is_some() {
            return Slot::Output;
        }
        if let Some(slot) = self.scratch_of.get(&extent) {
            return *slot;
        }
        let slot = self.scratch();
        self.scratch_of.insert(extent, slot);
        slot
    }

    /// A new scratch chunk. Use it for one extent only: extents that share a chunk wait for each other.
    pub fn scratch(&mut self) -> Slot {
        self.scratch_chunks += 1;
        Slot::Scratch(self.scratch_chunks - 1)
    }

    /// Sends this rank's newest value of `extent`. Returns the index of the step, as the following functions do.
    pub fn send(&mut self, peer: u32, extent: u32) -> StepIndex {
        let source = self.value(extent);
        self.push(extent, Action::Send { peer: Action::peer(peer), source })
    }

    /// Receives `extent` into its place.
    pub fn recv(&mut self, peer: u32, extent: u32) -> StepIndex {
        let destination = self.place(extent);
        self.push(extent, Action::Recv { peer: Action::peer(peer), destination })
    }

    /// Sends the newest values of several extents to one peer.
    pub fn send_all(&mut self, peer: u32, extents: impl IntoIterator<Item = u32>) {
        for extent in extents {
            self.send(peer, extent);
        }
    }

    /// Receives several extents from one peer into their places.
    pub fn recv_all(&mut self, peer: u32, extents: impl IntoIterator<Item = u32>) {
        for extent in extents {
            self.recv(peer, extent);
        }
    }

    /// Receives `extent`, and reduces it with the newest value into its place.
    ///
    /// `completes` says that the result has the contributions of all ranks.
    pub fn recv_reduce(&mut self, peer: u32, extent: u32, own: Own, completes: bool) -> StepIndex {
        let (operand, destination) = (self.value(extent), self.place(extent));
        let operand_is_left = own == Own::Left;
        let action =
            Action::RecvReduce { peer: Action::peer(peer), operand, destination, operand_is_left, completes };
        self.push(extent, action)
    }

    /// Copies the newest value of `extent` to the output, unless it is there already.
    pub fn deliver(&mut self, extent: u32) {
        let source = self.value(extent);
        if source != Slot::Output {
            self.push(extent, Action::Copy { source, destination: Slot::Output });
        }
    }

    /// Adds a step.
    pub fn push(&mut self, extent: u32, action: Action) -> StepIndex {
        let index = StepIndex::new(self.steps.len());
        let step = Step { extent, action };
        self.dependencies.push(self.hazards.access(index, &step));
        self.steps.push(step);
        if let Some(slot) = action.writes() {
            self.values.insert(extent, slot);
        }
        index
    }

    /// Makes `step` wait for `earlier` although they share no chunk.
    ///
    /// # Panics
    /// If `earlier` is not before `step`.
    pub fn after(&mut self, step: StepIndex, earlier: StepIndex) {
        assert!(earlier < step, "step {step} can only wait for an earlier step than itself, not {earlier}");
        self.dependencies[step.index()].push(earlier);
    }

    /// The schedule.
    pub fn finish(mut self) -> Schedule {
        for list in &mut self.dependencies {
            list.sort_unstable();
            list.dedup();
        }
        Schedule::new(self.rank, self.chunks, self.scratch_chunks, self.steps, &self.dependencies)
    }
}
