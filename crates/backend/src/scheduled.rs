//! A schedule whose bytes another library moves, such as a vendor's by its sends and receives. It is bound to the sizes
//! of a call and divided into rounds.

use std::sync::Arc;

use unisono_schedule::{Rounds, Schedule, StepIndex};

/// The schedule of one call on this rank.
pub struct ScheduledCall {
    /// The algorithm's name.
    pub algorithm: &'static str,
    /// A hash of all ranks' schedules, for an algorithm from outside; 0 for an algorithm of this library.
    pub schedules: u32,
    /// The steps.
    pub schedule: Arc<Schedule>,
    /// The order of the steps, in groups of messages.
    pub rounds: Arc<Rounds>,
    /// The extent of each step.
    pub extents: Vec<BoundExtent>,
}

impl ScheduledCall {
    /// The extent of a step.
    pub fn extent(&self, step: StepIndex) -> BoundExtent {
        self.extents[step.index()]
    }
}

/// The place of a step's extent in the buffers of a call, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundExtent {
    /// The length of the extent.
    pub bytes: usize,
    /// The start of the extent in the call's input, for a step that reads there.
    pub input_at: usize,
    /// The start of the extent in the call's output, for a step that reads or writes there.
    pub output_at: usize,
}
