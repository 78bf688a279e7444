//! The baton: whoever holds it moves the communicator's links, for itself and for everybody who queued work.
//!
//! The holder moves all asynchronous work, so a thread that waits for its work needs the baton only when nobody has
//! it; until then it sleeps at the bell. A thread with a collective of its own takes the baton from a waiter.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use unisono_communicator::{Error, Group, Result, deadline_after};

use crate::active::Engine;
use crate::bell::Bell;
use crate::board::Board;
use crate::communicator::EngineOptions;
use crate::control::Control;
use crate::fork::ForkGuard;
use crate::links::{Interest, Links, Waker};
use crate::peers::Peers;
use crate::point_to_point::Mail;
use crate::progress::Progress;
use crate::queue::Queue;
use crate::survival::Agreements;

/// Longest sleep without looking at the queue, against a wake-up lost in a transport.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// How long a failure waits for a better explanation: a broken stream for the cause that some other rank may be
/// spreading, a mismatch for the description of the other side's call. Either takes about a millisecond where nobody
/// else wants the processors.
const FIRST_CAUSE_WINDOW: Duration = Duration::from_millis(200);

/// Longest pause between two questions about one call.
const ASK_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Ranks asked about one call at one time.
const ASKED_AT_ONCE_MAX: usize = 8;

/// What all handles and threads of one communicator share.
pub(crate) struct Shared<L: Links + 'static> {
    pub(crate) group: Group,
    pub(crate) peers: Peers,
    pub(crate) board: Arc<Board>,
    pub(crate) control: Arc<dyn Control>,
    pub(crate) options: EngineOptions,
    pub(crate) backend: &'static str,
    pub(crate) owner: ForkGuard,
    pub(crate) is_closed: AtomicBool,
    pub(crate) derived: AtomicU64,
    /// How many agreements have been reached, by question. Held during one, since they have an order.
    pub(crate) agreed: Agreements,
    /// Held while a collective is issued; of a blocking one until it returns.
    pub(crate) order: Mutex<()>,
    pub(crate) queue: Queue,
    pub(crate) mail: Mutex<Mail>,
    /// Whether the mail must be looked at: set at every post, so that calls without mail take no lock.
    pub(crate) has_mail: AtomicBool,
    pub(crate) progress: Arc<Progress<L>>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) wake: Waker,
    waiters: AtomicUsize,
    is_held: AtomicBool,
    engine: Mutex<Engine<L>>,
}

/// Exclusive use of the links.
pub(crate) struct Baton<'s, L: Links + 'static> {
    shared: &'s Shared<L>,
    engine: Option<MutexGuard<'s, Engine<L>>>,
}

/// What a turn under the baton came to.
pub(crate) enum Step {
    /// The goal is reached.
    Finished,
    /// Something moved.
    Moved,
    /// Nothing can move until a link or a thread does something.
    Idle,
}

/// What a holder of the baton drives.
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
    #[allow(clippy::too_many_arguments, reason = "called once, by the communicator's constructor")]
    pub(crate) fn new(
        group: Group,
        board: Arc<Board>,
        control: Arc<dyn Control>,
        options: EngineOptions,
        backend: &'static str,
        mail: Mail,
        engine: Engine<L>,
    ) -> Shared<L> {
        let wake = engine.links.waker();
        board.on_revoke(wake.clone());
        Shared {
            peers: Peers::new(group.clone(), board.clone()),
            group,
            board,
            control,
            options,
            backend,
            owner: ForkGuard::new(),
            is_closed: AtomicBool::new(false),
            derived: AtomicU64::new(0),
            agreed: Agreements::default(),
            order: Mutex::new(()),
            queue: Queue::default(),
            mail: Mutex::new(mail),
            has_mail: AtomicBool::new(false),
            progress: Progress::new(),
            bell: Arc::default(),
            wake,
            waiters: AtomicUsize::new(0),
            is_held: AtomicBool::new(false),
            engine: Mutex::new(engine),
        }
    }

    /// Takes the baton, waking its holder if there is one.
    pub(crate) fn take_baton(&self) -> Baton<'_, L> {
        Baton { shared: self, engine: Some(self.lock_engine()) }
    }

    /// A panic under the baton was a broken invariant, and has been told; what it left is as good as any state.
    fn try_engine(&self) -> Option<MutexGuard<'_, Engine<L>>> {
        let engine = match self.engine.try_lock() {
            Ok(engine) => engine,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        self.is_held.store(true, Ordering::SeqCst);
        Some(engine)
    }

    fn lock_engine(&self) -> MutexGuard<'_, Engine<L>> {
        if let Some(engine) = self.try_engine() {
            return engine;
        }
        self.waiters.fetch_add(1, Ordering::SeqCst);
        (self.wake)();
        let engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        self.is_held.store(true, Ordering::SeqCst);
        engine
    }

    /// Wakes the holder of the baton, if there is one, so that it sees new work.
    pub(crate) fn nudge_holder(&self) {
        if !self.is_free() {
            (self.wake)();
        }
    }

    /// Whether nobody holds the baton. Looks without touching it.
    pub(crate) fn is_free(&self) -> bool {
        !self.is_held.load(Ordering::SeqCst)
    }

    /// Takes the baton if nobody holds or wants it.
    pub(crate) fn try_baton(&self) -> Option<Baton<'_, L>> {
        if self.is_wanted() {
            return None;
        }
        self.try_engine().map(|engine| Baton { shared: self, engine: Some(engine) })
    }

    /// Whether another thread waits for the baton.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) > 0
    }

    /// The first cause, if the communicator is revoked.
    pub(crate) fn check_revoked(&self) -> Result<()> {
        self.board.revocation_error().map_or(Ok(()), Err)
    }

    fn warn_of_wait(&self, rank: u32, number: u64) {
        let call = self.board.call_info(number).map(|call| call.to_string()).unwrap_or_default();
        let status = self.board.note_of(rank, number);
        tracing::warn!(rank = self.group.rank(), "{call} makes no progress: rank {rank} {status}");
    }

    /// Makes `error` the first cause, unless there is one already, and tells everybody. Returns what this rank's
    /// caller sees.
    pub(crate) fn fail(&self, error: Error) -> Error {
        let cause = Arc::new(error);
        if self.board.revoke(self.group.rank(), cause.clone()) {
            self.control.flood(cause.clone());
        }
        self.board.revocation_error().unwrap_or_else(|| (*cause).clone())
    }
}

impl<L: Links + 'static> Baton<'_, L> {
    /// Steps a task until it is finished: without pause while something moves, then politely spinning, then asleep.
    pub(crate) fn drive(&mut self, task: &mut impl Task<L>) -> Result<()> {
        let mut idle_since: Option<Instant> = None;
        let mut asking = Asking::default();
        loop {
            let step = task.step(self)?;
            self.shared.bell.ring_if_news();
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
            if now.saturating_duration_since(since) < self.shared.options.spin {
                std::thread::yield_now();
                continue;
            }
            let mut pause = std::mem::take(&mut self.pause).emptied();
            task.pause(self, &mut pause);
            self.sleep(&pause, now, since, &mut asking);
            self.pause = pause;
        }
        self.shared.board.await_rank(None);
        Ok(())
    }

    fn sleep(&mut self, pause: &Pause, now: Instant, idle_since: Instant, asking: &mut Asking) {
        let shared = self.shared;
        let mut until = now + SLEEP_MAX;
        if let Some(deadline) = pause.deadline {
            until = until.min(deadline);
        }
        shared.board.await_rank(pause.awaited.first().copied());
        if let Some(&next) = pause.awaited.first() {
            if now.saturating_duration_since(idle_since) >= shared.options.warn_after && asking.warns() {
                shared.warn_of_wait(next, pause.number);
            }
            let due = asking.due(idle_since, shared.options.probe_after);
            if now >= due {
                asking.asked(now);
                shared.board.begin_round();
                for &rank in pause.awaited.iter().take(ASKED_AT_ONCE_MAX) {
                    shared.control.ask(rank, pause.number);
                }
            } else {
                until = until.min(due);
            }
        }
        self.links.wait(&pause.interest, until);
    }

    /// Gives the baton to whoever wants it and takes it again.
    pub(crate) fn let_others(&mut self) {
        self.shared.is_held.store(false, Ordering::SeqCst);
        self.engine = None;
        while self.shared.is_wanted() {
            std::thread::yield_now();
        }
        self.engine = Some(self.shared.lock_engine());
    }

    /// A short wait for the reason that some other rank may already be spreading.
    pub(crate) fn await_first_cause(&mut self) {
        let until = self.links.now() + FIRST_CAUSE_WINDOW;
        while self.shared.board.revocation().is_none() && self.links.now() < until {
            self.links.wait(&[], until);
        }
    }
}

impl<L: Links + 'static> Drop for Shared<L> {
    fn drop(&mut self) {
        self.progress.end();
    }
}

impl<L: Links + 'static> Drop for Baton<'_, L> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Streams may have stopped in the middle of a call, so nobody may go on with them.
            let what = "a panic under the baton".to_owned();
            self.shared.fail(Error::System { what, text: "see the log of this rank".to_owned() });
        }
        self.shared.is_held.store(false, Ordering::SeqCst);
        self.engine = None;
        self.shared.bell.ring_after_release();
    }
}

impl<L: Links + 'static> Deref for Baton<'_, L> {
    type Target = Engine<L>;

    fn deref(&self) -> &Engine<L> {
        // INVARIANT: only `let_others` empties a baton, and fills it again before it returns.
        self.engine.as_ref().expect("a baton holds the engine")
    }
}

impl<L: Links + 'static> DerefMut for Baton<'_, L> {
    fn deref_mut(&mut self) -> &mut Engine<L> {
        // INVARIANT: only `let_others` empties a baton, and fills it again before it returns.
        self.engine.as_mut().expect("a baton holds the engine")
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
