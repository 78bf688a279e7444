//! Watches whether a thread is in the library, and reports a call that makes no progress there.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use unisono_backend::{CallGate, StallOptions};
use unisono_communicator::{CallInfo, Error, GroupRank, Result, Severity, log};

use crate::known::OnStreamMessages;
use crate::turn::LibraryTurn;

const OUTSIDE: u8 = 0;
const INSIDE: u8 = 1;
const GIVEN_UP: u8 = 2;

/// The pause between two looks at a call that runs on its caller's thread, at least and at most.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(50);
const LOOK_PAUSE_MAX: Duration = Duration::from_millis(500);

/// The most ranks that are asked about one call at once.
const ASKED_AT_ONCE_MAX: usize = 8;

/// Whether one thread is in the library.
#[derive(Default)]
pub(crate) struct Visit(AtomicU8);

impl Visit {
    /// Calls the library, unless `gave_up` returns true.
    ///
    /// # Errors
    /// Errors of the call; [`Error::Closed`] when the call was given up, which is never a first cause.
    pub(crate) fn during<R>(
        &self,
        turn: Option<&LibraryTurn>,
        gave_up: impl Fn() -> bool,
        call: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        self.0.store(INSIDE, Ordering::SeqCst);
        let _leaving = Leaving { visit: self, turn };
        // A thread that gives the call up publishes this before it checks whether a thread is inside. So one of the two
        // threads sees the other.
        fence(Ordering::SeqCst);
        if gave_up() { Err(Error::closed()) } else { call() }
    }

    /// Notes that the thread may never come out again. Returns false if it is not inside, or if this has been noted
    /// before.
    pub(crate) fn give_up(&self, turn: Option<&LibraryTurn>) -> bool {
        let was_inside =
            self.0.compare_exchange(INSIDE, GIVEN_UP, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if was_inside && let Some(turn) = turn {
            turn.set_stuck(true);
        }
        was_inside
    }

    /// Whether the thread is inside.
    pub(crate) fn is_inside(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::SeqCst) != OUTSIDE
    }
}

/// A thread that is inside. The drop notes that it has left, also after a panic.
struct Leaving<'v> {
    visit: &'v Visit,
    turn: Option<&'v LibraryTurn>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if self.visit.0.swap(OUTSIDE, Ordering::SeqCst) == GIVEN_UP
            && let Some(turn) = self.turn
        {
            turn.set_stuck(false);
        }
    }
}

/// Watches the calls that run on their caller's thread, one at a time.
#[derive(Default)]
pub(crate) struct InlineWatch {
    pub(crate) visit: Visit,
    /// The number of the call that is inside, or of the last call.
    number: AtomicU64,
    /// The call's deadline, in milliseconds after the first look; 0 for none.
    timeout_ms: AtomicU64,
    /// The messages of the call that is inside, if it is a group of messages. Then `number` is not theirs.
    messages: Mutex<Option<OnStreamMessages>>,
}

/// A call that is inside.
#[derive(Clone, Copy)]
pub(crate) struct Inline {
    pub(crate) number: u64,
    /// The time that the call may take.
    pub(crate) timeout: Option<Duration>,
}

impl InlineWatch {
    /// Makes a call of the library.
    ///
    /// # Errors
    /// As [`Visit::during`].
    pub(crate) fn during<R>(
        &self,
        inline: Inline,
        turn: Option<&LibraryTurn>,
        gave_up: impl Fn() -> bool,
        call: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let timeout_ms = inline.timeout.map_or(0, |timeout| (timeout.as_millis() as u64).max(1));
        self.timeout_ms.store(timeout_ms, Ordering::Relaxed);
        self.number.store(inline.number, Ordering::SeqCst);
        self.visit.during(turn, gave_up, call)
    }

    /// Notes the messages of the call that goes inside, or that its messages have left.
    pub(crate) fn note_messages(&self, messages: Option<OnStreamMessages>) {
        *self.messages.lock().unwrap_or_else(PoisonError::into_inner) = messages;
    }

    /// The messages of the call that is inside; `None` for a collective.
    pub(crate) fn messages(&self) -> Option<OnStreamMessages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The call that is inside.
    pub(crate) fn now(&self) -> Option<Inline> {
        self.visit.is_inside().then(|| {
            let number = self.number.load(Ordering::SeqCst);
            let timeout_ms =
                Some(self.timeout_ms.load(Ordering::Relaxed)).filter(|timeout_ms| *timeout_ms > 0);
            Inline { number, timeout: timeout_ms.map(Duration::from_millis) }
        })
    }
}

/// A call whose progress cannot be seen.
pub(crate) struct Stuck<'c> {
    /// The number of the call. Messages are numbered apart.
    pub(crate) own: u64,
    /// The number of the collective about which the other ranks are asked: the call's own, or, for a message, the first
    /// unfinished one.
    pub(crate) number: u64,
    /// The first message of a group; `None` for a collective.
    pub(crate) message: Option<&'c CallInfo>,
    /// The ranks for which the call may wait.
    pub(crate) peers: Vec<GroupRank>,
}

impl Stuck<'_> {
    /// A collective, which may wait for every rank.
    pub(crate) fn collective(gate: &CallGate, number: u64) -> Stuck<'static> {
        let own = gate.group().own_rank();
        let peers = gate.group().ranks().filter(|&rank| rank != own).collect();
        Stuck { own: number, number, message: None, peers }
    }
}

/// The looks at one call.
#[derive(Clone, Copy)]
struct Looks {
    /// The call's own number, and whether the call is a message.
    call: (u64, bool),
    since: Instant,
    asked: Instant,
    /// The number of questions that have been asked. A rank may be asked more than once.
    asked_ranks: usize,
    has_warned: bool,
}

/// Watches a call whose progress cannot be seen, and reports it if it takes too long.
#[derive(Default)]
pub(crate) struct Stall(Mutex<Option<Looks>>);

impl Stall {
    /// The pause between two looks.
    pub(crate) fn pause(patience: StallOptions) -> Duration {
        patience.probe_after.clamp(LOOK_PAUSE_MIN, LOOK_PAUSE_MAX)
    }

    /// Looks at a call, which is at `place`. If the call does not end, it asks the other ranks for their calls, so that
    /// a mismatch is noticed, and names the call in the log. Returns the time since the first look.
    pub(crate) fn look(&self, gate: &CallGate, call: &Stuck<'_>, place: &str) -> Duration {
        let (now, patience) = (Instant::now(), gate.stall_options());
        let (number, own) = (call.number, (call.own, call.message.is_some()));
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut known) = looks.filter(|looks| looks.call == own) else {
            let (asked_ranks, has_warned) = (0, false);
            *looks = Some(Looks { call: own, since: now, asked: now, asked_ranks, has_warned });
            return Duration::ZERO;
        };
        if now.saturating_duration_since(known.asked) >= patience.probe_after {
            known.asked = now;
            let others = &call.peers;
            let now_asked = others.len().min(ASKED_AT_ONCE_MAX);
            let next = others.iter().cycle().skip(known.asked_ranks % others.len().max(1));
            let next: Vec<GroupRank> = next.take(now_asked).copied().collect();
            gate.board().answers().begin_round(number, &next);
            next.into_iter().for_each(|rank| gate.control().ask(rank, number));
            known.asked_ranks += now_asked;
        }
        let still = now.saturating_duration_since(known.since);
        if still >= patience.warn_after && !known.has_warned {
            known.has_warned = true;
            let known_call = || gate.board().calls().info(number);
            let call = call.message.cloned().or_else(known_call);
            let call = call.map(|call| call.to_string()).unwrap_or_default();
            let text = format_args!("{call} has been {place} for {still:.1?}");
            log(Severity::Warn, Some(gate.group().own_job_rank().get()), text);
        }
        *looks = Some(known);
        still
    }
}
