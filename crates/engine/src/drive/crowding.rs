//! Detects other work on a thread's core from the thread's waits, and decides how it waits next.
//!
//! An idle thread calls `sched_yield` between two polls of its links. On a core with only ranks, the yield takes
//! microseconds. Beside a process that computes, it takes milliseconds: the kernel runs that process up to its next
//! tick, and counts the time against the yielding thread. A sleeping thread loses nothing there: when its bytes
//! arrive, the kernel prefers it to the process that has computed. So after a long yield a thread sleeps at once, for
//! some time. Then it yields again, because on a quiet core sleeping takes twice as long.

use std::time::{Duration, Instant};

/// A yield of this length has let another process compute. Among ranks yields are shorter, because a waiting rank
/// yields or sleeps at once.
const YIELD_LONG: Duration = Duration::from_millis(2);

/// How long threads sleep at once after the first long yield: as long as the yield, since the other work may be over.
const REST_MIN: Duration = Duration::from_millis(4);

/// The longest such time; also how long a machine that has become quiet stays slower.
const REST_MAX: Duration = Duration::from_millis(1024);

/// Short yields of this total time show that the other work has ended: they cost as much as one long yield. The time
/// between calls does not count.
const QUIET_MIN: Duration = Duration::from_millis(4);

/// Whether other work shares the core.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Crowding {
    /// `None` without other work.
    rest: Option<Rest>,
}

/// A time in which idle threads sleep at once, and the yields after it.
#[derive(Clone, Copy, Debug)]
struct Rest {
    until: Instant,
    length: Duration,
    /// The total time of short yields since then.
    quiet: Duration,
}

impl Crowding {
    /// Whether a thread that is idle at `now` sleeps at once.
    pub(crate) fn is_resting(&self, now: Instant) -> bool {
        self.rest.is_some_and(|rest| now < rest.until)
    }

    /// Whether the last yields showed other work.
    pub(crate) fn is_crowded(&self) -> bool {
        self.rest.is_some()
    }

    /// Notes a yield from `before` to `after`. A long yield makes the next rest longer than the previous one, since the
    /// other work goes on. Enough short yields end it.
    pub(crate) fn gave_way(&mut self, before: Instant, after: Instant) {
        let elapsed = after.saturating_duration_since(before);
        let is_long = elapsed >= YIELD_LONG;
        self.rest = match self.rest {
            None if !is_long => None,
            None => Some(Rest { until: after + REST_MIN, length: REST_MIN, quiet: Duration::ZERO }),
            Some(rest) if is_long => {
                let length = (rest.length * 2).min(REST_MAX);
                Some(Rest { until: after + length, length, quiet: Duration::ZERO })
            }
            Some(rest) => {
                let quiet = rest.quiet + elapsed;
                (quiet < QUIET_MIN).then_some(Rest { quiet, ..rest })
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(30);
    const LONG: Duration = Duration::from_millis(4);

    /// The milliseconds of rest after a long yield at `now`.
    fn rest_ms(crowding: &mut Crowding, now: Instant) -> u64 {
        crowding.gave_way(now, now + LONG);
        let is_over = |passed: &u64| !crowding.is_resting(now + LONG + Duration::from_millis(*passed));
        (0..10_000).find(is_over).unwrap()
    }

    #[test]
    fn short_yields_go_on() {
        let (mut crowding, start) = (Crowding::default(), Instant::now());
        for round in 0..1000 {
            let now = start + SHORT * round;
            crowding.gave_way(now, now + SHORT);
            assert!(!crowding.is_resting(now + SHORT) && !crowding.is_crowded());
        }
    }

    #[test]
    fn rests_grow_while_the_other_work_lasts_also_after_a_long_time_without_calls() {
        let (mut crowding, mut now) = (Crowding::default(), Instant::now());
        for expected in [4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024] {
            assert_eq!(rest_ms(&mut crowding, now), expected);
            crowding.gave_way(now, now + SHORT);
            now += Duration::from_secs(60);
        }
    }

    #[test]
    fn enough_short_yields_end_it() {
        let (mut crowding, mut now) = (Crowding::default(), Instant::now());
        assert_eq!([rest_ms(&mut crowding, now), rest_ms(&mut crowding, now)], [4, 8]);
        let mut yields = 0;
        while crowding.is_crowded() {
            crowding.gave_way(now, now + SHORT);
            (now, yields) = (now + SHORT, yields + 1);
        }
        assert_eq!(yields, QUIET_MIN.as_micros().div_ceil(SHORT.as_micros()));
        assert_eq!(rest_ms(&mut crowding, now), 4, "it begins anew");
    }
}
