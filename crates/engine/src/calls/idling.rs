//! The waits of a thread whose task cannot move: it looks at its links for a moment, gives its core away, or sleeps.
//!
//! A thread that looks sees bytes tens of nanoseconds after they were written; a thread that calls `sched_yield`
//! between two polls sees them hundreds of nanoseconds later. But where two ranks share a core, the other one can write
//! only after this one has given way, and looking doubles the time of a short call. So after a vain look a thread does
//! without for some polls, and for twice as many after the next one in succession.
//!
//! On a core with only ranks, the yield takes microseconds. Beside a process that computes, it takes milliseconds: the
//! kernel runs that process up to its next tick, and counts the time against the yielding thread. A sleeping thread
//! loses nothing there: when its bytes arrive, the kernel prefers it to the process that has computed. So after a long
//! yield a thread sleeps at once, for some time. Then it yields again, because on a quiet core sleeping takes twice as
//! long.

use std::time::{Duration, Instant};

use crate::options::EngineOptions;

/// Looks in succession: they take ten microseconds or two, in which a rank on another core copies some 100 KiB.
pub(crate) const LOOKS: u32 = 1000;

/// A pause of the core takes as long as some looks, and bytes that come meanwhile wait for its end. Without any, the
/// other thread of the core would get little.
const LOOKS_PER_PAUSE: u32 = 8;

/// Before the next look, with so many looks left: a pause, or nothing.
#[inline]
pub(crate) fn before_look(left: u32) {
    if left.is_multiple_of(LOOKS_PER_PAUSE) {
        std::hint::spin_loop();
    }
}

/// A thread polls this number of times as long while code of the program waits for a call: the thread that has waited
/// wakes another thread in its turn, and two such wake-ups take longer than a short call.
const URGENT_SPINS: u32 = 4;

/// Polls without a look after the first vain one.
const SKIPPED_MIN: u32 = 1;

/// The most such polls.
const SKIPPED_MAX: u32 = 512;

/// A yield of this length has let another process compute. Among ranks yields are shorter, because a waiting rank
/// yields or sleeps at once.
const YIELD_LONG: Duration = Duration::from_millis(2);

/// The time in which threads sleep at once after the first long yield: as long as the yield, since the other work may
/// be over.
const REST_MIN: Duration = Duration::from_millis(4);

/// The longest such time; also how long a machine that has become quiet stays slower.
const REST_MAX: Duration = Duration::from_millis(1024);

/// Short yields of this total time show that the other work has ended: they cost as much as one long yield. The time
/// between calls does not count.
const QUIET_MIN: Duration = Duration::from_millis(4);

/// The next step of a thread whose task cannot move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Look at the links, and yield where that was in vain.
    Look,
    /// Yield the core until the next poll.
    Yield,
    /// Sleep until a link or another thread wakes it.
    Sleep,
}

/// The state of this rank's waits, which decides about the next one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idling {
    /// The time for which a thread polls before it sleeps.
    spin: Duration,
    may_look: bool,
    /// The polls that go by before the next look.
    skips: u32,
    /// The polls that went by after the last look; 0 if it was not vain.
    skipped: u32,
    /// `None` without other work on the core.
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

impl Idling {
    /// Of a rank with these options that has not waited yet.
    pub(crate) fn new(options: &EngineOptions) -> Idling {
        let may_look = options.cost_model.ranks_per_core_thousandths <= 1000;
        Idling { spin: options.spin, may_look, skips: 0, skipped: 0, rest: None }
    }

    /// The next step of a thread that is idle at `now`, and has been since `quiet_since`. `is_urgent` says whether code
    /// of the program waits for a call.
    pub(crate) fn next(
        &mut self,
        now: Instant,
        quiet_since: &mut Option<Instant>,
        is_urgent: impl FnOnce() -> bool,
    ) -> Idle {
        let quiet = now.saturating_duration_since(*quiet_since.get_or_insert(now));
        let is_late = quiet >= self.spin && (quiet >= self.spin.saturating_mul(URGENT_SPINS) || !is_urgent());
        if is_late || self.rest.is_some_and(|rest| now < rest.until) {
            return Idle::Sleep;
        }
        if !self.may_look || self.rest.is_some() {
            return Idle::Yield;
        }
        // Not `skips -= u32::from(!is_due)`: the compiler may lose that store (rust-lang/rust#158206).
        match self.skips.checked_sub(1) {
            Some(left) => {
                self.skips = left;
                Idle::Yield
            }
            None => Idle::Look,
        }
    }

    /// The number of times that a thread may look at its links now before it does anything else.
    #[inline]
    pub(crate) fn looks(&self) -> u32 {
        if self.may_look && self.rest.is_none() && self.skips == 0 && self.may_poll() { LOOKS } else { 0 }
    }

    /// Whether a thread polls at all before it sleeps.
    #[inline]
    pub(crate) fn may_poll(&self) -> bool {
        !self.spin.is_zero()
    }

    /// Notes a poll without a look.
    #[inline]
    pub(crate) fn skip_look(&mut self) {
        self.skips = self.skips.saturating_sub(1);
    }

    /// Whether the last yields showed other work on the core.
    pub(crate) fn is_crowded(&self) -> bool {
        self.rest.is_some()
    }

    /// Notes the result of a look.
    pub(crate) fn looked(&mut self, has_found: bool) {
        self.skipped = if has_found { 0 } else { (self.skipped * 2).clamp(SKIPPED_MIN, SKIPPED_MAX) };
        self.skips = self.skipped;
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
    const SPIN: Duration = Duration::from_secs(1);

    fn idling() -> Idling {
        Idling::new(&EngineOptions { spin: SPIN, ..EngineOptions::default() })
    }

    /// The number of looks among these polls, if each look has this result.
    fn looks(idling: &mut Idling, polls: u32, has_found: bool) -> u32 {
        let (now, mut quiet_since) = (Instant::now(), None);
        let mut look = |_| match idling.next(now, &mut quiet_since, || false) {
            Idle::Look => {
                idling.looked(has_found);
                1
            }
            Idle::Yield => 0,
            Idle::Sleep => panic!("it has been idle for no time"),
        };
        (0..polls).map(&mut look).sum()
    }

    #[test]
    fn vain_looks_become_rare_and_one_that_finds_something_makes_them_usual_again() {
        let mut idling = idling();
        assert_eq!(looks(&mut idling, 1000, true), 1000);
        assert_eq!(looks(&mut idling, 1 + 1 + 1 + 2 + 1 + 4 + 1, false), 4);
        assert!((190..210).contains(&looks(&mut idling, 100_000, false)), "one in 512");
        while looks(&mut idling, 1, true) == 0 {}
        assert_eq!(looks(&mut idling, 1000, true), 1000);
        assert_eq!(looks(&mut idling, 1 + 1 + 1, false), 2, "it begins anew");
        idling.may_look = false;
        assert_eq!(looks(&mut idling, 1000, true), 0, "ranks share cores");
    }

    #[test]
    fn a_thread_sleeps_when_it_has_been_idle_for_long() {
        let (mut idling, start) = (idling(), Instant::now());
        let mut quiet_since = None;
        let mut next = |now, is_urgent| idling.next(now, &mut quiet_since, || is_urgent);
        assert_eq!(next(start, false), Idle::Look);
        assert_eq!(next(start + SPIN, false), Idle::Sleep);
        assert_ne!(next(start + SPIN, true), Idle::Sleep);
        assert_eq!(next(start + SPIN * URGENT_SPINS, true), Idle::Sleep);
    }

    /// The milliseconds of rest after a long yield at `now`.
    fn rest_ms(idling: &mut Idling, now: Instant) -> u64 {
        idling.gave_way(now, now + LONG);
        let is_over = |passed: &u64| {
            idling.next(now + LONG + Duration::from_millis(*passed), &mut None, || false) != Idle::Sleep
        };
        (0..10_000).find(is_over).unwrap()
    }

    #[test]
    fn short_yields_go_on() {
        let (mut idling, start) = (idling(), Instant::now());
        for round in 0..1000 {
            let now = start + SHORT * round;
            idling.gave_way(now, now + SHORT);
            assert!(idling.next(now + SHORT, &mut None, || false) != Idle::Sleep && !idling.is_crowded());
        }
    }

    #[test]
    fn rests_grow_while_the_other_work_lasts_also_after_a_long_time_without_calls() {
        let (mut idling, mut now) = (idling(), Instant::now());
        for expected in [4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024] {
            assert_eq!(rest_ms(&mut idling, now), expected);
            idling.gave_way(now, now + SHORT);
            now += Duration::from_secs(60);
        }
    }

    #[test]
    fn enough_short_yields_end_it() {
        let (mut idling, mut now) = (idling(), Instant::now());
        assert_eq!([rest_ms(&mut idling, now), rest_ms(&mut idling, now)], [4, 8]);
        let mut yields = 0;
        while idling.is_crowded() {
            idling.gave_way(now, now + SHORT);
            (now, yields) = (now + SHORT, yields + 1);
        }
        assert_eq!(yields, QUIET_MIN.as_micros().div_ceil(SHORT.as_micros()));
        assert_eq!(rest_ms(&mut idling, now), 4, "it begins anew");
    }
}
