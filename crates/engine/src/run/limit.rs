//! How far a step may go: the smallest watermark of what it depends on.

use unisono_schedule::StepIndex;

use crate::plan::{Direction, PieceIndex, Plan, WINDOW_PIECES, Work};

use super::{Cursor, FINISHED, PieceOf, State};

/// A run of bytes of one step that may be sent or stored now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) step: StepIndex,
    pub(super) start: u64,
    pub(super) bytes: u64,
    /// Whether it reaches the end of its piece.
    pub(super) ends_piece: bool,
    /// Where its direction's cursor found the piece.
    pub(super) at: Cursor,
}

/// What a piece may do.
pub(super) enum Next {
    /// These bytes may move now.
    Part(Part),
    /// Nothing until this step moves.
    Blocked(StepIndex),
}

/// The byte up to which a step may go, and the step that keeps it from going further.
#[derive(Clone, Copy)]
struct Limit {
    bytes: u64,
    by: StepIndex,
}

impl Limit {
    fn lower(&mut self, bytes: u64, by: StepIndex) {
        if bytes < self.bytes {
            *self = Limit { bytes, by };
        }
    }
}

impl State {
    /// What of a piece may move now, at most `room` bytes. A step without bytes is a part of its own once it may
    /// finish. What is reduced moves in whole elements, so `room` for a first part must be an element at least:
    /// `STAGE_BYTES` and [`Plan::new`] see to it.
    #[inline(always)]
    pub(super) fn part(&self, plan: &Plan, piece: PieceOf, room: u64) -> Next {
        if piece.end == 0 {
            return match self.blocker_of_empty(plan, piece.step) {
                Some(by) => Next::Blocked(by),
                None => {
                    Next::Part(Part { step: piece.step, start: 0, bytes: 0, ends_piece: true, at: piece.at })
                }
            };
        }
        // A gather that comes to the next piece of a step must not start at the watermark, which is still behind.
        let start = self.done[piece.step.index()].max(piece.start);
        let limit = self.limit(plan, piece.step);
        let mut end = limit.bytes.min(piece.end).min(start.saturating_add(room));
        if end < piece.end && matches!(plan.step(piece.step).work, Work::RecvReduce { .. }) {
            end -= end % plan.element_bytes;
        }
        if end > start {
            let ends_piece = end == piece.end;
            Next::Part(Part { step: piece.step, start, bytes: end - start, ends_piece, at: piece.at })
        } else {
            Next::Blocked(limit.by)
        }
    }

    /// What may move next behind a cursor; `None` behind the last piece.
    #[inline]
    pub(super) fn next(&self, plan: &Plan, mut cursor: Cursor, direction: &Direction) -> Option<Next> {
        Some(self.part(plan, cursor.piece(plan, direction)?, u64::MAX))
    }

    /// How far `step` may go now.
    ///
    /// Steps of one extent have the same bytes, so their watermarks compare exactly. Others wait piece by piece:
    /// piece k for piece k, or for the end of a shorter step. A write to a scratch window also waits until nobody
    /// still needs the piece that it overwrites.
    #[inline(always)]
    fn limit(&self, plan: &Plan, step: StepIndex) -> Limit {
        let bound = plan.step(step);
        let mut limit = Limit { bytes: bound.bytes, by: step };
        for &earlier in plan.schedule.dependencies(step) {
            let done = self.done[earlier.index()];
            if done == FINISHED {
                continue;
            }
            let is_same = plan.step(earlier).extent == bound.extent;
            let whole_pieces = || PieceIndex::of(done, plan.piece_bytes).start(plan.piece_bytes);
            limit.lower(if is_same { done } else { whole_pieces() }, earlier);
        }
        if let Some(chunk) = bound.writes_scratch {
            self.limit_by_window(plan, step, chunk, &mut limit);
        }
        limit
    }

    /// Piece k may be written once every other step on the window has passed piece k - 2.
    fn limit_by_window(&self, plan: &Plan, step: StepIndex, chunk: u32, limit: &mut Limit) {
        for &other in plan.schedule.scratch_steps(chunk) {
            let done = self.done[other.index()];
            if other != step && done != FINISHED && done < limit.bytes {
                let must_wait = PieceIndex::of(done, plan.piece_bytes).plus(WINDOW_PIECES);
                limit.lower(must_wait.start(plan.piece_bytes), other);
            }
        }
    }

    /// What a step without bytes waits for. It counts as a piece 0: of everything that it depends on, piece 0 must be
    /// over. To wait for later pieces would be to wait against piece order, and calls that are proved to end would
    /// hang.
    fn blocker_of_empty(&self, plan: &Plan, step: StepIndex) -> Option<StepIndex> {
        let dependencies = plan.schedule.dependencies(step);
        // A step shorter than a piece is finished when its piece 0 is over, and FINISHED is beyond every piece.
        dependencies.iter().copied().find(|&earlier| self.done[earlier.index()] < plan.piece_bytes)
    }
}
