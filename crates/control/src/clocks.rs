//! The offsets of the clocks of other hosts against ours: a state machine that asks other ranks for their time, as NTP
//! does, and keeps the quickest answer. The other side has read its clock between our question and its answer, so half
//! of the round trip bounds the error, however late either side was.

use std::collections::BTreeMap;

use unisono_communicator::{ClockOffset, JobRank};

/// From one measurement of a clock to the next.
const INTERVAL_NS: u64 = 2_000_000_000;

/// The number of questions of a measurement, one after the other's answer.
const QUESTIONS: u32 = 8;

/// After this long a question counts as lost.
const ANSWER_MAX_NS: u64 = 1_000_000_000;

/// The kernel corrects no clock faster than by half of it, in billionths; both may be corrected. A clock that has moved
/// further has jumped.
const DRIFT_MAX_PPB: i128 = 1_000_000;

/// The next step of a rank about the clock of another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockStep {
    /// Ask it, at this time of our clock.
    Ask(u64),
    /// Publish the measurement.
    Measured(ClockOffset),
}

/// The clocks of the other ranks that this rank measures.
#[derive(Debug, Default)]
pub(crate) struct Clocks(BTreeMap<JobRank, PeerClock>);

#[derive(Debug, Default)]
struct PeerClock {
    next_ns: u64,
    /// The question under way, by its time.
    asked_ns: Option<u64>,
    questions_left: u32,
    best: Option<ClockOffset>,
    last: Option<ClockOffset>,
}

impl Clocks {
    /// Time has passed: begins a measurement of the clock of `peer` if it is due, and gives up a question that is lost.
    pub(crate) fn on_time(&mut self, peer: JobRank, now_ns: u64) -> Option<ClockStep> {
        let clock = self.0.entry(peer).or_default();
        match clock.asked_ns {
            Some(asked_ns) if now_ns < asked_ns + ANSWER_MAX_NS => return None,
            Some(_) => {}
            None if now_ns < clock.next_ns => return None,
            None => (clock.next_ns, clock.questions_left) = (now_ns + INTERVAL_NS, QUESTIONS),
        }
        clock.go_on(now_ns)
    }

    /// The rank `peer` on `host` has answered at `now_ns` that its clock showed `clock_ns` after the question of
    /// `asked_ns`. Answers to questions that count as lost are ignored.
    pub(crate) fn answered(
        &mut self,
        (peer, host): (JobRank, u32),
        (asked_ns, clock_ns): (u64, u64),
        now_ns: u64,
    ) -> Option<ClockStep> {
        let clock = self.0.get_mut(&peer).filter(|clock| clock.asked_ns == Some(asked_ns))?;
        let round_trip_ns = now_ns.saturating_sub(asked_ns);
        let offset_ns = clock_ns.wrapping_sub(asked_ns + round_trip_ns / 2) as i64;
        // Both clocks drift within the round trip too, by less than a thousandth.
        let error_ns = (round_trip_ns + round_trip_ns / 1000) / 2 + 1;
        if clock.best.is_none_or(|best| error_ns < best.error_ns) {
            let measured_ns = now_ns;
            clock.best =
                Some(ClockOffset { rank: peer, host, offset_ns, error_ns, drift_ppb: 0, measured_ns });
        }
        clock.go_on(now_ns)
    }
}

impl PeerClock {
    /// The next question, or the result of the answers.
    fn go_on(&mut self, now_ns: u64) -> Option<ClockStep> {
        self.asked_ns = (self.questions_left > 0).then_some(now_ns);
        if self.asked_ns.is_some() {
            self.questions_left -= 1;
            return Some(ClockStep::Ask(now_ns));
        }
        let best = self.best.take()?;
        let drift_ppb = self.last.map_or(0, |last| drift_ppb(&last, &best));
        let measured = ClockOffset { drift_ppb, ..best };
        self.last = Some(measured);
        Some(ClockStep::Measured(measured))
    }
}

/// The smallest drift that explains two measurements, given their errors: so it never exceeds the true drift by noise.
/// A jump is no drift.
fn drift_ppb(last: &ClockOffset, new: &ClockOffset) -> i64 {
    let moved = i128::from(new.offset_ns) - i128::from(last.offset_ns);
    let explained = i128::from(last.error_ns) + i128::from(new.error_ns);
    let least = (moved.abs() - explained).max(0) * moved.signum();
    let passed = i128::from(new.measured_ns.saturating_sub(last.measured_ns).max(1));
    let drift = least * 1_000_000_000 / passed;
    if drift.abs() > DRIFT_MAX_PPB { 0 } else { drift as i64 }
}

#[cfg(test)]
#[path = "clocks_tests.rs"]
mod tests;
