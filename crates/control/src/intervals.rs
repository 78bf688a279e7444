//! The intervals of the failure detector, which are the same on all ranks.

use std::time::Duration;

/// The number of heartbeats in the time after which a silent rank counts as lost, at least.
pub const BEATS_MIN: u32 = 3;

/// The intervals of the failure detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// From beat to beat.
    pub beat: Duration,
    /// The time that a rank may be silent.
    pub suspect: Duration,
}

impl Default for Intervals {
    fn default() -> Intervals {
        Intervals { beat: Duration::from_millis(100), suspect: Duration::from_millis(800) }
    }
}

impl Intervals {
    /// Whether a rank may miss a beat and not count as lost.
    pub fn are_safe(self) -> bool {
        !self.beat.is_zero() && self.beat.saturating_mul(BEATS_MIN) <= self.suspect
    }
}
