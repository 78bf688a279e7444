//! The progress thread: moves asynchronous calls while no other thread does, and reads the streams of ranks that close.
//! It starts at the first `submit`, or when a rank closes.
//!
//! It never takes the links from another thread: it only tries to lock them, and gives them up as soon as another
//! thread wants them. It holds the communicator only while there is work, so that detached work goes on when the last
//! handle is dropped, and a communicator without work is dropped at once. A panic inside a call ends that call, not
//! this thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use unisono_communicator::{Error, Severity, deadline_after, log};

use crate::drive::Shared;
use crate::links::Links;
use crate::lock;

/// How long this thread leaves new work alone: a caller that waits for its work at once does it itself. One that has
/// given a callback does not wait.
const HEAD_START: Duration = Duration::from_micros(200);

/// How long it stays out of the way when another thread is at work.
const STAND_ASIDE: Duration = Duration::from_millis(1);

/// A command to the thread.
enum ThreadCommand<L: Links + 'static> {
    /// Nothing to do.
    Sleep,
    /// This communicator has work.
    Work(Arc<Shared<L>>),
    /// A rank of this communicator has closed it. Without a handle left, there is nothing to do.
    Look(Weak<Shared<L>>),
    /// The communicator is gone.
    End,
}

/// State of a communicator's progress thread, which outlives neither the communicator nor its work.
pub(crate) struct Progress<L: Links + 'static> {
    is_started: AtomicBool,
    order: Mutex<ThreadCommand<L>>,
    signal: Condvar,
}

impl<L: Links + 'static> Progress<L> {
    /// No thread yet.
    pub(crate) fn new() -> Arc<Progress<L>> {
        Arc::new(Progress {
            is_started: AtomicBool::new(false),
            order: Mutex::new(ThreadCommand::Sleep),
            signal: Condvar::new(),
        })
    }

    /// Says that there is work, and starts the thread if there is none yet.
    ///
    /// # Errors
    /// When the system has no room for another thread.
    pub(crate) fn notify(shared: &Arc<Shared<L>>) -> Result<(), Error> {
        let progress = &shared.progress;
        progress.tell(ThreadCommand::Work(shared.clone()));
        progress.start().inspect_err(|_| progress.tell(ThreadCommand::Sleep))
    }

    /// Says that a rank has closed the communicator. Called on the control thread: it takes no handle.
    pub(crate) fn look_after(self: &Arc<Self>, shared: Weak<Shared<L>>) {
        let mut order = lock(&self.order);
        // Any other work looks at the streams too.
        if matches!(*order, ThreadCommand::Sleep) {
            *order = ThreadCommand::Look(shared);
            drop(order);
            self.signal.notify_one();
            if let Err(error) = self.start() {
                let problem = "the messages of a rank that closes stay in its stream";
                log(Severity::Warn, None, format_args!("{problem}: {error}"));
            }
        }
    }

    /// Hands the last handle of a communicator without work to the thread, which ends it. Without a thread the caller
    /// does.
    pub(crate) fn end_last(shared: &Arc<Shared<L>>) {
        if shared.progress.is_started.load(Ordering::SeqCst) {
            shared.progress.tell(ThreadCommand::Work(shared.clone()));
        }
    }

    fn start(self: &Arc<Self>) -> Result<(), Error> {
        if self.is_started.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let mine = self.clone();
        let thread = std::thread::Builder::new().name("unisono-progress".to_owned());
        let started = thread.spawn(move || mine.run());
        started.map(drop).map_err(|error| {
            self.is_started.store(false, Ordering::SeqCst);
            Error::system("cannot start the progress thread", &error)
        })
    }

    /// Ends the thread: the communicator is being dropped.
    pub(crate) fn end(&self) {
        self.tell(ThreadCommand::End);
    }

    fn tell(&self, order: ThreadCommand<L>) {
        // The order before is dropped after the lock: it may be the last handle of the communicator.
        let before = std::mem::replace(&mut *lock(&self.order), order);
        self.signal.notify_one();
        drop(before);
    }

    /// A callback waits for work that is in progress: the thread does not leave it to its caller any longer.
    pub(crate) fn hurry(&self) {
        drop(lock(&self.order));
        self.signal.notify_one();
    }

    /// Leaves the work to others, until it is urgent.
    fn leave_alone(&self, shared: &Shared<L>, time: Duration) {
        let is_calm = |_: &mut ThreadCommand<L>| !shared.completions.is_urgent();
        drop(self.signal.wait_timeout_while(lock(&self.order), time, is_calm));
    }

    fn next(&self) -> ThreadCommand<L> {
        let order = lock(&self.order);
        let sleeps = |order: &mut ThreadCommand<L>| matches!(order, ThreadCommand::Sleep);
        let mut order = self.signal.wait_while(order, sleeps).unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *order, ThreadCommand::Sleep)
    }

    fn run(&self) {
        loop {
            let shared = match self.next() {
                ThreadCommand::Work(shared) => Some(shared),
                ThreadCommand::Look(shared) => shared.upgrade(),
                ThreadCommand::Sleep => None,
                ThreadCommand::End => return,
            };
            if let Some(shared) = shared {
                self.leave_alone(&shared, HEAD_START);
                // The guard of the links has reported the panic, and has ended what was pending.
                let _ = catch_unwind(AssertUnwindSafe(|| work(&shared)));
            }
        }
    }
}

/// Moves what is pending until it has ended, and reads what closing ranks have sent, for a while.
fn work<L: Links + 'static>(shared: &Shared<L>) {
    let until = deadline_after(Instant::now(), shared.options.drop_timeout);
    while shared.has_pending() || shared.has_closing_lanes() && Instant::now() < until {
        match shared.try_lock_links() {
            Some(mut guard) => {
                shared.drive_pending(&mut guard, None, || false);
                if shared.drain_closed_lanes(&mut guard, until).is_err() {
                    return;
                }
            }
            // Urgent work is taken over as soon as the other thread lets go of it.
            None if shared.completions.is_urgent() => {
                shared.completions.listen(|| shared.is_free() && !shared.is_wanted(), STAND_ASIDE);
            }
            None => shared.progress.leave_alone(shared, STAND_ASIDE),
        }
    }
}
