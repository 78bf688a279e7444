//! How far a step may go: up to the smallest watermark of the steps that it depends on.

use unisono_schedule::StepIndex;

use crate::plan::{Direction, PieceIndex, Plan, WINDOW_PIECES, Work};

use super::{Cursor, FINISHED, PieceOf, State};

/// A run of bytes of one step that may be sent or stored now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) step: StepIndex,
    pub(super) start: u64,
    pub(super) bytes: u64,
    /// Whether this part reaches the end of its piece.
    pub(super) ends_piece: bool,
    /// The position of the cursor that found the piece.
    pub(super) at: Cursor,
}

/// The next move of a piece.
pub(super) enum Next {
    /// These bytes may move now.
    Part(Part),
    /// No byte may move until this step moves.
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
    /// The bytes of a piece that may move now, at most `room`. A step without bytes gives a part without bytes as soon
    /// as it may finish.
    ///
    /// A part that is reduced consists of whole elements. So `room` must be at least one element for the first part of
    /// a list; `STAGE_BYTES` and the check of the piece size in [`Plan::new`] guarantee this.
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
        let start = piece.start;
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

    /// The next move at a cursor; `None` after the last piece.
    #[inline]
    pub(super) fn next(&self, plan: &Plan, mut cursor: Cursor, direction: &Direction) -> Option<Next> {
        Some(self.part(plan, cursor.piece(plan, direction)?, u64::MAX))
    }

    /// How far `step` may go now.
    ///
    /// For a step of the same extent, which has the same length, it waits byte by byte. For any other step it waits
    /// piece by piece: piece k waits for piece k, or for the end of a shorter step. A write to a
    /// scratch window also waits until no step needs the piece that it overwrites.
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

    /// A step may write piece k once every other step on the window has finished piece k - 2.
    fn limit_by_window(&self, plan: &Plan, step: StepIndex, chunk: u32, limit: &mut Limit) {
        for &other in plan.schedule.scratch_steps(chunk) {
            let done = self.done[other.index()];
            if other != step && done != FINISHED && done < limit.bytes {
                let must_wait = PieceIndex::of(done, plan.piece_bytes).plus(WINDOW_PIECES);
                limit.lower(must_wait.start(plan.piece_bytes), other);
            }
        }
    }

    /// The step that a step without bytes waits for, if there is one. A step without bytes counts as having one piece,
    /// piece 0, and waits for piece 0 of every step that it depends on. If it waited for later pieces, it would break
    /// the order of the pieces, and calls would hang although the verifier has proved that they end.
    fn blocker_of_empty(&self, plan: &Plan, step: StepIndex) -> Option<StepIndex> {
        let dependencies = plan.schedule.dependencies(step);
        // If a step is shorter than a piece, it is finished when its piece 0 is, and FINISHED is larger than any piece.
        dependencies.iter().copied().find(|&earlier| self.done[earlier.index()] < plan.piece_bytes)
    }
}
