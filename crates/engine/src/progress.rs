//! The progress thread: moves asynchronous calls while no other thread does. It starts at the first `submit`.
//!
//! It never takes the baton from anybody: it only tries, and gives it up as soon as another thread wants it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use unisono_communicator::Error;

use crate::baton::Shared;
use crate::job::lock;
use crate::links::Links;
use crate::tasks::Pending;

/// A caller that waits for its work at once must not meet this thread: so long it leaves new work alone.
const HEAD_START: Duration = Duration::from_micros(200);

/// How long it stays out of the way when another thread is at work.
const STAND_ASIDE: Duration = Duration::from_millis(1);

/// How long it sleeps without work before it looks whether the communicator still exists.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// State of a communicator's progress thread.
#[derive(Default)]
pub(crate) struct Progress {
    is_started: AtomicBool,
    has_work: Mutex<bool>,
    signal: Condvar,
}

impl Progress {
    /// Says that there is work, and starts the thread if there is none yet.
    ///
    /// # Errors
    /// When the system has no room for another thread.
    pub(crate) fn notify<L: Links + 'static>(shared: &Arc<Shared<L>>) -> Result<(), Error> {
        let progress = &shared.progress;
        *lock(&progress.has_work) = true;
        progress.signal.notify_one();
        if progress.is_started.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let weak = Arc::downgrade(shared);
        let thread = std::thread::Builder::new().name("unisono-progress".to_owned());
        match thread.spawn(move || run(&weak)) {
            Ok(_) => Ok(()),
            Err(error) => {
                progress.is_started.store(false, Ordering::SeqCst);
                Err(Error::system("cannot start the progress thread", &error))
            }
        }
    }

    fn wait_for_work(&self) -> bool {
        let has_work = lock(&self.has_work);
        let (has_work, _) = self
            .signal
            .wait_timeout_while(has_work, SLEEP_MAX, |has_work| !*has_work)
            .unwrap_or_else(PoisonError::into_inner);
        *has_work
    }
}

fn run<L: Links + 'static>(weak: &Weak<Shared<L>>) {
    // The thread holds the communicator only while it works, so that dropping the last handle ends it.
    while let Some(shared) = weak.upgrade() {
        if !shared.progress.wait_for_work() {
            continue;
        }
        std::thread::sleep(HEAD_START);
        while shared.has_pending() {
            match shared.try_baton() {
                Some(mut baton) => {
                    let goal = || shared.is_wanted();
                    if let Err(error) = baton.drive(&mut Pending { shared: &shared, goal }) {
                        shared.settle(&mut baton, error);
                    }
                }
                None => std::thread::sleep(STAND_ASIDE),
            }
        }
        *lock(&shared.progress.has_work) = shared.has_pending();
    }
}
