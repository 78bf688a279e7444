//! A plan: a schedule bound to a call's sizes. Each step has its bytes and places, and each link its steps in order.
//!
//! A plan has no data and no call number, so it serves every call of the same shape.

pub(crate) mod header;
mod in_place;
pub(crate) mod offset_table;
pub(crate) mod planner;
mod scheduled;
pub(crate) mod selector;
pub(crate) mod short;

use std::sync::Arc;

use unisono_communicator::{Collective, Counts, Descriptor, Error, Group, GroupRank, Place, Result, Sizes};
use unisono_schedule::{Action, Choice, Schedule, Slot, StepIndex};

use crate::links::{Edge, Lane};
use crate::memory::{ReduceOrder, Region, Span, Store};
use crate::plan::header::{HASH_START, PIECE_BYTES_MAX, hash_name, hash_word};
use crate::plan::offset_table::{OffsetTable, vector_elements};
use crate::plan::short::ShortSteps;

/// The default piece size, before it is divided among the scratch chunks. Measured: smaller pieces cost system calls,
/// larger pieces leave the cache.
pub const PIECE_BYTES: u64 = 512 * 1024;

/// The number of pieces in the window of a scratch chunk.
pub(crate) const WINDOW_PIECES: u64 = 2;

/// Calls of at least this size use one socket for each direction.
pub const LARGE_CALL_BYTES_MIN: u64 = 64 * 1024;

/// Outputs of at least this size are stored past the caches, where they would not fit, unless a step reads them again.
const STREAMED_BYTES_MIN: u64 = 8 * 1024 * 1024;

/// The number of a piece in a chunk: piece k starts k piece sizes after the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub(crate) struct PieceIndex(u64);

impl PieceIndex {
    /// The piece of byte `position` of a chunk.
    #[inline(always)]
    pub(crate) fn of(position: u64, piece_bytes: u64) -> PieceIndex {
        PieceIndex(position / piece_bytes)
    }

    /// The start of the piece in its chunk.
    #[inline(always)]
    pub(crate) fn start(self, piece_bytes: u64) -> u64 {
        self.0 * piece_bytes
    }

    /// The piece that comes `pieces` later.
    #[inline(always)]
    pub(crate) fn plus(self, pieces: u64) -> PieceIndex {
        PieceIndex(self.0 + pieces)
    }

    /// Whether a step of `pieces` pieces has this piece.
    #[inline(always)]
    pub(crate) fn is_within(self, pieces: u64) -> bool {
        self.0 < pieces
    }
}

/// The action of a step, with its places.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Send { source: Located },
    Recv { destination: Located },
    RecvReduce { operand: Located, destination: Located, order: ReduceOrder },
    Copy { source: Located, destination: Located },
}

/// The place of a chunk: in a buffer, or a window of two pieces in the scratch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Located {
    Buffer(Span),
    Window { offset: usize, slot_bytes: usize },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BoundStep {
    pub(crate) extent: u32,
    pub(crate) bytes: u64,
    /// The number of pieces; 1 for an empty step, which still has its turn in the order.
    pub(crate) pieces: u64,
    pub(crate) work: Work,
    /// The scratch chunk that this step writes, if any.
    pub(crate) writes_scratch: Option<u32>,
    /// The kind of store for this step's result.
    pub(crate) store: Store,
    /// For a copy: the send of the same bytes, if any. The copy comes after this send, while the bytes are in the
    /// cache.
    pub(crate) behind: Option<StepIndex>,
}

/// The steps of one link and direction, in list order.
#[derive(Clone, Debug)]
pub(crate) struct Direction {
    pub(crate) steps: Vec<StepIndex>,
    /// The number of pieces of the longest step; at least 1 if there is a step.
    pub(crate) pieces: u64,
    pub(crate) plan_hash: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct PlanLink {
    pub(crate) edge: Edge,
    pub(crate) send: Direction,
    pub(crate) recv: Direction,
}

/// The properties of a call that determine its plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlanKey {
    pub(crate) descriptor: Descriptor,
    pub(crate) counts: Counts,
    /// The ends of the segments of a coalesced call, in bytes.
    pub(crate) segment_ends: Option<Box<[usize]>>,
}

/// The identity of an algorithm, as ranks compare it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    name: &'static str,
    hash: u32,
    /// As [`CallAlgorithm::schedules`](unisono_communicator::CallAlgorithm::schedules).
    schedules: u32,
}

impl Identity {
    /// `digest` is of all ranks' schedules, if the name alone does not identify the algorithm.
    ///
    /// # Errors
    /// `InvalidArgument` when the process can keep no more names.
    pub(crate) fn of(choice: &Choice, digest: Option<u64>) -> Result<Identity> {
        let name =
            choice.static_name().map_err(|problem| Error::invalid("algorithm", problem.to_string()))?;
        let schedules = digest.map(|digest| (digest ^ digest >> 32) as u32);
        let hash = schedules.unwrap_or_else(|| hash_name(name));
        Ok(Identity { name, hash, schedules: schedules.unwrap_or(0) })
    }

    /// The name, and the hash of the schedules, for the board.
    pub(crate) fn named(&self) -> (&'static str, u32) {
        (self.name, self.schedules)
    }
}

/// A bound schedule.
pub(crate) struct Plan {
    /// The name of the algorithm, for errors, records and outcomes.
    pub(crate) algorithm: &'static str,
    pub(crate) algorithm_hash: u32,
    schedules_hash: u32,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) steps: Vec<BoundStep>,
    pub(crate) links: Vec<PlanLink>,
    pub(crate) edges: Vec<Edge>,
    pub(crate) copies: Vec<StepIndex>,
    pub(crate) element_bytes: u64,
    pub(crate) piece_bytes: u64,
    pub(crate) scratch_bytes: usize,
    /// The lengths that a call of this plan reports to other ranks besides its descriptor.
    pub(crate) sizes: Option<Arc<Sizes>>,
    /// The fewest bytes that are sent faster from where they lie: see [`in_place`].
    pub(crate) in_place_bytes_min: u64,
    /// The same steps, if they are so few and short that a call need not overlap them.
    pub(crate) short: Option<ShortSteps>,
}

impl Located {
    /// The place of byte `position` of the chunk. From there to the end of its piece, the region is contiguous.
    pub(crate) fn at(self, position: u64, piece_bytes: u64) -> Span {
        match self {
            Located::Buffer(span) => Span { offset: span.offset + position as usize, ..span },
            Located::Window { offset, slot_bytes } => {
                let slot = (PieceIndex::of(position, piece_bytes).0 % WINDOW_PIECES) as usize * slot_bytes;
                Span { region: Region::Scratch, offset: offset + slot + (position % piece_bytes) as usize }
            }
        }
    }
}

/// The piece size of a call: whole elements, at least one. It bounds the size of all windows together.
pub(crate) fn piece_bytes(request: Option<u64>, scratch_chunks: u32, element_bytes: u64) -> u64 {
    let bytes = request
        .map(|request| request.min(PIECE_BYTES_MAX))
        .unwrap_or(PIECE_BYTES / u64::from(scratch_chunks.max(1)));
    (bytes / element_bytes).max(1) * element_bytes
}

impl Plan {
    /// Binds this rank's `schedule` of the choice to a call. No message is sent from where it lies.
    pub(crate) fn new(
        choice: &Choice,
        schedule: Arc<Schedule>,
        key: &PlanKey,
        group: &Group,
        piece_bytes: u64,
        identity: Identity,
    ) -> Plan {
        let descriptor = &key.descriptor;
        let element_bytes = descriptor.dtype.bytes() as u64;
        // `piece_bytes` rounds to whole elements. A piece that ends inside an element would never finish, because
        // reduced bytes move in whole elements and a step stops at the end of its piece.
        assert!(piece_bytes > 0 && piece_bytes.is_multiple_of(element_bytes), "a piece is whole elements");
        let offsets =
            OffsetTable::new(choice.algorithm.collective, descriptor, &key.counts, group, schedule.chunks);
        let bytes_of = |extent| offsets.length(extent) * element_bytes;
        let touches_scratch = |step: &unisono_schedule::Step| slots(&step.action).iter().any(is_scratch);
        let longest_scratch = schedule
            .steps
            .iter()
            .filter(|step| touches_scratch(step))
            .map(|step| bytes_of(step.extent))
            .max();
        let slot_bytes = longest_scratch.unwrap_or(0).min(piece_bytes) as usize;
        let binder = Binder {
            offsets,
            element_bytes,
            piece_bytes,
            slot_bytes,
            in_place: descriptor.place == Place::InPlace,
        };
        let mut steps: Vec<BoundStep> = schedule.steps.iter().map(|step| binder.step(step)).collect();
        mind_caches(&schedule, &mut steps);
        let lane = lane_of(choice.algorithm.collective, key, group);
        let segment_ends = key.segment_ends.as_deref();
        let links = bind_links(&schedule, &steps, lane, plan_hash_start(segment_ends));
        let is_copy = |step: &unisono_schedule::Step| matches!(step.action, Action::Copy { .. });
        let copies = schedule.indexed().filter(|(_, step)| is_copy(step)).map(|(index, _)| index).collect();
        let mut plan = Plan {
            algorithm: identity.name,
            algorithm_hash: identity.hash,
            schedules_hash: identity.schedules,
            edges: links.iter().map(|link| link.edge).collect(),
            sizes: Sizes::of(descriptor.dtype, &key.counts, segment_ends).map(Arc::new),
            scratch_bytes: schedule.scratch_chunks as usize * WINDOW_PIECES as usize * slot_bytes,
            schedule,
            steps,
            links,
            copies,
            in_place_bytes_min: u64::MAX,
            element_bytes,
            piece_bytes,
            short: None,
        };

        plan.short = ShortSteps::of(&plan);
        plan
    }

    /// The algorithm's name, and the hash of its schedules, for the board.
    pub(crate) fn named(&self) -> (&'static str, u32) {
        (self.algorithm, self.schedules_hash)
    }

    /// The bound step at `index`.
    #[inline(always)]
    pub(crate) fn step(&self, index: StepIndex) -> &BoundStep {
        &self.steps[index.index()]
    }
}

/// Chooses the steps that store past the caches, and the copies that come after a send.
fn mind_caches(schedule: &Schedule, steps: &mut [BoundStep]) {
    let output_bytes: u64 = {
        let written = |step: &unisono_schedule::Step| step.action.writes() == Some(Slot::Output);
        let writes = schedule.steps.iter().zip(&*steps).filter(|(step, _)| written(step));
        writes.map(|(_, bound)| bound.bytes).sum()
    };
    let is_large = output_bytes >= STREAMED_BYTES_MIN;
    let reads_output = |step: &&unisono_schedule::Step| step.action.reads() == Some(Slot::Output);
    let mut read_again: Vec<u32> =
        schedule.steps.iter().filter(reads_output).map(|step| step.extent).collect();
    read_again.sort_unstable();
    for (step, bound) in schedule.steps.iter().zip(steps) {
        let writes_output = step.action.writes() == Some(Slot::Output);
        if is_large && writes_output && read_again.binary_search(&step.extent).is_err() {
            bound.store = Store::Streamed;
        }
        if let Action::Copy { source, .. } = step.action {
            let sends_it = |other: &unisono_schedule::Step| {
                other.extent == step.extent
                    && matches!(other.action, Action::Send { source: sent, .. } if sent == source)
            };
            bound.behind = schedule.indexed().rfind(|(_, other)| sends_it(other)).map(|(send, _)| send);
        }
    }
}

/// The lane of a call, from fields that both sides compare.
fn lane_of(collective: Collective, key: &PlanKey, group: &Group) -> Lane {
    let element_bytes = key.descriptor.dtype.bytes() as u64;
    match vector_elements(collective, key.descriptor.count, &key.counts, group.size()) {
        Some(elements) if elements.saturating_mul(element_bytes) < LARGE_CALL_BYTES_MIN => Lane::Small,
        Some(_) | None => Lane::Large,
    }
}

fn slots(action: &Action) -> [Slot; 2] {
    match *action {
        Action::Send { source, .. } => [source, source],
        Action::Recv { destination, .. } => [destination, destination],
        Action::RecvReduce { operand, destination, .. } => [operand, destination],
        Action::Copy { source, destination } => [source, destination],
    }
}

fn is_scratch(slot: &Slot) -> bool {
    matches!(slot, Slot::Scratch(_))
}

struct Binder {
    offsets: OffsetTable,
    element_bytes: u64,
    piece_bytes: u64,
    slot_bytes: usize,
    in_place: bool,
}

impl Binder {
    fn step(&self, step: &unisono_schedule::Step) -> BoundStep {
        let locate = |slot| self.locate(slot, step.extent);
        let (work, written) = match step.action {
            Action::Send { source, .. } => (Work::Send { source: locate(source) }, None),
            Action::Recv { destination, .. } => {
                (Work::Recv { destination: locate(destination) }, Some(destination))
            }
            Action::RecvReduce { operand, destination, operand_is_left, completes, .. } => {
                let order = ReduceOrder { operand_is_left, completes };
                let (operand, target) = (locate(operand), locate(destination));
                (Work::RecvReduce { operand, destination: target, order }, Some(destination))
            }
            Action::Copy { source, destination } => {
                (Work::Copy { source: locate(source), destination: locate(destination) }, Some(destination))
            }
        };
        let writes_scratch = match written {
            Some(Slot::Scratch(chunk)) => Some(chunk),
            Some(Slot::Input | Slot::Output) | None => None,
        };
        let bytes = self.offsets.length(step.extent) * self.element_bytes;
        let pieces = bytes.div_ceil(self.piece_bytes).max(1);
        let (store, behind) = (Store::Cached, None);
        BoundStep { extent: step.extent, bytes, pieces, work, writes_scratch, store, behind }
    }

    fn locate(&self, slot: Slot, extent: u32) -> Located {
        let span = |region, elements: u64| {
            Located::Buffer(Span { region, offset: (elements * self.element_bytes) as usize })
        };
        match slot {
            Slot::Input if self.in_place => span(Region::Output, self.offsets.input_offset(extent)),
            Slot::Input => span(Region::Input, self.offsets.input_offset(extent)),
            Slot::Output => span(Region::Output, self.offsets.output_offset(extent)),
            Slot::Scratch(chunk) => {
                let window_bytes = WINDOW_PIECES as usize * self.slot_bytes;
                Located::Window { offset: chunk as usize * window_bytes, slot_bytes: self.slot_bytes }
            }
        }
    }
}

/// The start value of a call's plan hashes. It makes segment lengths part of the plan hash of every link.
fn plan_hash_start(segment_ends: Option<&[usize]>) -> u64 {
    let Some(ends) = segment_ends else { return HASH_START };
    // The number of segments comes first: an empty list differs from no list.
    let words = std::iter::once(ends.len()).chain(ends.iter().copied());
    words.fold(HASH_START, |hash, word| hash_word(hash, word as u64))
}

fn bind_links(schedule: &Schedule, steps: &[BoundStep], lane: Lane, hash_start: u64) -> Vec<PlanLink> {
    let mut links: Vec<PlanLink> = Vec::new();
    let empty = || Direction { steps: Vec::new(), pieces: 0, plan_hash: hash_start };
    for (index, step) in schedule.indexed() {
        let (peer, sends) = match step.action {
            Action::Send { peer, .. } => (u32::from(peer), true),
            Action::Recv { peer, .. } | Action::RecvReduce { peer, .. } => (u32::from(peer), false),
            Action::Copy { .. } => continue,
        };
        let peer = GroupRank::new(peer);
        let position = links.iter().position(|link| link.edge.peer == peer).unwrap_or_else(|| {
            links.push(PlanLink { edge: Edge { peer, lane }, send: empty(), recv: empty() });
            links.len() - 1
        });
        let link = &mut links[position];
        let direction = if sends { &mut link.send } else { &mut link.recv };
        let bound = &steps[index.index()];
        direction.steps.push(index);
        direction.pieces = direction.pieces.max(bound.pieces);
        direction.plan_hash = hash_word(direction.plan_hash, bound.bytes);
    }
    links
}
