//! A schedule for somebody else who moves its bytes, such as a vendor's sends and receives: in rounds, and bound to the
//! sizes of a call.

use std::sync::Arc;

use unisono_schedule::{Rounds, Schedule, StepIndex};

/// The schedule of one call on this rank.
pub struct ScheduledCall {
    /// The algorithm's name.
    pub algorithm: &'static str,
    /// A hash of the schedules of all ranks, for an algorithm that does not come with the library; else 0.
    pub schedules: u32,
    /// The steps.
    pub schedule: Arc<Schedule>,
    /// In which order they are done.
    pub rounds: Arc<Rounds>,
    /// Where the extent of each step is.
    pub extents: Vec<BoundExtent>,
}

impl ScheduledCall {
    /// Where the extent of a step is.
    pub fn extent(&self, step: StepIndex) -> BoundExtent {
        self.extents[step.index()]
    }
}

/// Where the extent of a step is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundExtent {
    /// How long it is.
    pub bytes: usize,
    /// Where it starts in the call's input, if the step reads it there.
    pub input_at: usize,
    /// Where it starts in the call's output, if the step reads or writes it there.
    pub output_at: usize,
}
