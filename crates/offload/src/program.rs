//! A call as a vendor's library runs it: a short list of the library's calls, copies and scalings over spans of the
//! call's memory.

use smallvec::SmallVec;
use unisono_communicator::DType;

use crate::device::{Combination, Scale};
use crate::vendor::Elements;

/// The memory that a span lies in. In a call in place, input and output are the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Region {
    Input,
    Output,
    Scratch,
}

/// Some bytes of a call's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) region: Region,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

impl Span {
    /// The first bytes of a region.
    pub(crate) fn whole(region: Region, bytes: usize) -> Span {
        Span { region, offset: 0, bytes }
    }

    /// A part of the span.
    pub(crate) fn part(self, offset: usize, bytes: usize) -> Span {
        Span { offset: self.offset + offset, bytes, ..self }
    }
}

/// One step. The library's calls are of the same kinds on every rank. Copies and scalings differ by rank.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    AllReduce {
        from: Span,
        to: Span,
        elements: Elements,
    },
    /// Only the root has `to`.
    Reduce {
        from: Span,
        to: Option<Span>,
        elements: Elements,
        root: u32,
    },
    ReduceScatter {
        from: Span,
        to: Span,
        elements: Elements,
    },
    Broadcast {
        buffer: Span,
        root: u32,
    },
    AllGather {
        from: Span,
        to: Span,
    },
    /// `part` bytes go to each rank.
    AllToAll {
        from: Span,
        to: Span,
        part: usize,
    },
    /// Lengths in bytes.
    AllToAllV {
        from: Span,
        send: Vec<usize>,
        to: Span,
        receive: Vec<usize>,
    },
    /// Only the root has `to`.
    Gather {
        from: Span,
        to: Option<Span>,
        root: u32,
    },
    /// Only the root has `from`.
    Scatter {
        from: Option<Span>,
        to: Span,
        root: u32,
    },
    GroupStart,
    GroupEnd,
    Send {
        from: Span,
        peer: u32,
    },
    Recv {
        to: Span,
        peer: u32,
    },
    Copy {
        from: Span,
        to: Span,
    },
    Scale {
        buffer: Span,
        dtype: DType,
        by: Scale,
    },
    /// `to` may be one of the operands.
    Combine {
        left: Span,
        right: Span,
        to: Span,
        dtype: DType,
        by: Combination,
    },
}

impl Step {
    /// The span that the step writes on this rank.
    fn writes(&self) -> Option<Span> {
        match self {
            Step::AllReduce { to, .. }
            | Step::ReduceScatter { to, .. }
            | Step::AllGather { to, .. }
            | Step::AllToAll { to, .. }
            | Step::AllToAllV { to, .. }
            | Step::Scatter { to, .. }
            | Step::Recv { to, .. }
            | Step::Copy { to, .. }
            | Step::Combine { to, .. }
            | Step::Broadcast { buffer: to, .. }
            | Step::Scale { buffer: to, .. } => Some(*to),
            Step::Reduce { to, .. } | Step::Gather { to, .. } => *to,
            Step::GroupStart | Step::GroupEnd | Step::Send { .. } => None,
        }
    }
}

/// The steps of a call on one rank.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Program {
    /// Most calls are one step, which needs no allocation.
    pub(crate) steps: SmallVec<[Step; 1]>,
    pub(crate) scratch_bytes: usize,
}

impl Program {
    /// The spans of the output that steps write.
    pub(crate) fn written(&self) -> impl Iterator<Item = Span> {
        let output = |span: &Span| span.region == Region::Output;
        self.steps.iter().filter_map(Step::writes).filter(output)
    }

    /// Adds scratch memory.
    pub(crate) fn scratch(&mut self, bytes: usize) -> Span {
        let span = Span { region: Region::Scratch, offset: self.scratch_bytes, bytes };
        // Every part is aligned for any element.
        self.scratch_bytes += bytes.next_multiple_of(SCRATCH_ALIGN);
        span
    }

    pub(crate) fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Adds a copy, unless both spans are the same bytes.
    pub(crate) fn copy(&mut self, from: Span, to: Span) {
        if from != to && from.bytes > 0 {
            self.push(Step::Copy { from, to });
        }
    }
}

/// The alignment of scratch memory.
pub(crate) const SCRATCH_ALIGN: usize = 64;
