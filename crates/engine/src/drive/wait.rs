//! How long one call has waited, and what is done about it: the ranks that it waits for are asked, a line in the log
//! names them, and at its deadline it ends. The same for collectives and messages, blocking and asynchronous.

use std::fmt::Display;
use std::time::{Duration, Instant};

use unisono_backend::CallGate;
use unisono_communicator::{GroupRank, Severity, deadline_after, log};

use crate::options::EngineOptions;

/// Shortest pause before the second question about one call; the pauses double.
const ASK_PAUSE_MIN: Duration = Duration::from_millis(100);

/// Longest pause between two questions about one call.
const ASK_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Ranks asked about one call at one time.
pub(crate) const ASKED_AT_ONCE_MAX: usize = 8;

/// How long one call has waited. A call that never waits reads no clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    timeout: Duration,
    /// When it first had to wait.
    started: Option<Instant>,
    /// Since when nothing of it has moved.
    still_since: Option<Instant>,
    /// Nothing is due before this time.
    next: Option<Instant>,
    asked: Option<Instant>,
    ask_pause: Duration,
    has_warned: bool,
    /// The number of the call that was asked about.
    asked_about: Option<u64>,
}

/// What is due for a call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing yet.
    Nothing,
    /// The log or some ranks must be notified.
    Attention(Attention),
    /// Its deadline has passed.
    End,
}

/// Who is notified of a call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attention {
    /// The log: once in a call.
    pub(crate) warns: bool,
    /// The ranks that it waits for.
    pub(crate) asks: bool,
}

impl Wait {
    /// A call that has not waited yet and may wait for `timeout`.
    pub(crate) fn new(timeout: Duration) -> Wait {
        Wait {
            timeout,
            started: None,
            still_since: None,
            next: None,
            asked: None,
            ask_pause: Duration::ZERO,
            has_warned: false,
            asked_about: None,
        }
    }

    /// A call that has waited since `started`.
    pub(crate) fn since(started: Instant, timeout: Duration) -> Wait {
        Wait { started: Some(started), ..Wait::new(timeout) }
    }

    /// Something of the call has moved.
    #[inline]
    pub(crate) fn moved(&mut self) {
        if self.still_since.is_some() {
            (self.still_since, self.next) = (None, None);
        }
    }

    /// Notes that nothing of the call has moved at `now`, and says what is due.
    #[inline]
    pub(crate) fn look(&mut self, now: Instant, options: &EngineOptions) -> Due {
        let started = *self.started.get_or_insert(now);
        let still_since = *self.still_since.get_or_insert(now);
        if self.next.is_some_and(|next| now < next) {
            return Due::Nothing;
        }
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
        let next = deadline.min(self.ask_at(still_since, options.probe_after));
        self.next = Some(if self.has_warned { next } else { next.min(warn_at) });
        if warns || asks { Due::Attention(Attention { warns, asks }) } else { Due::Nothing }
    }

    /// When to ask: progress since the last question makes it a new wait.
    fn ask_at(&self, still_since: Instant, first: Duration) -> Instant {
        match self.asked {
            Some(last) if last >= still_since => deadline_after(last, self.ask_pause.max(first)),
            _ => deadline_after(still_since, first),
        }
    }

    /// When to look again; `None` before the first look.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next.or_else(|| self.started.map(|started| deadline_after(started, self.timeout)))
    }

    /// For how long it has waited.
    pub(crate) fn waited(&self, now: Instant) -> Duration {
        self.started.map_or(Duration::ZERO, |started| now.saturating_duration_since(started))
    }

    /// About which call ranks have been asked, if any has been.
    pub(crate) fn asked_about(&self) -> Option<u64> {
        self.asked_about
    }

    /// The ranks are being asked about call `number`.
    pub(crate) fn ask_about(&mut self, number: u64) {
        self.asked_about = Some(number);
    }
}

impl Attention {
    /// Notifies the log and the ranks of `call`, which waits for `awaited`, the next one first; the ranks are asked
    /// about their call `number`.
    pub(crate) fn pay(self, gate: &CallGate, call: &dyn Display, awaited: &[GroupRank], number: u64) {
        let board = gate.board();
        let Some(&next) = awaited.first() else { return };
        board.await_rank(Some(next));
        if self.warns {
            let status = board.note_of(next, number);
            let (rank, next) = (gate.group().own_job_rank().get(), gate.group().job_rank(next));
            log(Severity::Warn, Some(rank), format_args!("{call} makes no progress: rank {next} {status}"));
        }
        if self.asks {
            board.begin_round();
            for &rank in awaited.iter().take(ASKED_AT_ONCE_MAX) {
                gate.control().ask(rank, number);
            }
        }
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
}
