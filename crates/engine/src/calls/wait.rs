//! The time that one call has waited, and the consequences: questions to the awaited ranks, a warning in the log, and
//! the end at the deadline. The same for collectives and messages, blocking and asynchronous.
//!
//! The thread that drives a call looks after it many times a second. A late look means that the job was stopped or that
//! the call was busy; this time does not count as waiting. Else a job that was stopped for longer than a deadline would
//! fail as soon as it continues.

use std::fmt::Display;
use std::time::{Duration, Instant};

use unisono_backend::CallGate;
use unisono_communicator::{Awaited, Group, GroupRank, JobRank, Severity, deadline_after, log};

use crate::calls::pause::SLEEP_MAX;
use crate::options::EngineOptions;

/// The pause between the first two questions about a call. Each later pause is twice as long as the previous one.
const ASK_PAUSE_MIN: Duration = Duration::from_millis(100);

/// The longest pause between two questions about a call.
const ASK_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The longest time between two looks that counts as waiting; sleeps end a little late.
const LOOK_PAUSE_MAX: Duration = SLEEP_MAX.saturating_mul(2);

/// The number of ranks that are asked about a call at a time.
pub(crate) const ASKED_AT_ONCE_MAX: usize = 8;

/// The wait of one call. A call that never waits reads no clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    timeout: Duration,
    /// The start of the wait, later by the time that does not count.
    started: Option<Instant>,
    /// The last look. While the call waits, there is one every [`SLEEP_MAX`] at least.
    looked: Option<Instant>,
    /// Since when nothing of the call has moved.
    still_since: Option<Instant>,
    /// Nothing is due before this time.
    next: Option<Instant>,
    asked: Option<Instant>,
    ask_pause: Duration,
    has_warned: bool,
    /// The awaited rank at the last look; of a chain of waiting ranks the last known one.
    late: Option<JobRank>,
    /// The number of the call in the last question.
    asked_about: Option<u64>,
}

/// The due action for a waiting call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// Notify the log or some ranks.
    Attention(Attention),
    /// End the call: its deadline has passed.
    End,
}

/// The receivers of a notice about a waiting call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attention {
    /// The log, once in a call.
    pub(crate) warns: bool,
    /// The awaited ranks.
    pub(crate) asks: bool,
    /// The time for which nothing has moved.
    pub(crate) still: Duration,
}

impl Wait {
    /// A call that has not waited yet and may wait for `timeout`.
    pub(crate) fn new(timeout: Duration) -> Wait {
        Wait {
            timeout,
            started: None,
            looked: None,
            still_since: None,
            next: None,
            asked: None,
            ask_pause: Duration::ZERO,
            has_warned: false,
            late: None,
            asked_about: None,
        }
    }

    /// A call that has waited since `started`.
    pub(crate) fn since(started: Instant, timeout: Duration) -> Wait {
        Wait { started: Some(started), looked: Some(started), ..Wait::new(timeout) }
    }

    /// Notes that something of the call has moved.
    #[inline]
    pub(crate) fn moved(&mut self) {
        if self.still_since.is_some() {
            (self.still_since, self.next) = (None, None);
        }
    }

    /// Notes that nothing of the call has moved at `now`, and returns the due action.
    #[inline]
    pub(crate) fn look(&mut self, now: Instant, options: &EngineOptions) -> Due {
        if self.next.is_some_and(|next| now < next) {
            return Due::Nothing;
        }
        let pause = now.saturating_duration_since(self.looked.replace(now).unwrap_or(now));
        if pause > LOOK_PAUSE_MAX {
            self.shift(pause - LOOK_PAUSE_MAX);
        }
        let started = *self.started.get_or_insert(now);
        let still_since = *self.still_since.get_or_insert(now);
        let deadline = deadline_after(started, self.timeout);
        if now >= deadline {
            return Due::End;
        }
        let warn_at = deadline_after(still_since, options.warn_after);
        let warns = !self.has_warned && now >= warn_at;
        self.has_warned |= warns;
        let asks = now >= self.ask_at(still_since, options.probe_after);
        if asks {
            self.ask_pause = (self.ask_pause * 2).clamp(ASK_PAUSE_MIN, ASK_PAUSE_MAX);
            self.asked = Some(now);
        }
        let next = deadline.min(self.ask_at(still_since, options.probe_after)).min(now + SLEEP_MAX);
        self.next = Some(if self.has_warned { next } else { next.min(warn_at) });
        if !warns && !asks {
            return Due::Nothing;
        }
        Due::Attention(Attention { warns, asks, still: now.saturating_duration_since(still_since) })
    }

    /// Excludes the last `time` from the wait.
    #[cold]
    fn shift(&mut self, time: Duration) {
        for since in [&mut self.started, &mut self.still_since, &mut self.asked] {
            *since = since.map(|since| since + time);
        }
    }

    /// The time of the next question. Progress since the last question starts a new wait.
    fn ask_at(&self, still_since: Instant, first: Duration) -> Instant {
        match self.asked {
            Some(last) if last >= still_since => deadline_after(last, self.ask_pause.max(first)),
            _ => deadline_after(still_since, first),
        }
    }

    /// The time of the next look; `None` before the first.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next.or_else(|| self.started.map(|started| deadline_after(started, self.timeout)))
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether the call has had to wait.
    pub(crate) fn has_begun(&self) -> bool {
        self.started.is_some()
    }

    /// The time that the call has waited.
    pub(crate) fn waited(&self, now: Instant) -> Duration {
        self.started.map_or(Duration::ZERO, |started| now.saturating_duration_since(started))
    }

    /// The number of the call in the last question, if ranks have been asked.
    pub(crate) fn asked_about(&self) -> Option<u64> {
        self.asked_about
    }

    /// Notes that ranks are asked about call `number`.
    pub(crate) fn ask_about(&mut self, number: u64) {
        self.asked_about = Some(number);
    }
}

impl Wait {
    /// Notifies the log and the ranks about `call`, which waits for `awaited`, the next one first. The ranks are asked
    /// about their call `number`.
    pub(crate) fn pay(
        &mut self,
        attention: Attention,
        gate: &CallGate,
        call: &dyn Display,
        awaited: &[GroupRank],
        number: u64,
    ) {
        let (board, group) = (gate.board(), gate.group());
        board.progress().await_rank(awaited.first().copied());
        let mut list = board.answers().held_up_by(group, awaited, number);
        board.tell_left(group, &mut list);
        self.late = list.first().map(|awaited| awaited.rank);
        if attention.warns {
            let next = awaited.first().map(|rank| group.job_rank(*rank));
            let is_named = |one: &&Awaited| Some(one.rank) == self.late || Some(one.rank) == next;
            let mut who: Vec<String> = list.iter().filter(is_named).map(Awaited::to_string).collect();
            if who.is_empty() {
                who.push("no rank has sent".to_owned());
            }
            let (who, still, timeout) = (who.join("; "), attention.still, self.timeout);
            let text =
                format_args!("{call} has not moved for {still:.1?}: {who}; its deadline is {timeout:?}");
            log(Severity::Warn, Some(group.own_job_rank().get()), text);
        }
        if attention.asks {
            board.answers().begin_round(number, awaited);
            for &rank in awaited.iter().take(ASKED_AT_ONCE_MAX) {
                gate.control().ask(rank, number);
            }
        }
    }

    pub(crate) fn has_warned(&self) -> bool {
        self.has_warned
    }

    /// Logs the end of a call after a warning, so that a reader of the log learns that the job goes on.
    pub(crate) fn tell_end(&self, group: &Group, call: &dyn Display, now: Instant) {
        let last = self.late.map(|rank| format!("; rank {rank} came last"));
        let (waited, last) = (self.waited(now), last.unwrap_or_default());
        let text = format_args!("{call} went on and has finished after {waited:.1?}{last}");
        log(Severity::Warn, Some(group.own_job_rank().get()), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> EngineOptions {
        EngineOptions {
            probe_after: Duration::from_millis(50),
            warn_after: Duration::from_secs(30),
            ..EngineOptions::default()
        }
    }

    #[test]
    fn questions_come_with_doubling_pauses_and_one_warning() {
        let (start, options) = (Instant::now(), options());
        let mut wait = Wait::new(Duration::from_secs(60));
        let (mut asked, mut warned) = (Vec::new(), Vec::new());
        let end = (0..70_000).find(|&milliseconds| {
            match wait.look(start + Duration::from_millis(milliseconds), &options) {
                Due::Nothing => {}
                Due::End => return true,
                Due::Attention(attention) => {
                    asked.extend(attention.asks.then_some(milliseconds));
                    warned.extend(attention.warns.then_some(milliseconds));
                }
            }
            false
        });
        assert_eq!(end, Some(60_000));
        assert_eq!(warned, [30_000]);
        assert_eq!(asked[..6], [50, 150, 350, 750, 1550, 2550]);
    }

    #[test]
    fn progress_makes_it_a_new_wait_with_the_same_deadline() {
        let (start, options) = (Instant::now(), options());
        let mut wait = Wait::new(Duration::from_millis(80));
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        assert_eq!(wait.look(at(0), &options), Due::Nothing);
        wait.moved();
        assert_eq!(wait.look(at(40), &options), Due::Nothing);
        assert_eq!(wait.look(at(60), &options), Due::Nothing, "it has moved 20 ms ago");
        assert_eq!(wait.look(at(80), &options), Due::End);
    }

    /// The end, in ms, of a call with a deadline of 2 s. A thread looks after it every 10 ms, except during the stops.
    fn end_with(mut wait: Wait, start: Instant, stops: &[(u64, u64)]) -> Option<u64> {
        let options = options();
        let is_stopped = |at: &u64| stops.iter().any(|&(from, to)| (from..to).contains(at));
        let mut looks = (0..20_000).step_by(10).filter(|at| !is_stopped(at));
        looks.find(|&at| wait.look(start + Duration::from_millis(at), &options) == Due::End)
    }

    #[test]
    fn time_in_which_nobody_could_look_is_no_part_of_the_wait() {
        let (start, timeout) = (Instant::now(), Duration::from_secs(2));
        let end = |stops: &[(u64, u64)]| end_with(Wait::new(timeout), start, stops).unwrap();
        assert_eq!(end(&[]), 2000);
        // A part of each stop counts: the longest pause that is waiting, less the pause before the stop.
        let (held, sleep) = (LOOK_PAUSE_MAX.as_millis() as u64, SLEEP_MAX.as_millis() as u64);
        let within = |end: u64, stops: u64| {
            (2000 + stops * (4000 - held)..=2000 + stops * (4000 - held + sleep)).contains(&end)
        };
        assert!((2000..=2000 + sleep).contains(&end(&[(500, 500 + held)])), "a look that is a little late");
        assert!(within(end(&[(510, 4500)]), 1), "stopped for 4 s");
        assert!(within(end(&[(510, 4500), (5010, 9000)]), 2), "twice");
        let since = Wait::since(start, timeout);
        assert!(within(end_with(since, start, &[(0, 4000)]).unwrap(), 1), "before the first look");
    }

    #[test]
    fn a_call_that_was_stopped_asks_and_warns_later_by_that_time() {
        let (start, options) =
            (Instant::now(), EngineOptions { warn_after: Duration::from_secs(1), ..options() });
        let mut wait = Wait::new(Duration::from_secs(60));
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        assert_eq!(wait.look(at(0), &options), Due::Nothing);
        assert_eq!(wait.look(at(10), &options), Due::Nothing);
        let still = LOOK_PAUSE_MAX;
        let asks = Due::Attention(Attention { warns: false, asks: true, still });
        assert_eq!(
            wait.look(at(5000), &options),
            asks,
            "the part that counts is longer than the pause before it"
        );
        assert_eq!(wait.waited(at(5000)), still);
    }
}
