//! The monitor of a communicator: which thread holds its links, which threads wait, and the next task for a progress
//! thread.
//!
//! The holder of the links moves all asynchronous work. So a thread that waits for asynchronous work takes the links
//! only if they are free; else it waits for ends of calls. A thread with its own collective takes the links from their
//! holder.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::Duration;

use unisono_communicator::AfterEnd;

use crate::calls::links_state::{LinksWord, Threads};
use crate::calls::progress_threads::Pool;
use crate::lock;

/// The time for which a progress thread leaves new work alone, because a caller that waits at once does the work
/// itself. A callback ends this time.
const HEAD_START: Duration = Duration::from_micros(200);

/// The monitor of one communicator. No other lock is taken under its lock.
#[derive(Default)]
pub(crate) struct Monitor {
    state: Mutex<MonitorState>,
    /// Notified when the links are free, or a call has ended.
    changed: Condvar,
    /// Notified when work is urgent: a progress thread that stands aside goes on.
    urgent: Condvar,
    /// The holder and the waiting threads. A change that a sleeping thread waits for is made before the lock is taken
    /// to wake it.
    links: LinksWord,
    pool: Arc<Pool>,
}

#[derive(Default)]
struct MonitorState {
    /// The number of callbacks that wait for ends of calls. If there is any, the progress thread moves calls at once.
    awaited_callbacks: usize,
    command: Command,
    /// Whether a task waits for a call. Until its work is done, the progress thread moves calls at once.
    is_awaited: bool,
    /// Whether a progress thread has the communicator, or is about to.
    is_scheduled: bool,
    /// Whether one has ever had it.
    has_progressed: bool,
}

impl MonitorState {
    fn is_urgent(&self) -> bool {
        self.awaited_callbacks > 0 || self.is_awaited
    }
}

/// A communicator, as a progress thread sees it.
pub(crate) trait Progress: Send + Sync {
    /// Moves pending calls until all have ended, or another communicator waits for the thread and nothing moves. For
    /// some time, it also reads the messages of ranks that close. True if work is left.
    fn progress(&self, pool: &Pool) -> bool;
}

/// The next task for a progress thread.
#[derive(Default)]
pub(crate) enum Command {
    /// Nothing.
    #[default]
    Sleep,
    /// Move this communicator's asynchronous calls.
    Work(Arc<dyn Progress>),
    /// The same, after a turn of other communicators.
    GoOn(Arc<dyn Progress>),
    /// Read the messages of a rank that has closed this communicator, unless it has no handle left.
    Look(Weak<dyn Progress>),
}

impl Monitor {
    /// The monitor of a communicator that these threads look after.
    pub(crate) fn with(pool: Arc<Pool>) -> Monitor {
        Monitor { pool, ..Monitor::default() }
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, MonitorState> {
        lock(&self.state)
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Takes the links if nobody holds or wants them.
    #[inline]
    pub(crate) fn try_take_links(&self) -> bool {
        self.links.take_if(|state| !state.is_wanted())
    }

    /// Takes the links; `wake` wakes their holder, if there is one.
    #[inline]
    pub(crate) fn take_links(&self, wake: impl FnOnce()) {
        if !self.links.take_if(|_| true) {
            self.await_links(wake);
        }
    }

    #[cold]
    fn await_links(&self, wake: impl FnOnce()) {
        self.links.add(Threads::Wanting);
        wake();
        self.sleep_until(|| self.links.take_if(|_| true));
        // A thread that has lent the links wants them back now.
        if self.links.remove(Threads::Wanting).has_sleepers() {
            self.wake_sleepers();
        }
    }

    /// Sleeps until the links have changed so.
    fn sleep_until(&self, is_so: impl Fn() -> bool) {
        let state = self.lock();
        self.links.add(Threads::Sleeping);
        drop(self.changed.wait_while(state, |_| !is_so()));
        self.links.remove(Threads::Sleeping);
    }

    /// Gives the links to the threads that want them, and takes them back afterwards.
    pub(crate) fn lend_links(&self, wake: impl FnOnce()) {
        self.give_links_back();
        self.sleep_until(|| !self.is_wanted());
        self.take_links(wake);
    }

    #[inline]
    pub(crate) fn give_links_back(&self) {
        if self.links.give_back().has_sleepers() {
            self.wake_sleepers();
        }
    }

    /// A thread that has found nothing changed under the lock sleeps once the lock is free.
    #[cold]
    fn wake_sleepers(&self) {
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Whether a thread holds the links.
    pub(crate) fn is_held(&self) -> bool {
        self.links.state().is_held()
    }

    /// Whether a thread waits for the links.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.links.state().is_wanted()
    }

    /// Notes that a call has ended. The work after it goes to a progress thread. Threads are woken if one of them
    /// waits for this call: a thread that waits for another one would only sleep again, once for each end.
    /// `is_awaited` is asked under the monitor's lock, as is the goal of a thread that is about to sleep.
    pub(crate) fn announce(&self, after_end: Option<AfterEnd>, is_awaited: impl FnOnce() -> bool) {
        let mut state = self.lock();
        state.awaited_callbacks -= after_end.as_ref().map_or(0, AfterEnd::callbacks);
        let is_awaited = is_awaited() && self.links.state().has_sleepers();
        drop(state);
        if is_awaited {
            self.changed.notify_all();
        }
        if let Some(after_end) = after_end {
            self.pool.push(after_end);
        }
    }

    /// Sleeps until something has changed, at most for `longest`. Returns at once if `goal` is reached, or if the links
    /// are free and nobody wants them. `goal` runs under the monitor's lock, so it must not take a lock that a thread
    /// may hold when it calls [`Monitor::announce`].
    pub(crate) fn sleep(&self, goal: impl Fn() -> bool, longest: Duration) {
        let state = self.lock();
        self.links.add(Threads::Sleeping);
        if !goal() && (self.is_held() || self.is_wanted()) {
            drop(self.changed.wait_timeout(state, longest));
        }
        self.links.remove(Threads::Sleeping);
    }

    /// Notes that a callback is about to be added to a call. If the call has ended already,
    /// [`Monitor::forget_callback`] follows.
    pub(crate) fn await_callback(&self) {
        self.lock().awaited_callbacks += 1;
        self.call_thread();
    }

    /// Notes that a task waits for a call.
    pub(crate) fn await_call(&self) {
        self.lock().is_awaited = true;
        self.call_thread();
    }

    fn call_thread(&self) {
        self.urgent.notify_one();
        self.pool.hurry();
    }

    /// Notes that the awaited callback was not added, because its call has ended already.
    pub(crate) fn forget_callback(&self) {
        self.lock().awaited_callbacks -= 1;
    }

    /// Whether a callback or a task waits for the end of a call.
    pub(crate) fn is_urgent(&self) -> bool {
        self.lock().is_urgent()
    }

    /// Gives the progress threads a command. True if the caller must tell them.
    pub(crate) fn command(&self, command: Command) -> bool {
        let mut state = self.lock();
        // Any other command also reads the messages.
        if matches!(command, Command::Look(_)) && !matches!(state.command, Command::Sleep) {
            return false;
        }
        let before = std::mem::replace(&mut state.command, command);
        state.has_progressed = true;
        let is_first = !std::mem::replace(&mut state.is_scheduled, true);
        drop(state);
        // Dropped without the lock: it may be the last handle of the communicator.
        drop(before);
        is_first
    }

    /// Withdraws the command: no thread could be started for it, or the communicator is gone.
    pub(crate) fn withdraw(&self, is_scheduled: bool) {
        let mut state = self.lock();
        state.is_scheduled &= is_scheduled;
        let before = std::mem::take(&mut state.command);
        drop(state);
        drop(before);
    }

    /// Whether a progress thread has had the communicator.
    pub(crate) fn has_progressed(&self) -> bool {
        self.lock().has_progressed
    }

    /// Carries out the command, on a progress thread. True if another one follows.
    pub(crate) fn carry_out(&self, pool: &Pool) -> bool {
        let command = std::mem::take(&mut self.lock().command);
        let is_new = !matches!(command, Command::GoOn(_));
        let shared = match command {
            Command::Work(shared) | Command::GoOn(shared) => Some(shared),
            Command::Look(shared) => shared.upgrade(),
            Command::Sleep => None,
        };
        if let Some(shared) = shared {
            if is_new {
                self.stand_aside(HEAD_START);
            }
            // The guard of the links has reported a panic and ended all pending calls.
            let is_left = catch_unwind(AssertUnwindSafe(|| shared.progress(pool))).unwrap_or(false);
            let mut state = self.lock();
            state.is_awaited &= is_left;
            if is_left && matches!(state.command, Command::Sleep | Command::Look(_)) {
                state.command = Command::GoOn(shared);
            } else {
                drop(state);
                // It may be the last handle of the communicator.
                drop(shared);
            }
        }
        let mut state = self.lock();
        state.is_scheduled = !matches!(state.command, Command::Sleep);
        state.is_scheduled
    }

    /// Sleeps for `time`, but only while no work is urgent.
    pub(crate) fn stand_aside(&self, time: Duration) {
        let is_calm = |state: &mut MonitorState| !state.is_urgent();
        drop(self.urgent.wait_timeout_while(self.lock(), time, is_calm));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use super::*;

    /// The borrower learns that the lender wants the links back, although it has just taken them.
    #[test]
    fn lent_links_are_wanted_back() {
        let (monitor, woken) = (Monitor::default(), AtomicUsize::new(0));
        let wake = || {
            woken.fetch_add(1, Ordering::SeqCst);
        };
        let until = |is_so: &dyn Fn() -> bool| {
            let began = Instant::now();
            while !is_so() {
                assert!(began.elapsed() < Duration::from_secs(30), "nobody wants the links");
                std::thread::yield_now();
            }
        };
        monitor.take_links(|| panic!("nobody holds them"));
        std::thread::scope(|threads| {
            let borrower = threads.spawn(|| {
                monitor.take_links(wake);
                until(&|| monitor.is_wanted());
                monitor.give_links_back();
            });
            until(&|| monitor.is_wanted());
            monitor.lend_links(wake);
            borrower.join().unwrap();
        });
        assert_eq!(woken.load(Ordering::SeqCst), 2);
        assert!(monitor.is_held() && !monitor.is_wanted() && !monitor.try_take_links());
        monitor.give_links_back();
        assert!(monitor.try_take_links());
    }
}
