//! The monitor of a communicator: who holds its links, who waits for them or for the end of a call, and what its
//! progress thread does next.
//!
//! The holder of the links moves all asynchronous work. So a thread that waits for its work needs the links only when
//! nobody has them; until then it waits for ends. A thread with a collective of its own takes the links from their
//! holder.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use unisono_communicator::AfterEnd;

use crate::drive::callbacks::Callbacks;
use crate::lock;

/// The monitor of one communicator. Nothing else is locked under its lock.
#[derive(Default)]
pub(crate) struct Monitor {
    state: Mutex<MonitorState>,
    /// The links are free, or a call has ended.
    changed: Condvar,
    /// The progress thread has a command, or its work is urgent.
    commanded: Condvar,
    /// How many threads wait for the links. Changed under the lock; the holder of the links reads it between polls.
    wanting: AtomicUsize,
    callbacks: Arc<Callbacks>,
}

#[derive(Default)]
struct MonitorState {
    is_held: bool,
    /// How many threads sleep until something has changed.
    sleepers: usize,
    /// How many callbacks wait for the end of a call: then the progress thread does not leave the work to its caller.
    awaited_callbacks: usize,
    command: Command,
    has_progress_thread: bool,
}

/// A communicator, as its progress thread sees it.
pub(crate) trait Progress: Send + Sync {
    /// Moves pending calls until all have ended. For a while, it reads the messages of ranks that close too.
    fn progress(&self);
}

/// The next task of the progress thread.
#[derive(Default)]
pub(crate) enum Command {
    /// Nothing.
    #[default]
    Sleep,
    /// This communicator has work.
    Work(Arc<dyn Progress>),
    /// A rank of this communicator has closed it. Without a handle left, there is nothing to do.
    Look(Weak<dyn Progress>),
    /// The communicator is gone.
    End,
}

impl Monitor {
    fn lock(&self) -> MutexGuard<'_, MonitorState> {
        lock(&self.state)
    }

    /// The thread of callbacks.
    pub(crate) fn callbacks(&self) -> &Arc<Callbacks> {
        &self.callbacks
    }

    /// Takes the links if nobody holds or wants them.
    pub(crate) fn try_take_links(&self) -> bool {
        let mut state = self.lock();
        !self.is_wanted() && !std::mem::replace(&mut state.is_held, true)
    }

    /// Takes the links. If somebody holds them, `wake` wakes the holder.
    pub(crate) fn take_links(&self, wake: impl FnOnce()) {
        let mut state = self.lock();
        if state.is_held {
            self.wanting.fetch_add(1, Ordering::SeqCst);
            drop(state);
            wake();
            state = self.lock();
            state.sleepers += 1;
            let held = self.changed.wait_while(state, |state| state.is_held);
            state = held.unwrap_or_else(PoisonError::into_inner);
            state.sleepers -= 1;
            state.is_held = true;
            self.wanting.fetch_sub(1, Ordering::SeqCst);
            // A thread that has lent them wants them back now.
            return self.notify(state);
        }
        state.is_held = true;
    }

    /// Gives the links to the threads that want them, and takes them again afterwards.
    pub(crate) fn lend_links(&self, wake: impl FnOnce()) {
        self.give_links_back();
        let mut state = self.lock();
        state.sleepers += 1;
        let wanted = self.changed.wait_while(state, |_| self.is_wanted());
        wanted.unwrap_or_else(PoisonError::into_inner).sleepers -= 1;
        self.take_links(wake);
    }

    /// Gives the links back.
    pub(crate) fn give_links_back(&self) {
        let mut state = self.lock();
        state.is_held = false;
        self.notify(state);
    }

    /// Whether somebody holds the links.
    pub(crate) fn is_held(&self) -> bool {
        self.lock().is_held
    }

    /// Whether a thread waits for the links.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanting.load(Ordering::SeqCst) > 0
    }

    /// A call has ended. Its waker and its callbacks have a thread of their own, which holds nothing.
    pub(crate) fn announce(&self, after_end: Option<AfterEnd>) {
        let mut state = self.lock();
        state.awaited_callbacks -= after_end.as_ref().map_or(0, AfterEnd::callbacks);
        self.notify(state);
        if let Some(after_end) = after_end {
            self.callbacks.push(after_end);
        }
    }

    fn notify(&self, state: MutexGuard<'_, MonitorState>) {
        let is_awaited = state.sleepers > 0;
        drop(state);
        if is_awaited {
            self.changed.notify_all();
        }
    }

    /// Sleeps until something has changed, at most for `longest`. Returns at once if `goal` is reached, or if the links
    /// are free and nobody wants them. `goal` runs under the monitor's lock. So it must not take a lock that a thread
    /// may hold while it calls [`Monitor::announce`].
    pub(crate) fn sleep(&self, goal: impl Fn() -> bool, longest: Duration) {
        let mut state = self.lock();
        if goal() || (!state.is_held && !self.is_wanted()) {
            return;
        }
        state.sleepers += 1;
        let woken = self.changed.wait_timeout(state, longest);
        woken.unwrap_or_else(PoisonError::into_inner).0.sleepers -= 1;
    }

    /// A callback is about to be added to a call. When that has ended already, [`Monitor::forget_callback`] follows.
    pub(crate) fn await_callback(&self) {
        self.lock().awaited_callbacks += 1;
        self.commanded.notify_one();
    }

    /// The call of the callback had ended already.
    pub(crate) fn forget_callback(&self) {
        self.lock().awaited_callbacks -= 1;
    }

    /// Whether a callback waits for the end of a call.
    pub(crate) fn is_urgent(&self) -> bool {
        self.lock().awaited_callbacks > 0
    }

    /// Gives the progress thread a command. True when the caller has to start the thread.
    pub(crate) fn command(&self, command: Command) -> bool {
        let mut state = self.lock();
        // Any other work looks at the streams too.
        if matches!(command, Command::Look(_)) && !matches!(state.command, Command::Sleep) {
            return false;
        }
        let before = std::mem::replace(&mut state.command, command);
        let is_first = !std::mem::replace(&mut state.has_progress_thread, true);
        drop(state);
        self.commanded.notify_one();
        // Without the lock: it may be the last handle of the communicator.
        drop(before);
        is_first
    }

    /// The progress thread could not be started.
    pub(crate) fn has_no_progress_thread(&self) {
        let mut state = self.lock();
        state.has_progress_thread = false;
        let before = std::mem::take(&mut state.command);
        drop(state);
        drop(before);
    }

    /// Whether there is a progress thread.
    pub(crate) fn is_progressing(&self) -> bool {
        self.lock().has_progress_thread
    }

    /// The next command, for the progress thread.
    pub(crate) fn next_command(&self) -> Command {
        let sleeps = |state: &mut MonitorState| matches!(state.command, Command::Sleep);
        let state = self.commanded.wait_while(self.lock(), sleeps);
        std::mem::take(&mut state.unwrap_or_else(PoisonError::into_inner).command)
    }

    /// Sleeps for `time`, as long as no work is urgent.
    pub(crate) fn stand_aside(&self, time: Duration) {
        let is_calm = |state: &mut MonitorState| state.awaited_callbacks == 0;
        drop(self.commanded.wait_timeout_while(self.lock(), time, is_calm));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// The borrower learns that the lender wants them back, although it has just taken them.
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
