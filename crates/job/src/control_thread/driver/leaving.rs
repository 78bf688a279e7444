//! The steps by which this rank leaves the job: its started calls go on, then it says goodbye, then it hears the
//! goodbyes of the ranks next to it, and compares.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use unisono_communicator::{JobRank, Severity, deadline_after, log};

use super::Driver;

/// The time for which a rank that has left may be awaited: its messages may still be on their way.
const AWAITS_LEFT_MAX: Duration = Duration::from_millis(200);

/// The pause between two looks at the calls.
const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// The time for which the goodbyes of other ranks are awaited.
const GOODBYES_MAX: Duration = Duration::from_millis(100);

/// The step of this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    /// It takes part.
    No,
    /// Its started calls go on.
    Finishing(Finishing),
    /// The first connections come about, which carry the goodbye. The ranks that still dial this one would count it as
    /// lost if it left without a goodbye.
    Connecting { until: Instant },
    /// It has said goodbye, and waits for the goodbyes of its neighbours.
    Hearing { until: Instant },
    /// It is ready to go.
    Over,
}

/// Started calls go on while a rank leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finishing {
    /// The number of calls that had failed before.
    failed: u64,
    until: Instant,
    /// Why they do not go on after that.
    over: &'static str,
    /// Since when they wait for ranks that have left.
    alone_since: Option<Instant>,
}

impl Leaving {
    /// When to look again.
    pub(super) fn due(self, now: Instant) -> Option<Instant> {
        match self {
            Leaving::No | Leaving::Over => None,
            Leaving::Finishing(finishing) => Some(finishing.until.min(now + LOOK_PAUSE)),
            Leaving::Connecting { until } | Leaving::Hearing { until } => Some(until),
        }
    }

    /// Whether a failure of this rank comes from its leaving, so that no other rank is told.
    pub(super) fn hides_failures(self) -> bool {
        match self {
            Leaving::No | Leaving::Finishing(_) => false,
            Leaving::Connecting { .. } | Leaving::Hearing { .. } | Leaving::Over => true,
        }
    }
}

impl Driver {
    /// Begins to leave. Without `finishes`, started calls cannot go on.
    pub(super) fn begin_to_leave(&self, finishes: bool, now: Instant) -> Leaving {
        let (longest, over) = match finishes {
            true => (self.settings.drop_timeout, "their time is over"),
            false => (Duration::ZERO, "it ends within a function of the program's that a call runs"),
        };
        let (failed, until) = (self.control.communicators.calls_failed(), deadline_after(now, longest));
        Leaving::Finishing(Finishing { failed, until, over, alone_since: None })
    }

    /// Goes on with leaving as far as it can at `now`.
    pub(super) fn leave_on(&mut self, mut leaving: Leaving, now: Instant) -> Leaving {
        loop {
            let next = match leaving {
                Leaving::No | Leaving::Over => leaving,
                Leaving::Finishing(finishing) => {
                    let next = self.finish(finishing, now);
                    if let Leaving::Connecting { .. } = next {
                        self.control.plane.begin_to_leave();
                        self.act();
                    }
                    next
                }
                Leaving::Connecting { until } if self.control.plane.is_connected() || now >= until => {
                    self.say_goodbye();
                    Leaving::Hearing { until: now + GOODBYES_MAX }
                }
                Leaving::Hearing { until } if now >= until || !self.awaits_goodbyes() => Leaving::Over,
                Leaving::Connecting { .. } | Leaving::Hearing { .. } => leaving,
            };
            if next == leaving {
                return leaving;
            }
            leaving = next;
        }
    }

    fn finish(&self, finishing: Finishing, now: Instant) -> Leaving {
        let Finishing { failed, until, over, alone_since } = finishing;
        let alone_since = self.control.communicators.await_left().then(|| alone_since.unwrap_or(now));
        let is_given_up = alone_since.is_some_and(|since| now >= since + AWAITS_LEFT_MAX);
        let goes_on = self.control.communicators.go_on();
        if goes_on && now < until && !is_given_up {
            return Leaving::Finishing(Finishing { alone_since, ..finishing });
        }
        let lost =
            self.control.communicators.calls_started() + self.control.communicators.calls_failed() - failed;
        if lost > 0 {
            let cause = self.control.communicators.first_cause();
            let why = match &cause {
                Some(cause) => cause.to_string(),
                None if goes_on && !is_given_up => over.to_owned(),
                None => "the rank for which they wait has left".to_owned(),
            };
            let calls = if lost == 1 { "call that is" } else { "calls that are" };
            let text = format!("this process ends with {lost} started {calls} not over: {why}");
            log(Severity::Warn, Some(self.identity.rank.get()), format_args!("{text}"));
            if let (Some(cause), Some(reporter)) = (cause, &self.settings.reporter) {
                reporter.at_exit(self.identity.rank, "started calls".to_owned(), &cause, text);
            }
        }
        Leaving::Connecting { until: deadline_after(now, self.settings.dial_timeouts.attempt) }
    }

    fn say_goodbye(&mut self) {
        self.control.leave(Instant::now());
        self.act();
    }

    fn awaits_goodbyes(&self) -> bool {
        self.control.communicators.left().are_open() && self.control.plane.awaits_goodbyes()
    }

    /// Tells the differences that only the goodbyes have shown.
    fn tell_what_goodbyes_showed(&self) {
        let rank = self.identity.rank;
        for (key, error) in self.control.communicators.left().differences() {
            let text = format!("communicator {key} was left after different calls: {error}");
            log(Severity::Warn, Some(rank.get()), format_args!("{text}"));
            if let Some(reporter) = &self.settings.reporter {
                reporter.at_exit(rank, key.to_string(), &error, text);
            }
        }
        if self.control.communicators.have_failed() {
            return;
        }
        // The streams of ranks that are still there were perhaps not looked at.
        let sockets = self.measurements.sockets().into_iter();
        let unread: BTreeSet<JobRank> =
            sockets.filter(|socket| socket.has_unread_messages()).map(|socket| socket.peer()).collect();
        let unread = unread.into_iter().map(|peer| format!("those in the stream from rank {peer}"));
        let arrived = Some(self.control.communicators.unread()).filter(|&messages| messages > 0);
        let arrived = arrived.map(|messages| format!("{messages} that had arrived"));
        let list: Vec<String> = arrived.into_iter().chain(unread).collect();
        if !list.is_empty() {
            let text = format!("this process ends without having received messages: {}", list.join(", "));
            log(Severity::Warn, Some(rank.get()), format_args!("{text}"));
        }
    }

    /// Waits until everything that was sent has arrived, at most for the drop timeout. When a process ends with unread
    /// bytes in a socket, the kernel resets the connection, and the bytes under way are lost.
    pub(super) async fn leave(mut self) {
        self.tell_what_goodbyes_showed();
        self.control_connections.clear();
        // A program that ends without dropping its communicators.
        self.linger(self.measurements.sockets());
        let all_arrived = async {
            while self.writing.join_next().await.is_some() {}
            while self.lingering.join_next().await.is_some() {}
        };
        let _ = tokio::time::timeout(self.settings.drop_timeout, all_arrived).await;
    }
}
