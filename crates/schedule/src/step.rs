//! One step of a schedule: a transfer or a copy of one chunk.

use std::fmt;

/// The index of a step in the list of its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct StepIndex(u32);

impl StepIndex {
    /// The step at `index` of a list of fewer than 2^32 steps.
    pub const fn new(index: usize) -> Self {
        Self(index as u32)
    }

    /// This index, for use with slices.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for StepIndex {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The buffer of a chunk. The step's extent gives the place in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Slot {
    /// The caller's input. No step writes it, but in a call in place its bytes are also the output.
    Input,
    /// The caller's output.
    Output,
    /// A scratch chunk of the engine: a window of two pieces, with piece k at position k modulo 2.
    Scratch(u32),
}

/// The action of a step on its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send the chunk to `peer`.
    Send {
        /// The rank that receives.
        peer: u16,
        /// The slot that is read.
        source: Slot,
    },
    /// Receive the chunk from `peer`.
    Recv {
        /// The rank that sends.
        peer: u16,
        /// The slot that is written.
        destination: Slot,
    },
    /// Receive the chunk from `peer` and reduce it with `operand` into `destination`.
    RecvReduce {
        /// The rank that sends.
        peer: u16,
        /// The local operand.
        operand: Slot,
        /// The slot that is written; it may be the operand's.
        destination: Slot,
        /// Whether the local operand is the left one: `operand + wire`, else `wire + operand`.
        operand_is_left: bool,
        /// Whether the result has the contributions of all ranks; then a final scaling, such as an average's, is
        /// applied.
        completes: bool,
    },
    /// Copy the chunk between slots. In a call in place both may be the same bytes; then there is nothing to do.
    Copy {
        /// The slot that is read.
        source: Slot,
        /// The slot that is written.
        destination: Slot,
    },
}

/// One step: an action on the chunk that `extent` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// Index into the table of offsets and lengths that the call fills in.
    pub extent: u32,
    /// The action.
    pub action: Action,
}

/// The largest size of a [`Step`], so that lists of steps stay in cache.
pub const STEP_BYTES_MAX: usize = 24;
const _: () = assert!(size_of::<Step>() <= STEP_BYTES_MAX);

impl Action {
    /// A rank as the `peer` of a step. A rank that does not fit becomes 65535; no group has that rank, so the check of
    /// the schedule refuses it.
    pub const fn peer(rank: u32) -> u16 {
        if rank < u16::MAX as u32 { rank as u16 } else { u16::MAX }
    }

    /// The rank at the other end, and whether this side sends; `None` for a copy.
    pub const fn link(&self) -> Option<(u16, bool)> {
        match *self {
            Self::Send { peer, .. } => Some((peer, true)),
            Self::Recv { peer, .. } | Self::RecvReduce { peer, .. } => Some((peer, false)),
            Self::Copy { .. } => None,
        }
    }

    /// The local slot that is read.
    pub const fn reads(&self) -> Option<Slot> {
        match *self {
            Self::Send { source, .. } | Self::Copy { source, .. } => Some(source),
            Self::RecvReduce { operand, .. } => Some(operand),
            Self::Recv { .. } => None,
        }
    }

    /// The local slot that is written.
    pub const fn writes(&self) -> Option<Slot> {
        match *self {
            Self::Recv { destination, .. }
            | Self::RecvReduce { destination, .. }
            | Self::Copy { destination, .. } => Some(destination),
            Self::Send { .. } => None,
        }
    }
}
