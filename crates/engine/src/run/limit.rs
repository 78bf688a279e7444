//! How far a step may go: the smallest watermark of what it depends on.

use crate::plan::{Direction, Work};

use super::{Cursor, FINISHED, PieceOf, Run};

/// A run of bytes of one step that may be sent or stored now.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) step: u32,
    pub(super) start: u64,
    pub(super) bytes: u64,
}

impl Part {
    /// A place to be filled.
    pub(super) const NONE: Part = Part { step: 0, start: 0, bytes: 0 };
}

impl Run {
    /// What of a piece may move now, at most `room` bytes. A step without bytes is a part of its own once it may
    /// finish; what is reduced moves in whole elements.
    pub(super) fn part(&self, piece: PieceOf, room: u64) -> Option<Part> {
        // A gather that comes to the next piece of a step must not start at the watermark, which is still behind.
        let start = self.done[piece.step as usize].max(piece.start);
        if piece.end == 0 {
            return self.may_finish_empty(piece.step).then_some(Part {
                step: piece.step,
                start: 0,
                bytes: 0,
            });
        }
        let mut end = self.limit(piece.step).min(piece.end).min(start.saturating_add(room));
        if matches!(self.plan.steps[piece.step as usize].work, Work::RecvReduce { .. }) {
            end -= end % self.plan.element_bytes;
        }
        (end > start).then(|| Part { step: piece.step, start, bytes: end - start })
    }

    /// What may move next behind a cursor, if anything may.
    pub(super) fn next_part(&self, mut cursor: Cursor, direction: &Direction) -> Option<Part> {
        self.part(cursor.piece(&self.plan, direction)?, u64::MAX)
    }

    /// The byte up to which `step` may go now.
    ///
    /// Steps of one extent have the same bytes, so their watermarks compare exactly. Others wait piece by piece:
    /// piece k for piece k, or for the end of a shorter step. A write to a scratch window also waits until nobody
    /// still needs the piece that it overwrites.
    pub(super) fn limit(&self, step: u32) -> u64 {
        let plan = &*self.plan;
        let bound = &plan.steps[step as usize];
        let mut limit = bound.bytes;
        for &earlier in plan.schedule.dependencies(step as usize) {
            let done = self.done[earlier as usize];
            if done == FINISHED {
                continue;
            }
            let same = plan.steps[earlier as usize].extent == bound.extent;
            limit = limit.min(if same { done } else { done / plan.piece_bytes * plan.piece_bytes });
        }
        match bound.writes_scratch {
            Some(chunk) => limit.min(self.window_limit(step, chunk)),
            None => limit,
        }
    }

    /// Piece k may be written once every other step on the window has passed piece k - 2.
    fn window_limit(&self, step: u32, chunk: u32) -> u64 {
        let plan = &*self.plan;
        let others = plan.schedule.scratch_steps(chunk).iter().filter(|&&other| other != step);
        let unfinished = others.map(|&other| self.done[other as usize]).filter(|&done| done != FINISHED);
        match unfinished.min() {
            Some(done) => (done / plan.piece_bytes + 2) * plan.piece_bytes,
            None => u64::MAX,
        }
    }

    /// Whether a step without bytes may finish: nothing that it depends on is open.
    pub(super) fn may_finish_empty(&self, step: u32) -> bool {
        let dependencies = self.plan.schedule.dependencies(step as usize);
        dependencies.iter().all(|&earlier| self.done[earlier as usize] == FINISHED)
    }
}
