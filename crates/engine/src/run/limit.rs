//! How far a step may go: the smallest watermark of what it depends on.

use super::{FINISHED, Run};

impl Run {
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
