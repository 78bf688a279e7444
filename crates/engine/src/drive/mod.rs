//! The lock on the links: whoever holds it moves them, for itself and for everybody who queued work.
//!
//! The holder moves all asynchronous work, so a thread that waits for its work needs the links only when nobody has
//! it; until then it waits for completions. A thread with a collective of its own takes the links from a waiter.

pub(crate) mod call;
pub(crate) mod completion;
pub(crate) mod pending;
pub(crate) mod progress;
pub(crate) mod queue;
pub(crate) mod request;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use unisono_backend::{CallGate, Failing, IDLE_AFTER_CAUSE_MAX, Waker};
use unisono_communicator::{Error, Result, deadline_after};

use crate::communicator::EngineOptions;
use crate::drive::call::Engine;
use crate::drive::completion::Completions;
use crate::drive::progress::Progress;
use crate::drive::queue::Queue;
use crate::links::{Interest, Links};
use crate::lock;
use crate::point_to_point::PointToPoint;

/// Longest sleep without looking at the queue, against a wake-up lost in a transport.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Longest pause between two questions about one call.
const ASK_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Ranks asked about one call at one time.
const ASKED_AT_ONCE_MAX: usize = 8;

/// What all handles and threads of one communicator share.
pub(crate) struct Shared<L: Links + 'static> {
    pub(crate) gate: CallGate,
    pub(crate) options: EngineOptions,
    pub(crate) queue: Queue,
    pub(crate) messages: Mutex<PointToPoint>,
    /// Whether the messages must be looked at: set at every post, so that calls without messages take no lock.
    pub(crate) has_messages: AtomicBool,
    pub(crate) progress: Arc<Progress<L>>,
    pub(crate) completions: Arc<Completions>,
    pub(crate) wake: Waker,
    waiters: AtomicUsize,
    is_held: AtomicBool,
    engine: Mutex<Engine<L>>,
}

/// Exclusive use of the links.
pub(crate) struct LinksGuard<'s, L: Links + 'static> {
    shared: &'s Shared<L>,
    engine: Option<MutexGuard<'s, Engine<L>>>,
}

/// What a turn under the lock on the links came to.
pub(crate) enum Step {
    /// The goal is reached.
    Finished,
    /// Something moved.
    Moved,
    /// Nothing can move until a link or a thread does something.
    Idle,
}

/// What a holder of the links drives.
pub(crate) trait Task<L> {
    /// Moves what can move, without waiting.
    fn step(&mut self, engine: &mut Engine<L>) -> Result<Step>;

    /// After an idle step, at `now`.
    ///
    /// # Errors
    /// When a deadline has passed.
    fn idle(&mut self, engine: &mut Engine<L>, now: Instant) -> Result<()>;

    /// What to wait for after an idle step, added to an empty pause.
    fn pause(&mut self, engine: &mut Engine<L>, pause: &mut Pause);
}

/// What an idle holder waits for.
#[derive(Default)]
pub(crate) struct Pause {
    pub(crate) interest: Vec<Interest>,
    /// When the call gives up.
    pub(crate) deadline: Option<Instant>,
    /// Whom the call waits for, the next one first.
    pub(crate) awaited: Vec<u32>,
    /// Which call it is.
    pub(crate) number: u64,
}

impl Pause {
    /// The same room, with nothing to wait for.
    fn emptied(mut self) -> Pause {
        self.interest.clear();
        self.awaited.clear();
        Pause { deadline: None, number: 0, ..self }
    }
}

impl<L: Links + 'static> Shared<L> {
    pub(crate) fn new(
        gate: CallGate,
        options: EngineOptions,
        messages: PointToPoint,
        engine: Engine<L>,
    ) -> Shared<L> {
        let wake = engine.links.waker();
        gate.board().on_revoke(wake.clone());
        Shared {
            gate,
            options,
            queue: Queue::default(),
            messages: Mutex::new(messages),
            has_messages: AtomicBool::new(false),
            progress: Progress::new(),
            completions: Arc::default(),
            wake,
            waiters: AtomicUsize::new(0),
            is_held: AtomicBool::new(false),
            engine: Mutex::new(engine),
        }
    }

    /// The time by the links' clock.
    pub(crate) fn now(&self) -> Instant {
        self.lock_links().links.now()
    }

    /// Takes the links, waking its holder if there is one.
    pub(crate) fn lock_links(&self) -> LinksGuard<'_, L> {
        LinksGuard { shared: self, engine: Some(self.acquire()) }
    }

    /// A panic under the lock was a broken invariant, and has been told; what it left is as good as any state.
    fn try_acquire(&self) -> Option<MutexGuard<'_, Engine<L>>> {
        let engine = match self.engine.try_lock() {
            Ok(engine) => engine,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        self.is_held.store(true, Ordering::SeqCst);
        Some(engine)
    }

    fn acquire(&self) -> MutexGuard<'_, Engine<L>> {
        if let Some(engine) = self.try_acquire() {
            return engine;
        }
        self.waiters.fetch_add(1, Ordering::SeqCst);
        (self.wake)();
        let engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        self.is_held.store(true, Ordering::SeqCst);
        engine
    }

    /// Wakes the holder of the links, if there is one, so that it sees new work.
    pub(crate) fn nudge_holder(&self) {
        if !self.is_free() {
            (self.wake)();
        }
    }

    /// Whether nobody holds the links. Looks without touching it.
    pub(crate) fn is_free(&self) -> bool {
        !self.is_held.load(Ordering::SeqCst)
    }

    /// Takes the links if nobody holds or wants it.
    pub(crate) fn try_lock_links(&self) -> Option<LinksGuard<'_, L>> {
        if self.is_wanted() {
            return None;
        }
        self.try_acquire().map(|engine| LinksGuard { shared: self, engine: Some(engine) })
    }

    /// Whether another thread waits for the links.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) > 0
    }

    fn warn_of_wait(&self, rank: u32, number: u64) {
        let call = self.gate.board().call_info(number).map(|call| call.to_string()).unwrap_or_default();
        let status = self.gate.board().note_of(rank, number);
        tracing::warn!(rank = self.gate.group().rank(), "{call} makes no progress: rank {rank} {status}");
    }
}

impl<L: Links + 'static> LinksGuard<'_, L> {
    /// Steps a task until it is finished: without pause while something moves, then politely spinning, then asleep.
    pub(crate) fn drive(&mut self, task: &mut impl Task<L>) -> Result<()> {
        let mut idle_since: Option<Instant> = None;
        let mut asking = Asking::default();
        loop {
            let step = task.step(self)?;
            self.shared.completions.notify_if_any();
            match step {
                Step::Finished => break,
                Step::Moved => {
                    idle_since = None;
                    continue;
                }
                Step::Idle => {}
            }
            if self.shared.is_wanted() {
                self.let_others();
                continue;
            }
            let now = self.links.now();
            task.idle(self, now)?;
            let since = *idle_since.get_or_insert(now);
            if self.shared.gate.must_end(now.saturating_duration_since(since)) {
                self.shared.gate.check_revoked()?;
            }
            if now.saturating_duration_since(since) < self.shared.options.spin {
                std::thread::yield_now();
                continue;
            }
            let mut pause = std::mem::take(&mut self.pause).emptied();
            task.pause(self, &mut pause);
            self.sleep(&pause, now, since, &mut asking);
            self.pause = pause;
        }
        self.shared.gate.board().await_rank(None);
        Ok(())
    }

    fn sleep(&mut self, pause: &Pause, now: Instant, idle_since: Instant, asking: &mut Asking) {
        let shared = self.shared;
        let mut until = now + SLEEP_MAX;
        if let Some(deadline) = pause.deadline {
            until = until.min(deadline);
        }
        if shared.gate.board().is_revoked() {
            until = until.min(idle_since + IDLE_AFTER_CAUSE_MAX);
        }
        shared.gate.board().await_rank(pause.awaited.first().copied());
        if let Some(&next) = pause.awaited.first() {
            if now.saturating_duration_since(idle_since) >= shared.options.warn_after && asking.warns() {
                shared.warn_of_wait(next, pause.number);
            }
            let due = asking.due(idle_since, shared.options.probe_after);
            if now >= due {
                asking.asked(now);
                shared.gate.board().begin_round();
                for &rank in pause.awaited.iter().take(ASKED_AT_ONCE_MAX) {
                    shared.gate.control().ask(rank, pause.number);
                }
            } else {
                until = until.min(due);
            }
        }
        self.links.wait(&pause.interest, until);
    }

    /// Gives the links to whoever wants it and takes it again.
    pub(crate) fn let_others(&mut self) {
        self.shared.is_held.store(false, Ordering::SeqCst);
        self.engine = None;
        while self.shared.is_wanted() {
            std::thread::yield_now();
        }
        self.engine = Some(self.shared.acquire());
    }
}

impl<L: Links + 'static> Failing for LinksGuard<'_, L> {
    fn now(&self) -> Instant {
        self.links.now()
    }

    fn wait_for_news(&mut self, until: Instant) {
        self.links.wait(&[], until);
    }

    fn fail_pending(&mut self, error: &Error) {
        self.shared.queue.drain().iter().for_each(|request| request.fail(error.clone()));
        lock(&self.shared.messages).fail(error);
        self.links.shut_down();
    }
}

impl<L: Links + 'static> Drop for Shared<L> {
    fn drop(&mut self) {
        self.progress.end();
    }
}

impl<L: Links + 'static> Drop for LinksGuard<'_, L> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Streams may have stopped in the middle of a call, so nobody may go on with them.
            let what = "a panic under the guard".to_owned();
            self.shared.gate.fail(Error::System { what, text: "see the log of this rank".to_owned() });
        }
        self.shared.is_held.store(false, Ordering::SeqCst);
        self.engine = None;
        self.shared.completions.notify_after_release();
    }
}

impl<L: Links + 'static> Deref for LinksGuard<'_, L> {
    type Target = Engine<L>;

    fn deref(&self) -> &Engine<L> {
        // INVARIANT: only `let_others` empties a guard, and fills it again before it returns.
        self.engine.as_ref().expect("a guard holds the engine")
    }
}

impl<L: Links + 'static> DerefMut for LinksGuard<'_, L> {
    fn deref_mut(&mut self) -> &mut Engine<L> {
        // INVARIANT: only `let_others` empties a guard, and fills it again before it returns.
        self.engine.as_mut().expect("a guard holds the engine")
    }
}

/// When to ask the awaited rank again: the pauses double.
#[derive(Default)]
struct Asking {
    last: Option<Instant>,
    pause: Duration,
    has_warned: bool,
}

impl Asking {
    fn due(&self, idle_since: Instant, first: Duration) -> Instant {
        match self.last {
            // Progress since the last question makes it a new wait.
            Some(last) if last >= idle_since => last + self.pause.max(first),
            _ => deadline_after(idle_since, first),
        }
    }

    /// True once.
    fn warns(&mut self) -> bool {
        !std::mem::replace(&mut self.has_warned, true)
    }

    fn asked(&mut self, now: Instant) {
        self.pause = (self.pause * 2).clamp(Duration::from_millis(100), ASK_PAUSE_MAX);
        self.last = Some(now);
    }
}
