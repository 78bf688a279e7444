//! The limit of a step: the smallest watermark of the steps that it depends on. A step's watermark is its number of
//! final or released bytes.

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

/// The byte up to which a step may go, and the step that limits it.
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
    /// The bytes of a piece that may move now, at most `room`. A step without bytes gets an empty part as soon as the
    /// step may finish.
    ///
    /// A part that is reduced consists of whole elements, and with room for less than one element a step would never
    /// move. `STAGE_BYTES` and the check of the piece size in [`Plan::new`] prevent this.
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

    /// The limit of `step` now.
    ///
    /// It waits byte by byte for a step of the same extent, and so of the same length. It waits piece by piece for any
    /// other step: piece k for piece k, or for the end of a shorter step. A write to a scratch window also waits until
    /// no step needs the piece that it overwrites.
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

    /// Piece k of a window may be written once every other step on the window has finished piece k - 2.
    fn limit_by_window(&self, plan: &Plan, step: StepIndex, chunk: u32, limit: &mut Limit) {
        for &other in plan.schedule.scratch_steps(chunk) {
            let done = self.done[other.index()];
            if other != step && done != FINISHED && done < limit.bytes {
                let must_wait = PieceIndex::of(done, plan.piece_bytes).plus(WINDOW_PIECES);
                limit.lower(must_wait.start(plan.piece_bytes), other);
            }
        }
    }

    /// The step for which an empty step waits, if there is one. An empty step counts as one piece, piece 0, and waits
    /// for piece 0 of its dependencies. Waiting for later pieces would break the order of pieces: calls would hang
    /// although the verifier has proved that they end.
    fn blocker_of_empty(&self, plan: &Plan, step: StepIndex) -> Option<StepIndex> {
        let dependencies = plan.schedule.dependencies(step);
        // A step shorter than a piece is finished with its piece 0, and FINISHED is larger than any piece.
        dependencies.iter().copied().find(|&earlier| self.done[earlier.index()] < plan.piece_bytes)
    }
}
