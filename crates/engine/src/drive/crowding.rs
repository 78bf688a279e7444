//! What the waits of a thread have shown about other work on its core, and so how it waits next.
//!
//! Between two looks at its links an idle thread gives way with `sched_yield`. On a core that only ranks share, that
//! takes microseconds. Beside a process that computes, the kernel runs that process up to its next tick, which is
//! milliseconds away, and counts the time against the thread that gave way. A thread that sleeps loses nothing there:
//! it wakes when its bytes arrive, and has the more right to the core the less it has used it. So after one long
//! yield a thread sleeps at once, for a time. Then it tries again, because on a quiet core sleeping takes twice as long
//! as giving way.

use std::time::{Duration, Instant};

/// A yield that took this long has let another process compute. Ranks that share a core take less from each other:
/// they give way or sleep as soon as they wait.
const YIELD_LONG: Duration = Duration::from_millis(2);

/// How long a thread sleeps at once after a long yield that came unexpectedly: as long as it lasted, since it may not
/// come again.
const REST_MIN: Duration = Duration::from_millis(4);

/// The longest such time: what a machine that becomes quiet is slower for at most.
const REST_MAX: Duration = Duration::from_millis(512);

/// Whether other work shares the core.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Crowding {
    /// While other work is there: until when idle threads sleep at once, and how long that was to be.
    rest: Option<(Instant, Duration)>,
}

impl Crowding {
    /// Whether a thread that is idle at `now` sleeps at once.
    pub(crate) fn is_resting(&self, now: Instant) -> bool {
        self.rest.is_some_and(|(until, _)| now < until)
    }

    /// Whether other work was there when a thread last gave way.
    pub(crate) fn is_crowded(&self) -> bool {
        self.rest.is_some()
    }

    /// A thread gave way at `before` and went on at `after`. A long yield makes the next rest longer than the one
    /// before: the other work has not ended. Once threads give way for as long as they have rested, and no yield is
    /// long, it has.
    pub(crate) fn gave_way(&mut self, before: Instant, after: Instant) {
        let is_long = after.saturating_duration_since(before) >= YIELD_LONG;
        self.rest = match self.rest {
            Some((until, length)) if before > until + length => is_long.then(|| (after + REST_MIN, REST_MIN)),
            Some((_, length)) if is_long => {
                let length = (length * 2).min(REST_MAX);
                Some((after + length, length))
            }
            None if is_long => Some((after + REST_MIN, REST_MIN)),
            rest => rest,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(30);
    const LONG: Duration = Duration::from_millis(4);

    #[test]
    fn short_yields_go_on() {
        let (mut crowding, start) = (Crowding::default(), Instant::now());
        for turn in 0..1000 {
            let now = start + SHORT * turn;
            crowding.gave_way(now, now + SHORT);
            assert!(!crowding.is_resting(now + SHORT) && !crowding.is_crowded());
        }
    }

    #[test]
    fn short_yields_for_as_long_as_the_rest_end_it() {
        let (mut crowding, start) = (Crowding::default(), Instant::now());
        crowding.gave_way(start, start + LONG);
        let end_of_rest = start + LONG + REST_MIN;
        crowding.gave_way(end_of_rest, end_of_rest + SHORT);
        assert!(crowding.is_crowded() && !crowding.is_resting(end_of_rest));
        let later = end_of_rest + REST_MIN + SHORT;
        crowding.gave_way(later, later + SHORT);
        assert!(!crowding.is_crowded());
    }

    #[test]
    fn rests_grow_while_the_other_work_lasts_and_begin_anew_when_it_comes_back() {
        let (mut crowding, mut now) = (Crowding::default(), Instant::now());
        let mut rest = |now: Instant| {
            crowding.gave_way(now, now + LONG);
            let milliseconds =
                (0..10_000).find(|&passed| !crowding.is_resting(now + LONG + Duration::from_millis(passed)));
            milliseconds.unwrap()
        };
        for expected in [4, 8, 16, 32, 64, 128, 256, 512, 512] {
            assert_eq!(rest(now), expected);
            now += LONG + Duration::from_millis(expected);
        }
        assert_eq!(rest(now + Duration::from_secs(5)), 4);
    }
}
