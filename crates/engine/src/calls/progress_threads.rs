//! The threads of a world. They move the asynchronous calls of its communicators while no thread of the program does,
//! and run the program's code after calls: functions given to `on_done`, wakers of tasks, keepers of memory.
//!
//! **Calls.** There are few threads however many communicators there are. While there are more communicators with work
//! than threads, each thread turns to the next one as soon as nothing moves, so no communicator waits for another to
//! end.
//!
//! **Code of the program** runs without locks and links, so it may make calls, and may block. It runs in the order in
//! which calls end, one piece after another. The thread that has ended a call also runs the code after it. Meanwhile
//! another thread looks from time to time: it goes on with the next piece if this one takes longer than
//! [`BLOCKED_AFTER`], because it may wait for the next one.
//!
//! **Waking a thread** takes longer than a short call. So a thread that has just worked looks for more work by itself
//! for a while, and short code of the program delays other work rather than wakes a thread for it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use unisono_backend::{Waker, begin_thread_without_callers, run_code_of_the_program};
use unisono_communicator::{AfterEnd, Error};

use crate::calls::monitor::Monitor;
use crate::lock;

/// The most threads of one world that move calls.
const MOVERS_MAX: usize = 8;

/// The most threads of one world in code of the program. With this number of functions that block at once, later ones
/// wait.
const CALLERS_MAX: usize = 64;

/// Code of the program that takes longer than this may wait for later code.
const BLOCKED_AFTER: Duration = Duration::from_millis(2);

/// A thread that has just worked looks for more work, unasked, for this time.
const LINGER: Duration = Duration::from_millis(2);

/// The time between two looks. Calls of a communicator wait this long for a thread that is in code of the program.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// After code of the program, a thread looks without a pause for this time, because this code often leads to the next
/// call. Between looks it yields its core.
const LOOK_FIRST: Duration = Duration::from_micros(30);

/// The number of communicators without a handle that may have unfinished calls; the next drop of a handle finishes its
/// calls itself. Each of them has sockets and memory.
const DROPPED_MAX: usize = 64;

/// The role of a thread.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// It belongs to the program.
    Foreign,
    /// It moves calls, and runs the code after them itself. `has_kept` says whether there is such code now.
    Mover { has_kept: bool },
    /// It runs code of the program, which may block.
    Caller,
}

thread_local! {
    static ROLE: Cell<Role> = const { Cell::new(Role::Foreign) };
}

/// The threads of one world. They start when they are needed, and end with the last communicator.
#[derive(Clone, Default)]
pub struct ProgressThreads(Arc<Owner>);

impl fmt::Debug for ProgressThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProgressThreads").field(&self.count()).finish()
    }
}

/// The threads themselves do not own this, so they end with it.
struct Owner {
    pool: Arc<Pool>,
    process: u32,
}

impl Owner {
    /// Whether this is a forked child, in which a thread that does not exist may hold the lock.
    fn is_child(&self) -> bool {
        std::process::id() != self.process
    }
}

impl Default for Owner {
    fn default() -> Owner {
        Owner { pool: Arc::default(), process: std::process::id() }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if !self.is_child() {
            lock(&self.pool.state).is_over = true;
            self.pool.has_work.notify_all();
        }
    }
}

impl ProgressThreads {
    /// The number of threads.
    pub fn count(&self) -> usize {
        lock(&self.0.pool.state).threads
    }

    /// The threads, for a communicator.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.0.pool
    }
}

/// A communicator without a handle that has unfinished calls, until it is gone.
pub(crate) struct Dropped(ProgressThreads);

impl ProgressThreads {
    /// Notes a communicator whose last handle is gone, with unfinished calls. True if there are too many of these.
    pub(crate) fn note_dropped(&self) -> (Dropped, bool) {
        let mut state = lock(&self.0.pool.state);
        state.dropped += 1;
        (Dropped(self.clone()), state.dropped > DROPPED_MAX)
    }
}

impl Drop for Dropped {
    fn drop(&mut self) {
        let owner = &self.0.0;
        if !owner.is_child() {
            lock(&owner.pool.state).dropped -= 1;
        }
    }
}

/// While it lives, a thread may sleep in the links of a communicator.
pub(crate) struct Sleeper<'p> {
    pool: &'p Pool,
    number: u64,
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        lock(&self.pool.state).sleepers.retain(|(number, _)| *number != self.number);
    }
}

/// The work that is left, and the threads.
#[derive(Default)]
pub(crate) struct Pool {
    state: Mutex<PoolState>,
    has_work: Condvar,
}

#[derive(Default)]
struct PoolState {
    /// The communicators that no thread looks after yet.
    waiting: VecDeque<Arc<Monitor>>,
    /// Code of the program, in the order in which calls have ended.
    due: VecDeque<AfterEnd>,
    threads: usize,
    /// The number of threads without work.
    idle: usize,
    /// The number of idle threads that look for work by themselves, and of these the number without a pause.
    lingering: usize,
    looking: usize,
    /// The number of other idle threads, which look whether a thread is blocked.
    guards: usize,
    /// The number of threads in code of the program, and when the last of them has begun.
    callers: usize,
    called: Option<Instant>,
    /// Wakes the threads that may sleep in the links of a communicator, by number.
    sleepers: Vec<(u64, Waker)>,
    next_sleeper: u64,
    /// The number of communicators without a handle that have unfinished calls.
    dropped: usize,
    is_over: bool,
}

/// The next work of a thread.
enum NextWork {
    Move(Arc<Monitor>),
    Call(AfterEnd),
}

/// The threads to wake for new work.
enum Wakes {
    /// None: a thread looks for the work by itself, or has just been started.
    Nobody,
    /// One without work.
    Idle,
    /// The threads that sleep in the links of other communicators.
    Sleepers(Vec<Waker>),
}

impl PoolState {
    /// Whether a thread has been in code of the program for a shorter time than `longest`.
    fn is_soon_back(&self, longest: Duration) -> bool {
        self.callers > 0 && self.called.is_some_and(|called| called.elapsed() < longest)
    }

    /// Code of the program that makes calls of its own may wait for them: its thread is not soon back.
    fn note_role(&mut self) {
        if ROLE.get() == Role::Caller {
            self.called = None;
        }
    }

    /// The number of communicators that need a thread now.
    fn unattended(&self) -> usize {
        self.waiting.len().saturating_sub(usize::from(self.is_soon_back(LOOK_EVERY)))
    }

    /// Whether a thread is soon back for all work.
    fn can_wait(&self) -> bool {
        self.unattended() == 0 && (self.due.is_empty() || self.is_soon_back(BLOCKED_AFTER))
    }

    /// The number of threads that should look for work. One is enough for all code that is due.
    fn wanted(&self) -> usize {
        self.waiting.len() + usize::from(!self.due.is_empty())
    }

    fn begin_to_look(&mut self) {
        (self.idle, self.lingering) = (self.idle + 1, self.lingering + 1);
    }

    fn end_to_look(&mut self) {
        (self.idle, self.lingering) = (self.idle - 1, self.lingering - 1);
    }

    /// The next work for a thread, if there is any that cannot wait for another thread. A thread that has just run code
    /// of the program moves calls first.
    fn take(&mut self, has_called: bool) -> Option<NextWork> {
        let moves_first = has_called && !self.waiting.is_empty();
        if !moves_first
            && self.callers < CALLERS_MAX
            && !self.is_soon_back(BLOCKED_AFTER)
            && let Some(after_end) = self.due.pop_front()
        {
            (self.callers, self.called) = (self.callers + 1, Some(Instant::now()));
            return Some(NextWork::Call(after_end));
        }
        if self.unattended() > 0 { self.waiting.pop_front().map(NextWork::Move) } else { None }
    }
}

impl Pool {
    /// A communicator has a command for its thread.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no room for the thread that it needs.
    pub(crate) fn add(self: &Arc<Self>, monitor: Arc<Monitor>) -> Result<(), Error> {
        let mut state = lock(&self.state);
        state.note_role();
        state.waiting.push_back(monitor);
        match self.call_thread(&mut state, false) {
            Ok(wakes) => {
                drop(state);
                self.wake(wakes);
                Ok(())
            }
            Err(error) => {
                state.waiting.pop_back();
                Err(error)
            }
        }
    }

    /// Sees to it that there is a thread for code of the program.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no room for it.
    pub(crate) fn start(self: &Arc<Self>) -> Result<(), Error> {
        let mut state = lock(&self.state);
        if state.threads > 0 { Ok(()) } else { self.add_thread(&mut state) }
    }

    /// Code of the program is due; [`Pool::start`] has started a thread. A thread of this pool runs the code itself,
    /// once it has no other work.
    pub(crate) fn push(self: &Arc<Self>, after_end: AfterEnd) {
        let mut state = lock(&self.state);
        state.due.push_back(after_end);
        match ROLE.get() {
            Role::Mover { .. } => ROLE.set(Role::Mover { has_kept: true }),
            Role::Foreign | Role::Caller => self.call_for_code(state),
        }
    }

    /// Passes the code that this thread has made due to another thread: this one has calls to move, or waits.
    #[inline]
    pub(crate) fn pass_on(self: &Arc<Self>) {
        if ROLE.get() == (Role::Mover { has_kept: true }) {
            ROLE.set(Role::Mover { has_kept: false });
            self.call_for_code(lock(&self.state));
        }
    }

    /// The program waits for the end of a call, and no thread of the program moves it.
    pub(crate) fn hurry(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        state.note_role();
        if state.unattended() > 0 {
            let wakes = self.call_thread(&mut state, true);
            drop(state);
            // Without another thread, the present ones go on.
            wakes.into_iter().for_each(|wakes| self.wake(wakes));
        }
    }

    fn call_for_code(self: &Arc<Self>, mut state: MutexGuard<'_, PoolState>) {
        let is_urgent = !state.is_soon_back(BLOCKED_AFTER);
        let wakes = self.call_thread(&mut state, is_urgent);
        drop(state);
        // As above.
        wakes.into_iter().for_each(|wakes| self.wake(wakes));
    }

    /// Sees to it that a thread looks for work: at once, or soon. The caller wakes threads without the lock, for which
    /// they would only wait.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no room for another thread, and all threads have been in code of the
    /// program for long: that code may wait for this work.
    fn call_thread(self: &Arc<Self>, state: &mut PoolState, is_urgent: bool) -> Result<Wakes, Error> {
        let wanted = state.wanted();
        if state.idle < wanted {
            if state.threads - state.callers < MOVERS_MAX {
                match self.add_thread(state) {
                    Err(error) if state.threads == state.callers && !state.is_soon_back(LOOK_EVERY) => {
                        return Err(error);
                    }
                    Err(_) => {}
                    Ok(()) => return Ok(Wakes::Nobody),
                }
            }
            // The threads that sleep in other communicators must turn to this work too.
            return Ok(Wakes::Sleepers(state.sleepers.iter().map(|(_, wake)| wake.clone()).collect()));
        }
        let is_seen = if is_urgent {
            state.looking > 0
        } else {
            state.lingering >= wanted || state.guards > 0 && state.can_wait()
        };
        Ok(if is_seen { Wakes::Nobody } else { Wakes::Idle })
    }

    fn wake(&self, wakes: Wakes) {
        match wakes {
            Wakes::Nobody => {}
            Wakes::Idle => self.has_work.notify_one(),
            Wakes::Sleepers(sleepers) => sleepers.iter().for_each(|wake| wake()),
        }
    }

    /// A thread may sleep from now on; `wake` wakes it.
    pub(crate) fn sleeper(&self, wake: Waker) -> Sleeper<'_> {
        let mut state = lock(&self.state);
        let number = state.next_sleeper;
        state.next_sleeper += 1;
        state.sleepers.push((number, wake));
        Sleeper { pool: self, number }
    }

    /// Whether work waits for a thread, other than code that this thread will run itself.
    pub(crate) fn is_crowded(&self) -> bool {
        let state = lock(&self.state);
        let is_own = ROLE.get() == Role::Mover { has_kept: true };
        if is_own { state.waiting.len() > state.idle } else { state.wanted() > state.idle }
    }
}

/// The work of the threads.
impl Pool {
    fn add_thread(self: &Arc<Self>, state: &mut PoolState) -> Result<(), Error> {
        let own = self.clone();
        let thread = std::thread::Builder::new().name("unisono-progress".to_owned());
        thread
            .spawn(move || {
                begin_thread_without_callers();
                own.run();
            })
            .map_err(|error| Error::system("cannot start the progress thread", &error))?;
        state.threads += 1;
        state.begin_to_look();
        Ok(())
    }

    fn run(self: Arc<Self>) {
        let mut has_called = false;
        while let Some(work) = self.next(has_called) {
            ROLE.set(Role::Mover { has_kept: false });
            has_called = matches!(work, NextWork::Call(_));
            let is_left = match work {
                NextWork::Move(monitor) => monitor.carry_out(&self).then_some(monitor),
                NextWork::Call(after_end) => {
                    ROLE.set(Role::Caller);
                    run_code_of_the_program(|| after_end.run());
                    None
                }
            };
            let mut state = lock(&self.state);
            state.waiting.extend(is_left);
            state.callers -= usize::from(has_called);
            state.begin_to_look();
        }
    }

    /// Waits beside other threads, one of which may block.
    fn guard<'s>(&'s self, mut state: MutexGuard<'s, PoolState>) -> MutexGuard<'s, PoolState> {
        (state.lingering, state.guards) = (state.lingering - 1, state.guards + 1);
        let woken = self.has_work.wait_timeout(state, BLOCKED_AFTER);
        state = woken.unwrap_or_else(PoisonError::into_inner).0;
        (state.lingering, state.guards) = (state.lingering + 1, state.guards - 1);
        state
    }

    /// The next work of an idle thread; `None` when the thread must end.
    fn next(self: &Arc<Self>, has_called: bool) -> Option<NextWork> {
        let mut state = lock(&self.state);
        let (mut since, mut looks_first) = (Instant::now(), has_called);
        let work = loop {
            if let Some(work) = state.take(has_called) {
                break Some(work);
            }
            let is_empty = state.wanted() == 0;
            if is_empty && state.is_over {
                break None;
            }
            let idle = since.elapsed();
            looks_first &= idle < LOOK_FIRST;
            if looks_first {
                state.looking += 1;
                drop(state);
                std::thread::yield_now();
                state = lock(&self.state);
                state.looking -= 1;
            } else if !is_empty || idle < LINGER && state.threads > state.idle {
                state = self.guard(state);
            } else if idle < LINGER {
                let woken = self.has_work.wait_timeout(state, LOOK_EVERY);
                state = woken.unwrap_or_else(PoisonError::into_inner).0;
            } else if state.idle > MOVERS_MAX {
                break None;
            } else {
                state.lingering -= 1;
                state = self.has_work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.lingering += 1;
                since = Instant::now();
            }
        };
        state.end_to_look();
        match work {
            // The rest of the work needs a thread too.
            Some(_) if state.wanted() > 0 => self.call_for_code(state),
            Some(_) => {}
            None => state.threads -= 1,
        }
        work
    }
}
