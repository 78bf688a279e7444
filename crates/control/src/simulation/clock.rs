//! The clock of a simulated rank.

use std::time::{Duration, Instant};

/// A rank's own clock: it began at another time than the others' clocks, and is a little fast or slow.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Clock {
    pub(super) start: Instant,
    pub(super) ahead: Duration,
    /// The number of its nanoseconds that pass in a millisecond.
    pub(super) nanos_per_ms: u32,
}

impl Clock {
    /// A clock that shows the time of the simulation.
    pub(super) fn exact(start: Instant) -> Clock {
        Clock { start, ahead: Duration::ZERO, nanos_per_ms: 1_000_000 }
    }

    /// Its time at a time of the simulation.
    pub(in super::super) fn shows(&self, now: Instant) -> Instant {
        self.start + self.ahead + (now - self.start) * self.nanos_per_ms / 1_000_000
    }

    /// The first time of the simulation at which the clock shows that.
    pub(super) fn when(&self, shown: Instant) -> Instant {
        let passed = shown.saturating_duration_since(self.start + self.ahead);
        let guess = self.start + passed * 1_000_000 / self.nanos_per_ms;
        (0..)
            .map(|nanos| guess + Duration::from_nanos(nanos))
            .find(|at| self.shows(*at) >= shown)
            .unwrap_or(guess)
    }
}
